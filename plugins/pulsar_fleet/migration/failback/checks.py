"""Checks of a failback: what must hold before a namespace goes back from green to blue (pure).

`blue` is the cluster that namespaces go back to, `green` the one that they are on. Every check is evaluated, so that
one run reports all findings; the gates of a migration from green to blue come on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.rows import PROVEN
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.preflight.checks.policies import resumption
from pulsar_fleet.preflight.context import blocker
from pulsar_fleet.preflight.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftoverTopic:
    """A topic that the migration left on blue.

    :param terminated: every partition is: it never accepts messages again, it can only be removed and recreated.
    :param subscriptions: those that still exist: the broker removes a drained one.
    :param entries: stored entries, over all partitions.
    """

    topic: TopicName
    partitions: int
    terminated: bool
    subscriptions: tuple[str, ...]
    clients: tuple[str, ...]
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackNamespace:
    """One namespace of a failback.

    :param blue: policies there; None if it does not exist. `green` likewise.
    :param topics: on green → partition count.
    :param verdict: of the newest verification of its migration.
    :param other_runs: runs that have not ended and change it.
    :param replicated: partitions on green whose oldest entry was replicated from another cluster.
    :param left_green: whether green has terminated any of its topics; None if that could not be read.
    :param replicates_to: namespace or topic → the other clusters that its list on blue names.
    :param proven_by_migration: the verdict is that of a run which moved it, and of no other comparison.
    :param only_green: green's own name, alone.
    :param reopened: an earlier attempt of this run has reopened blue for it, and created what is there.
    """

    namespace: NamespaceName
    blue: JsonObject | None
    green: JsonObject | None
    strategy: Strategy
    topics: Mapping[TopicName, int]
    leftovers: tuple[LeftoverTopic, ...]
    verdict: str | None
    other_runs: tuple[str, ...] = ()
    replicated: tuple[TopicName, ...] = ()
    left_green: bool | None = False
    replicates_to: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    proven_by_migration: bool = True
    only_green: tuple[str, ...] = ()
    reopened: bool = False


Check = Callable[[FailbackNamespace], Iterator[Finding]]
EXCHANGED = "clusters-exchanged"


def check(
    namespaces: tuple[FailbackNamespace, ...],
    unhealthy: Mapping[str, str],
    *,
    allow_removal: bool,
    clusters: Mapping[str, str],
) -> tuple[Finding, ...]:
    """Every finding of every check.

    :param unhealthy: brokers of blue that fail their health check → their answer.
    :param allow_removal: the operator allows the removal of the terminated topics on blue.
    :param clusters: `blue` and `green` → the cluster's own name.
    """
    findings = [
        blocker(
            "blue-broker-unhealthy",
            f"broker {broker}",
            answer,
            "Clients would be redirected to a broker that cannot serve them.",
            "repair or restart it, then run again. Restart no broker of {blue} while a migrated namespace drains "
            "there.",
        )
        for broker, answer in unhealthy.items()
    ]
    for namespace in namespaces:
        if exchanged := [*check_direction(namespace)]:
            findings += exchanged
            continue
        findings += [finding for rule in CHECKS for finding in rule(namespace)]
        findings += [] if allow_removal else list(_removal(namespace, list(check_verified(namespace))))
    return tuple(finding.named(clusters) for finding in findings)


def check_direction(namespace: FailbackNamespace) -> Iterator[Finding]:
    """The namespace is on blue already: either the clusters are exchanged, or it has gone back before.

    Every other check is about a namespace that is on green, so it would explain nothing here.
    """
    flagged = [bool((document or {}).get("migrated")) for document in (namespace.blue, namespace.green)]
    terminated = any(leftover.terminated for leftover in namespace.leftovers)
    if namespace.blue is not None and flagged == [False, True] and namespace.left_green and not terminated:
        yield blocker(
            EXCHANGED,
            str(namespace.namespace),
            "{green} redirects it and has terminated topics of it; {blue} does neither",
            "Its applications are on {blue} already: nothing can go back there.",
            "if it is to go back to {green}, exchange the two clusters: {green} is then the first one, 'blue', and "
            "{blue} the second one, 'green'. If it has gone back to {blue} before, nothing is to do.",
        )


def check_migrated(namespace: FailbackNamespace) -> Iterator[Finding]:
    """Blue has the namespace and has terminated its topics: one that is not may have producers of its own.

    The gates check that green has it.
    """
    if namespace.blue is None:
        yield blocker(
            "namespace-missing",
            str(namespace.namespace),
            "does not exist on {blue}",
            "It cannot go back to a cluster that does not have it.",
            "correct 'namespaces' (--namespaces).",
        )
    for leftover in namespace.leftovers:
        if not leftover.terminated and not namespace.reopened:
            yield blocker(
                "open-on-blue",
                str(leftover.topic),
                "it is not terminated on {blue}",
                "It was never cut over, or is in use on {blue} again: its messages would mix with those from {green}.",
                "take the namespace out of 'namespaces' (--namespaces): applications may use this topic on {blue}. "
                "verify_clusters shows how the two clusters differ."
                if leftover.clients or leftover.subscriptions or leftover.entries
                else "if no application uses it on {blue}, delete it there: by its metadata it has no entries, "
                "subscriptions or "
                "clients. Its statistics confirm that.",
            )


def check_drained(namespace: FailbackNamespace) -> Iterator[Finding]:
    """A subscription on a terminated topic has a backlog there, or was not cleaned up."""
    for leftover in namespace.leftovers:
        if leftover.subscriptions and not namespace.reopened:
            yield blocker(
                "still-draining",
                str(leftover.topic),
                f"{len(leftover.subscriptions)} subscriptions on {{blue}}, for example {leftover.subscriptions[0]!r}",
                "Their backlog is on {blue} only, and would be removed with the terminated topic.",
                "let them drain, or finish the migration's clean-up, which removes what continues on {green}.",
            )


def check_clients(namespace: FailbackNamespace) -> Iterator[Finding]:
    """Clients that are still connected to blue are not on green."""
    for leftover in namespace.leftovers:
        if leftover.clients:
            yield blocker(
                "clients-on-blue",
                str(leftover.topic),
                f"{len(leftover.clients)} clients, for example {leftover.clients[0]}",
                "They have not followed the migration yet, or connected to {blue} by themselves.",
                "restart these applications; they are redirected to {green}."
                if namespace.blue and namespace.blue.get("migrated")
                else "stop these applications, or configure them with {green}: {blue} does not redirect this "
                "namespace, so a "
                "restart would lead them to {blue} again.",
            )


def check_green_flag(namespace: FailbackNamespace) -> Iterator[Finding]:
    """With both clusters flagged, each redirects its clients to the other until they time out.

    Where green has terminated topics, its clients were redirected already: without its flag they would hang.
    """
    if namespace.green and namespace.green.get("migrated"):
        left = namespace.left_green is not False
        yield blocker(
            "both-flagged",
            str(namespace.namespace),
            f"migrated = true on {{green}}; {'some' if namespace.left_green else 'none'} of its topics there are "
            "terminated"
            if namespace.left_green is not None
            else "migrated = true on {green}; its topics there could not be read",
            "Both clusters would redirect their clients to each other.",
            "leave the flag and take the namespace out of 'namespaces' (--namespaces): its clients have left {green} "
            "already."
            if left
            else "clear the flag on {green}: its topics there accept messages.",
            call="" if left else f"{{green}}: POST /admin/v2/namespaces/{namespace.namespace.path}/migration false",
        )


def check_verified(namespace: FailbackNamespace) -> Iterator[Finding]:
    """Without a verdict the terminated topics on blue may hold messages that green lacks."""
    if any(leftover.entries for leftover in namespace.leftovers) and namespace.verdict not in PROVEN:
        yield blocker(
            "no-proof",
            str(namespace.namespace),
            f"the verdict on its migration is {namespace.verdict!r}",
            "Terminated topics on {blue} are removed, and no verification shows that {green} has their messages.",
            "run verify_clusters for it; clear verify_messages of its migration where that failed.",
        )


def check_other_runs(namespace: FailbackNamespace) -> Iterator[Finding]:
    """Two runs would undo each other's steps."""
    for run in namespace.other_runs:
        yield blocker(
            "other-run",
            str(namespace.namespace),
            run,
            "That run has not ended: the two would undo each other's steps.",
            f"let it end. If its process has died, continue it: {resumption(run)}."
            if run.startswith("cli/")
            else "let it end. If it died, clear its task write_report; never while one of its tasks runs.",
        )


def check_history(namespace: FailbackNamespace) -> Iterator[Finding]:
    """A broker never replicates messages that were replicated to it."""
    if namespace.strategy is Strategy.REPLICATE:
        for topic in namespace.replicated:
            yield blocker(
                "history-cannot-return",
                str(topic),
                "its oldest entries were replicated to {green}",
                "Brokers do not replicate messages from another cluster: these would stay on {green}.",
                "let its subscriptions read them on {green}, then use strategy redirect: the history stays on {green} "
                "and can be read there.",
            )


def check_lists(namespace: FailbackNamespace) -> Iterator[Finding]:
    """A broker refuses to delete a topic that is replicated (422, observed), which a terminated one has to be."""
    if not any(leftover.terminated for leftover in namespace.leftovers):
        return
    for resource, clusters in namespace.replicates_to.items():
        path = TopicName.parse(resource).path if "://" in resource else f"namespaces/{namespace.namespace.path}"
        proven = clusters == namespace.only_green and namespace.verdict in PROVEN and namespace.proven_by_migration
        yield blocker(
            "replicated-from-blue",
            resource,
            f"its list on {{blue}} names {', '.join(clusters)} too",
            "Terminated topics are removed and recreated, and brokers refuse to remove a topic that is replicated.",
            "set the list to {blue} alone: {green} has every message of it, which the migration has proven. "
            "replicate_namespaces can set it up again when the namespace is back."
            if proven
            else "what these clusters lack of it cannot be read under the flag: let their owner compare them, and "
            "take them out of the list only when nothing is missing there.",
            call=f'{{blue}}: POST /admin/v2/{path}/replication ["{{blue}}"]' if proven else "",
        )


CHECKS: tuple[Check, ...] = (
    check_migrated,
    check_drained,
    check_clients,
    check_green_flag,
    check_verified,
    check_other_runs,
    check_history,
    check_lists,
)


def _removal(namespace: FailbackNamespace, unverified: list[Finding]) -> Iterator[Finding]:
    terminated = [leftover for leftover in namespace.leftovers if leftover.terminated]
    if terminated:
        entries = sum(leftover.entries for leftover in terminated)
        names = ", ".join(str(leftover.topic) for leftover in terminated[:3])
        yield blocker(
            "removal-not-allowed",
            str(namespace.namespace),
            f"{len(terminated)} terminated topics on {{blue}} with {entries:,} stored entries: {names}",
            "A terminated topic never accepts messages again: it must be removed and recreated.",
            f"{'first do what no-proof says, then ' if unverified else ''}set 'allow_removal' (--allow-removal).",
        )
