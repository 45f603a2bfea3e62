"""The plan of the waves and the approval text of a wave, in Markdown (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.migration.model import Move, Strategy
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.migration.waves.approval_facts import drain_seconds
from pulsar_fleet.migration.waves.planner import Member, Wave, WavePlan
from pulsar_fleet.preflight.findings import Finding, Severity, findings_markdown

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
_WORDS = {
    Strategy.REDIRECT: "Redirect",
    Strategy.REPLICATE: "Copy, then redirect",
    Strategy.WHOLE_CLUSTER: "Copy, then redirect the whole cluster,",
    Strategy.REPOINT: "Copy, then let the owners of the applications change their service URL,",
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
    if any(strategy.redirects for strategy in strategies):
        if redirect:
            yield f"Clients are redirected to {', '.join(redirect)}."
        whole = Strategy.WHOLE_CLUSTER in strategies
        yield WHOLE_CLUSTER.format(blue=blue) if whole else REVERSIBLE
    if Strategy.REPOINT in strategies:
        yield REPOINTED.format(blue=blue, green=green)


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
