"""The plan of the waves and the approval text of a wave, in Markdown (pure)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import SubscriptionStats, TopicStats
from pulsar_fleet.cluster.text import byte_size, counted, duration
from pulsar_fleet.ledger.rows import RecordedVerdict, utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import PROOF_SPEED
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.model import Move, Moves, Strategy
from pulsar_fleet.migration.waves.planner import Member, Wave, WavePlan
from pulsar_fleet.preflight.findings import Finding, Severity, findings_markdown

log = logging.getLogger(__name__)

SLOWEST, FASTEST = 7 << 20, 130 << 20
"""Bytes per second of each cluster that one task read on two cores: messages of 1 kB stored alone, and 100 of them
in an entry (`tests/bench/test_proof_by_job.py` and `test_verify_growth.py`)."""

LEAST_BYTES = 64 << 20
"""The time of a smaller proof is that of its start, and says nothing of a larger one."""

_NEWEST_RUNS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSpeed(Document):
    """What a whole proof of copied messages took, without an interruption.

    :param stored_bytes: of the compared topics on the source when the run was planned.
    """

    SCHEMA_VERSION = 1

    blue: str
    green: str
    stored_bytes: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Bytes of each cluster per second."""
        return self.stored_bytes / self.seconds

    def is_between(self, blue: str, green: str) -> bool:
        """Whether it compared these two clusters, in either direction."""
        return {self.blue, self.green} == {blue, green}


def record_speed(run: Run, moves: Moves, seconds: float) -> None:
    """Record what a proof took, for the plans of later runs; a second call replaces it."""
    stored = sum(move.stored_bytes or 0 for move in moves.moves if move.strategy.copies)
    if stored >= LEAST_BYTES:
        speed = ProofSpeed(blue=moves.blue, green=moves.green, stored_bytes=stored, seconds=seconds)
        run.artefacts.write_json(run.id, PROOF_SPEED, speed.to_json())


def largest_proof(run: Run, blue: str, green: str) -> tuple[str, ProofSpeed] | None:
    """The largest recorded proof between two clusters among the newest runs, and its run; None without any."""
    ids = [recorded.run_id for recorded in run.ledger.newest_runs(_NEWEST_RUNS)]
    found = {run_id: _speed(run, run_id) for run_id in run.artefacts.runs_with(PROOF_SPEED, ids)}
    between = [(run_id, speed) for run_id, speed in found.items() if speed and speed.is_between(blue, green)]
    return max(between, key=lambda entry: (entry[1].stored_bytes, entry[0]), default=None)


def proof_sentence(
    members: Sequence[Member], known: tuple[str, ProofSpeed] | None, limit: int | None = None
) -> str | None:
    """How long the proof of a wave is expected to take; None where no messages are copied.

    :param limit: bytes per second that may be read from a broker, None for no limit.
    """
    copied = [member for member in members if member.strategy.copies]
    if not copied:
        return None
    if unknown := [member for member in copied if member.stored_bytes is None]:
        return f"Expected proof: not known, what {counted(len(unknown), 'namespace')} stores was not read."
    stored = sum(member.stored_bytes or 0 for member in copied)
    size = f"{byte_size(stored)} on each cluster"
    if stored < LEAST_BYTES:
        return f"Expected proof: within a minute, for {size}."
    if known is None:
        least, most = (duration(_seconds(stored, speed, limit)) for speed in (FASTEST, SLOWEST))
        span = least if least == most else f"{least} to {most}"
        return f"Expected proof: about {span} for {size}; no proof of these clusters is on record yet.{_slowed(limit)}"
    run_id, speed = known
    return (
        f"Expected proof: about {duration(_seconds(stored, speed.per_second, limit))} for {size}, by run {run_id}, "
        f"which compared {byte_size(speed.stored_bytes)} in {duration(speed.seconds)}.{_slowed(limit)}"
    )


def _speed(run: Run, run_id: str) -> ProofSpeed | None:
    reference = run.artefacts.find(run_id, PROOF_SPEED)
    try:
        return ProofSpeed.from_json(run.artefacts.read_json(reference)) if reference else None
    except FleetError as error:
        log.info("what the proof of %s took is not used: %s", run_id, error)
        return None


def _seconds(stored: int, per_second: float, limit: int | None) -> float:
    return stored / min(per_second, limit or per_second)


def _slowed(limit: int | None) -> str:
    return f" At most {byte_size(limit)} per second is read from each broker." if limit else ""


def drain_seconds(partitions: Iterable[TopicStats], strategy: Strategy) -> float | None:
    """How long consumers need for the backlog on blue at their present rate; None while that is not known.

    Producers leave blue at the cut-over, so that the backlog only shrinks. Subscriptions are drained in parallel: the
    slowest decides. With replication the cut-over transfers subscriptions without consumers, which need no drain.
    """
    seconds = 0.0
    for partition in partitions:
        for subscription in partition.subscriptions.values():
            if not subscription.backlog or _is_transferred(subscription, strategy):
                continue
            if not subscription.read_rate:
                return None
            seconds = max(seconds, subscription.backlog / subscription.read_rate)
    return seconds


def _is_transferred(subscription: SubscriptionStats, strategy: Strategy) -> bool:
    return not strategy.redirects or (strategy.copies and not subscription.consumers)


def verification_sentence(
    names: Sequence[NamespaceName], verdicts: Mapping[NamespaceName, RecordedVerdict], now: datetime
) -> str:
    """How old the last verdict of each namespace is, by verdict; the oldest verdict is named.

    :param verdicts: the last stored verdict of each namespace that has a verdict.
    """
    by_verdict: dict[str, list[NamespaceName]] = {}
    for name in names:
        if name in verdicts:
            by_verdict.setdefault(verdicts[name].verdict, []).append(name)
    parts = []
    for verdict, group in sorted(by_verdict.items()):
        at = {name: utc(verdicts[name].at) for name in group}
        oldest = min(group, key=at.__getitem__)
        age = f"{duration((now - at[oldest]).total_seconds())} ago"
        parts.append(f"{verdict} {age}" if len(names) == 1 else f"{len(group)} {verdict}, oldest {age} ({oldest})")
    if missing := [name for name in names if name not in verdicts]:
        few = len(missing) < len(names)
        parts.append(f"{len(missing)} not verified yet, first {missing[0]}" if few else "not verified yet")
    return f"Last verification: {'; '.join(parts)}."


def drain_sentence(members: Sequence[Member]) -> str:
    """How long the drain of a wave is expected to take, by the backlog and the read rates of its last survey."""
    unknown = [member for member in members if member.drain_seconds is None]
    if unknown:
        backlog = sum(member.backlog for member in unknown)
        first = unknown[0].namespace
        more = f" (and {counted(len(unknown) - 1, 'more namespace')})" if len(unknown) > 1 else ""
        return (
            f"Expected drain: not known. {first} has a subscription with a backlog that no consumer reads now{more}; "
            f"{counted(backlog, 'unread entry')}."
        )
    slowest = max(members, key=lambda member: member.drain_seconds or 0.0)
    if not slowest.drain_seconds:
        return "Expected drain: nothing to drain on blue."
    return (
        f"Expected drain: about {duration(max(slowest.drain_seconds, 1.0))} at the present read rates; "
        f"{counted(sum(member.backlog for member in members), 'unread entry')}, {slowest.namespace} takes longest."
    )


REVERSIBLE = (
    "After you approve: the publish pause is about 3 s per namespace. Until the first topic is terminated, *Abort* "
    "restores everything.\nAfter that, a failback is a second migration and needs application restarts."
)
WHOLE_CLUSTER = (
    "After you approve: one flag redirects every client of {blue}, and the publish pause is about 3 s. Until the first "
    "topic is terminated, *Abort* restores everything.\nAfter that nothing leads back to {blue}: its brokers' own "
    "topics are terminated too, and a broker that restarts serves no topic."
)
REPOINTED = (
    "After you approve: messages are copied, and *wait_repointed* waits until the owners of the applications have "
    "connected them to {green}: consumers first, all of a subscription together, then producers. A subscription gets "
    "again what it acknowledged on {blue} since the last poll, at most 5 s before it left. Then {blue} refuses "
    "producers; until that, *Abort* restores everything that no application on {green} uses."
)
MOVED = (
    "After you approve: messages are copied and compared, both clusters replicate to each other, and the connection "
    "document leads the applications to {green}, where each subscription goes on where it was. {blue} goes on: "
    "until the move is completed *return_clients* leads the applications back, and then *Abort* restores everything."
)
COMPLETED = (
    "After you approve: *wait_repointed* waits until nobody is connected to {blue}. Then {blue} refuses producers, and "
    "{green} replicates to it no more: **from then on no application can go back** (return_clients). Positions on "
    "{green} stay as they are; a subscription that {green} lacks is created there. Until that, *Abort* restores "
    "everything."
)
COMPLETED_AND_REDIRECTED = (
    "After you approve: {green} replicates to {blue} no more, and {blue} redirects to {green} who is there still, with "
    "a publish pause of some seconds. **From then on no application can go back** (return_clients). A subscription "
    "that is read on {blue} only goes on where it is; what it has not read then, it may get on both clusters. Until "
    "that, *Abort* restores everything."
)
_WORDS = {
    Strategy.REDIRECT: "Redirect",
    Strategy.REPLICATE: "Copy, then redirect",
    Strategy.WHOLE_CLUSTER: "Copy, then redirect the whole cluster,",
    Strategy.REPOINT: "Copy, then let the owners of the applications change their service URL,",
    Strategy.MOVE_CLIENTS: "Copy, then move the applications by their connection document,",
    Strategy.COMPLETE: "Complete the move of applications that are on the new cluster already,",
    Strategy.COMPLETE_AND_REDIRECT: (
        "Complete the move of applications that are on the new cluster already, and redirect the others,"
    ),
}
_MOST = 50


def wave_members(
    namespaces: Iterable[NamespaceFacts], moves: Iterable[Move], findings: Iterable[Finding]
) -> list[Member]:
    """The members to plan waves with; a finding counts for the namespace of its resource."""
    by_name = {move.namespace: move for move in moves}
    counts: dict[NamespaceName, int] = {}
    for finding in findings:
        name = namespace_of(finding)
        if name is not None:
            counts[name] = counts.get(name, 0) + 1
    return [_member(facts, by_name[facts.namespace], counts.get(facts.namespace, 0)) for facts in namespaces]


def namespace_of(finding: Finding) -> NamespaceName | None:
    """The namespace of a finding's resource; None for a resource of the cluster."""
    text = finding.resource.split(" ")[0]
    if "://" in text:
        return TopicName.parse(text).namespace if text.startswith(("persistent", "non-persistent")) else None
    return NamespaceName.parse(text) if text.count("/") == 1 else None


def plan_markdown(plan: WavePlan, blue: str, green: str) -> str:
    """Every wave with its counts, and every namespace with its strategy and the reason for it."""
    rows = [
        f"| {wave.number}{' (canary)' if wave.is_canary else ''} | {len(wave.members)} | {wave.total('topics'):,} "
        f"| {wave.total('producers'):,} | {wave.total('consumers'):,} | {wave.total('backlog'):,} "
        f"| {wave.total('warnings')} |"
        for wave in plan.waves
    ]
    total = sum(len(wave.members) for wave in plan.waves)
    parts = [
        f"## {counted(total, 'namespace')} from {blue} to {green} in {counted(len(plan.waves), 'wave')}",
        "| wave | namespaces | topics | producers | consumers | unread entries | warnings |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n" + "\n".join(rows),
        *(_members_table(wave) for wave in plan.waves),
    ]
    return "\n\n".join(parts) + "\n"


def approval_markdown(
    plan: WavePlan,
    wave: Wave,
    clusters: tuple[str, str],
    findings: Sequence[Finding] = (),
    *,
    gates: int,
    transfers: str = "",
    sentences: Sequence[str] = (),
    redirect: Sequence[str] = (),
) -> str:
    """What a person reads before a wave: its size, its gates, its risks, and what is not reversible.

    :param clusters: names of blue and green.
    :param findings: of this run; the text shows those of the wave's namespaces and of the clusters.
    :param gates: number of gates that were evaluated.
    :param transfers: what the cut-over will do to its subscriptions, in Markdown.
    :param sentences: the age of the last verification, the expected drain and the expected proof.
    :param redirect: the addresses to which clients of blue are redirected.
    """
    shown = [finding for finding in findings if (name := namespace_of(finding)) is None or name in wave.namespaces]
    strategies = sorted({_WORDS[member.strategy] for member in wave.members})
    warnings = sum(finding.severity is Severity.WARNING for finding in shown)
    waived = len(shown) - warnings
    passed = f"All {gates} gates hold" if not waived else f"{counted(waived, 'blocker')} waived; the other gates hold"
    lines = [
        f"**Wave {wave.number} of {len(plan.waves)}{' (canary)' if wave.is_canary else ''}: "
        f"{counted(len(wave.members), 'namespace')}, {counted(wave.total('topics'), 'topic')}, "
        f"{counted(wave.total('producers'), 'producer')}, {counted(wave.total('consumers'), 'consumer')}.** "
        f"{' and '.join(strategies)} from {clusters[0]} to {clusters[1]}.",
        *sentences,
        f"{passed}, {counted(warnings, 'warning')}.",
        *_after_approval(wave, *clusters, redirect),
        *wave.notes,
    ]
    prediction = f"**If it were cut over now:**\n\n{transfers}" if transfers else ""
    parts = ("\n".join(lines), _members_table(wave), prediction, findings_markdown(shown))
    return "\n\n".join(part for part in parts if part) + "\n"


def _after_approval(wave: Wave, blue: str, green: str, redirect: Sequence[str]) -> Iterable[str]:
    strategies = {member.strategy for member in wave.members}
    if redirect and any(strategy.redirects for strategy in strategies):
        yield f"Clients are redirected to {', '.join(redirect)}."
    if any(strategy.redirects and not strategy.is_moved_before for strategy in strategies):
        whole = Strategy.WHOLE_CLUSTER in strategies
        yield WHOLE_CLUSTER.format(blue=blue) if whole else REVERSIBLE
    if Strategy.REPOINT in strategies:
        yield REPOINTED.format(blue=blue, green=green)
    if Strategy.MOVE_CLIENTS in strategies:
        yield MOVED.format(blue=blue, green=green)
    if Strategy.COMPLETE in strategies:
        yield COMPLETED.format(blue=blue, green=green)
    if Strategy.COMPLETE_AND_REDIRECT in strategies:
        yield COMPLETED_AND_REDIRECTED.format(blue=blue, green=green)


def _member(facts: NamespaceFacts, move: Move, warnings: int) -> Member:
    return Member(
        namespace=facts.namespace,
        strategy=move.strategy,
        reason=move.reason,
        topics=len(move.topics),
        partitions=len(move.partitions),
        producers=move.producers,
        consumers=move.consumers,
        backlog=sum(sum(clients.backlog.values()) for clients in move.partitions.values()),
        warnings=warnings,
        links=frozenset(_links(facts)),
        drain_seconds=drain_seconds(facts.partitions, move.strategy),
        stored_bytes=move.stored_bytes,
    )


def _links(facts: NamespaceFacts) -> Iterable[str]:
    """Client objects by connection, applications by name, host and version, clusters by replication."""
    for _, client in facts.clients:
        if client.address:
            yield f"connection {client.address}"
        if client.name:
            yield f"{client.role} {client.name} on {client.address.rpartition(':')[0]} {client.version}"
    for partition in facts.partitions:
        yield from (f"replication to {cluster}" for cluster in partition.replication_connected)
        yield from (f"replication from {cluster}" for cluster in partition.inbound)


def _members_table(wave: Wave) -> str:
    rows = [
        f"| `{member.namespace}` | {member.topics:,} | {member.producers:,} | {member.consumers:,} "
        f"| {_WORDS[member.strategy]} | {member.reason} |"
        for member in wave.members[:_MOST]
    ]
    if len(wave.members) > _MOST:
        rows.append(f"| … and {len(wave.members) - _MOST} more | | | | | |")
    head = f"| wave {wave.number} | topics | producers | consumers | strategy | because |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *rows])
