"""Interlocks of the way back: what must hold before anything of a migration is turned round (pure).

`blue` is the cluster that namespaces return to, `green` the one that they are on. All of them are evaluated, so that
one run tells everything; the gates of a migration from green to blue come on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.cleanup import PROVEN
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.preflight.context import blocker
from pulsar_fleet.preflight.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A topic that the migration left on blue.

    :param closed: every partition is terminated: it can never be written to again, only removed and made anew.
    :param subscriptions: those that are still there: a drained one is removed by the broker.
    :param entries: stored ones, over all partitions.
    """

    topic: TopicName
    partitions: int
    closed: bool
    subscriptions: tuple[str, ...]
    clients: tuple[str, ...]
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """One namespace on its way back.

    :param blue: policies there; None if it does not exist. `green` likewise.
    :param topics: on green → partition count.
    :param verdict: of the newest proof of its migration.
    :param rivals: runs that have not ended and touch it.
    :param copied: partitions on green whose oldest entry came from another cluster by replication.
    :param reopened: an earlier try of this run has opened blue for it: what is there is ours.
    """

    namespace: NamespaceName
    blue: JsonObject | None
    green: JsonObject | None
    strategy: Strategy
    topics: Mapping[TopicName, int]
    stale: tuple[Stale, ...]
    verdict: str | None
    rivals: tuple[str, ...] = ()
    copied: tuple[TopicName, ...] = ()
    reopened: bool = False


Interlock = Callable[[Returning], Iterator[Finding]]


def check(
    returning: tuple[Returning, ...], unhealthy: Mapping[str, str], *, allow_removal: bool
) -> tuple[Finding, ...]:
    """Every finding of every interlock.

    :param unhealthy: brokers of blue that are not well → what they said.
    :param allow_removal: the operator lets the closed topics on blue be removed.
    """
    found = [
        blocker(
            "blue-broker-unhealthy",
            f"broker {broker}",
            said,
            "Clients would be sent to a broker that cannot serve them.",
            "heal or restart it, then run again.",
        )
        for broker, said in unhealthy.items()
    ]
    for one in returning:
        found += [finding for interlock in INTERLOCKS for finding in interlock(one)]
        found += [] if allow_removal else list(_removal(one))
    return tuple(found)


def it_was_migrated(one: Returning) -> Iterator[Finding]:
    """Blue has it and has handed it over: a topic that is open there may have writers of its own.

    That green has it is told by the gates.
    """
    if one.blue is None:
        yield blocker(
            "namespace-missing",
            str(one.namespace),
            "not on blue",
            "There is nowhere to return it to.",
            "correct 'namespaces' in the run's configuration.",
        )
    for stale in one.stale:
        if not stale.closed and not one.reopened:
            yield blocker(
                "open-on-blue",
                str(stale.topic),
                "it is not closed on blue",
                "It was never handed over, or is in use on blue again: its messages would mix with those that return.",
                "if nothing needs it, delete it on blue; else verify_clusters tells how the two differ.",
            )


def nothing_drains(one: Returning) -> Iterator[Finding]:
    """A subscription that is left on a closed topic has something to read there, or was not cleaned up."""
    for stale in one.stale:
        if stale.subscriptions and not one.reopened:
            yield blocker(
                "still-draining",
                str(stale.topic),
                f"{len(stale.subscriptions)} subscriptions on blue, {stale.subscriptions[0]!r} among them",
                "What they have not read is on blue alone, and would be removed with the closed topic.",
                "let them drain, or finish the migration's clean-up, which removes what continues on green.",
            )


def nobody_is_on_blue(one: Returning) -> Iterator[Finding]:
    """Clients that are still on blue have not arrived on green."""
    for stale in one.stale:
        if stale.clients:
            yield blocker(
                "clients-on-blue",
                str(stale.topic),
                f"{len(stale.clients)} clients, {stale.clients[0]} among them",
                "They have not followed the migration yet, or came to blue by themselves.",
                "restart these applications; they are redirected to green.",
            )


def green_is_not_flagged(one: Returning) -> Iterator[Finding]:
    """With both sides flagged clients are sent back and forth until they time out."""
    if one.green and one.green.get("migrated"):
        yield blocker(
            "both-flagged",
            str(one.namespace),
            "migrated = true on green",
            "Clients would be sent back and forth.",
            f"clear it: POST {{false}} to /admin/v2/namespaces/{one.namespace}/migration on green.",
        )


def it_was_proven(one: Returning) -> Iterator[Finding]:
    """Without a verdict the closed topics on blue may hold what green never got."""
    if any(stale.entries for stale in one.stale) and one.verdict not in PROVEN:
        yield blocker(
            "never-proven",
            str(one.namespace),
            f"the verdict on its migration is {one.verdict!r}",
            "Closed topics on blue are removed, and nobody has proven that green has what they hold.",
            "run verify_clusters for it; clear verify_messages of its migration where that failed.",
        )


def no_other_run_moves_it(one: Returning) -> Iterator[Finding]:
    """Two runs would undo each other's steps."""
    for rival in one.rivals:
        yield blocker(
            "other-run",
            str(one.namespace),
            rival,
            "That run has not ended: the two would undo each other's steps.",
            "let it end; if it died, clear its task write_report.",
        )


def history_can_return(one: Returning) -> Iterator[Finding]:
    """A broker never replicates what came to it by replication."""
    if one.strategy is Strategy.REPLICATE:
        for topic in one.copied:
            yield blocker(
                "history-cannot-return",
                str(topic),
                "its oldest entries came to green by replication",
                "Brokers do not send on what they got from another cluster: these messages would stay on green.",
                "let its subscriptions read them on green, and return it with strategy redirect: the history stays on "
                "green and can be read there.",
            )


INTERLOCKS: tuple[Interlock, ...] = (
    it_was_migrated,
    nothing_drains,
    nobody_is_on_blue,
    green_is_not_flagged,
    it_was_proven,
    no_other_run_moves_it,
    history_can_return,
)


def _removal(one: Returning) -> Iterator[Finding]:
    closed = [stale for stale in one.stale if stale.closed]
    if closed:
        entries = sum(stale.entries for stale in closed)
        names = ", ".join(str(stale.topic) for stale in closed[:3])
        yield blocker(
            "removal-not-allowed",
            str(one.namespace),
            f"{len(closed)} closed topics on blue with {entries:,} stored entries: {names}",
            "A closed topic never takes messages again: it has to be removed and made anew.",
            "set 'allow_removal' in the run's configuration.",
        )
