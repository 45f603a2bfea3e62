"""The plan of the waves, and the text that a person approves, in Markdown (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.model import Move, Strategy
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.migration.waves.planner import Member, Wave, WavePlan
from pulsar_fleet.preflight.findings import Finding, Severity, findings_markdown

REVERSIBLE = (
    "After you approve: writes pause for about 3 s per namespace. Until the first topic is closed, *Stop* undoes "
    "everything.\nAfter that, going back is a second migration and needs application restarts."
)
_WORDS = {Strategy.REDIRECT: "Redirect", Strategy.REPLICATE: "Copy, then redirect"}
_MOST = 50


def members(facts: Iterable[NamespaceFacts], moves: Iterable[Move], findings: Iterable[Finding]) -> list[Member]:
    """The namespaces as the waves see them; a finding counts for each namespace in which its resource lies."""
    by_name = {move.namespace: move for move in moves}
    noted: dict[NamespaceName, int] = {}
    for finding in findings:
        name = namespace_of(finding)
        if name is not None:
            noted[name] = noted.get(name, 0) + 1
    return [_member(one, by_name[one.namespace], noted.get(one.namespace, 0)) for one in facts]


def namespace_of(finding: Finding) -> NamespaceName | None:
    """The namespace in which a finding's resource lies; None for what belongs to a cluster."""
    text = finding.resource.split(" ")[0]
    if "://" in text:
        return TopicName.parse(text).namespace if text.startswith(("persistent", "non-persistent")) else None
    return NamespaceName.parse(text) if text.count("/") == 1 else None


def plan_markdown(plan: WavePlan, blue: str, green: str) -> str:
    """Every wave with its counts, and every namespace with its strategy and the reason."""
    rows = [
        f"| {wave.number}{' (canary)' if wave.is_canary else ''} | {len(wave.members)} | {wave.total('topics'):,} "
        f"| {wave.total('producers'):,} | {wave.total('consumers'):,} | {wave.total('backlog'):,} "
        f"| {wave.total('warnings')} |"
        for wave in plan.waves
    ]
    total = sum(len(wave.members) for wave in plan.waves)
    parts = [
        f"## {total} namespaces from {blue} to {green} in {len(plan.waves)} waves",
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
    placements: str = "",
    said: Sequence[str] = (),
) -> str:
    """What a person reads before a wave: how large, what holds, what is risky, what cannot be taken back.

    :param clusters: names of blue and green.
    :param findings: of this run; those of the wave's namespaces and of the clusters are shown.
    :param gates: how many gates were evaluated.
    :param placements: what the switch will do to its subscriptions, in Markdown.
    :param said: further sentences, such as how old the last proof is and how long the drain is expected to take.
    """
    mine = [one for one in findings if (name := namespace_of(one)) is None or name in wave.namespaces]
    strategies = sorted({_WORDS[one.strategy] for one in wave.members})
    warnings = sum(one.severity is Severity.WARNING for one in mine)
    waived = len(mine) - warnings
    held = f"All {gates} gates hold" if not waived else f"{waived} blockers are waived; the other gates hold"
    lines = [
        f"**Wave {wave.number} of {len(plan.waves)}{' (canary)' if wave.is_canary else ''}: "
        f"{_counted(len(wave.members), 'namespace')}, {_counted(wave.total('topics'), 'topic')}, "
        f"{_counted(wave.total('producers'), 'producer')}, {_counted(wave.total('consumers'), 'consumer')}.** "
        f"{' and '.join(strategies)} from {clusters[0]} to {clusters[1]}.",
        *said,
        f"{held}, {_counted(warnings, 'warning')}.",
        REVERSIBLE,
        *wave.notes,
    ]
    told = f"**If it were switched now:**\n\n{placements}" if placements else ""
    parts = ("\n".join(lines), _members_table(wave), told, findings_markdown(mine))
    return "\n\n".join(part for part in parts if part) + "\n"


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
    )


def _links(facts: NamespaceFacts) -> Iterable[str]:
    """A client object by its connection, an application by its name on a host, a cluster by its replication."""
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
        f"| `{one.namespace}` | {one.topics:,} | {one.producers:,} | {one.consumers:,} | {_WORDS[one.strategy]} "
        f"| {one.reason} |"
        for one in wave.members[:_MOST]
    ]
    if len(wave.members) > _MOST:
        rows.append(f"| … and {len(wave.members) - _MOST} more | | | | | |")
    head = f"| wave {wave.number} | topics | producers | consumers | strategy | because |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *rows])


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
