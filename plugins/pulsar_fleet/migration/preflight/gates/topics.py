"""What the topics on blue hold and do that a redirect does not carry (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import SubscriptionStats, TopicStats
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, first_of, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.preflight.findings import Finding

_TRANSACTIONS = blocks(
    "transactions-in-use",
    Owner.APPLICATION,
    "A client's next transaction would hide every later message of green's topic from its consumers.",
)
_NON_PERSISTENT = warns(
    "non-persistent-topic",
    Owner.APPLICATION,
    "Messages in flight at the switch are lost, as on any reconnect.",
)
_DELAYED = warns(
    "delayed-messages",
    Owner.APPLICATION,
    "They stay on blue until their time has come, and the drain does not end before that, unless they are copied.",
)
_ABANDONED = blocks(
    "abandoned-subscription",
    Owner.APPLICATION,
    "Nobody reads it, so it never drains on blue, and its backlog does not move by itself.",
    milder="a warning with replicate_then_switch, which carries it over",
)
_DISCONNECTED = blocks(
    "replicator-disconnected",
    Owner.BLUE,
    "While messages wait to be replicated blue lets no producer in and sends none away: writers hang until it is done.",
)
_BACKLOG = warns(
    "replication-backlog",
    Owner.BLUE,
    "Writers are held up at the switch until these entries are replicated.",
)
_COPIED = blocks(
    "copied-and-redirected",
    Owner.RUN,
    "Consumers get each message twice: as a copy on green, and on blue before they are redirected.",
)
_INBOUND = blocks(
    "replicates-into-blue",
    Owner.BLUE,
    "That cluster goes on writing to a topic that blue has closed; what becomes of its messages was never tried.",
)
_RUNS = warns(
    "functions-in-namespace",
    Owner.APPLICATION,
    "They are not carried: they go on running beside blue, and end with it.",
)


def no_transactions_are_used(view: View) -> Iterator[Finding]:
    """By all three counters of a topic: a committed transaction is one of an application that makes them."""
    for partition in _partitions(view):
        if partition.transactions:
            yield _TRANSACTIONS.found(
                str(partition.topic),
                f"{partition.transactions} transactions ongoing, committed or aborted since it was loaded",
                "stop the transactional applications for the switch and start them against green.",
            )


def messages_in_flight_can_be_lost(view: View) -> Iterator[Finding]:
    """Non-persistent topics keep nothing."""
    for facts in view.moving:
        for topic in facts.topics:
            if not topic.persistent:
                yield _NON_PERSISTENT.found(
                    str(topic), "not persistent", "stop its producers for the switch if that matters."
                )


def delayed_messages_are_told(view: View) -> Iterator[Finding]:
    """Messages whose time has not come, by namespace."""
    for facts in view.moving:
        held = [(one, sub) for one in facts.partitions for sub in one.subscriptions.values() if sub.delayed]
        if held:
            first, sub = held[0]
            yield _DELAYED.found(
                str(facts.namespace),
                f"{sum(one.delayed for _, one in held):,} delayed messages in {len(held)} subscriptions, first "
                f"{sub.name!r} of {first.topic}",
                "let the run copy the namespace first (replicate_then_switch), or wait until they are delivered.",
            )


def subscriptions_are_read(view: View) -> Iterator[Finding]:
    """One without consumers that holds a backlog; with the time when it was last read, as far as blue knows."""
    for facts in view.moving:
        for (topic, name), holding in _idle(facts).items():
            entries = sum(sub.backlog for sub in holding)
            seen = max(sub.last_used for sub in holding)
            carried = view.replicates(facts.namespace)
            yield _ABANDONED.found(
                f"{topic} {name}",
                f"{entries:,} unread entries and no consumer; last read {_when(seen)}",
                "nothing: it is carried over to where it is."
                if carried
                else "let its owner read it, delete it, or move the namespace with replicate_then_switch.",
                mild=carried,
            )


def replicators_are_connected(view: View) -> Iterator[Finding]:
    """Every cluster in a topic's list must have a link: absence is failure, whatever the statistics leave out."""
    for facts in view.moving:
        broken: dict[str, list[TopicStats]] = {}
        for partition in facts.partitions:
            wanted = facts.links.get(partition.topic.parent, frozenset())
            for cluster in wanted | set(partition.replication_connected):
                if not partition.replication_connected.get(cluster):
                    broken.setdefault(cluster, []).append(partition)
        for cluster, partitions in sorted(broken.items()):
            waiting = sum(one.replication_backlog.get(cluster, 0) for one in partitions)
            yield _DISCONNECTED.found(
                str(facts.namespace),
                f"no link to {cluster} from {len(partitions)} partitions, first {partitions[0].topic}; "
                f"{waiting:,} entries wait",
                f"repair the replication to {cluster}, or take {cluster} out of the namespace's list.",
            )
        yield from _waiting(facts)


def _waiting(facts: NamespaceFacts) -> Iterator[Finding]:
    waiting: dict[str, int] = {}
    for partition in facts.partitions:
        for cluster, entries in partition.replication_backlog.items():
            if entries and partition.replication_connected.get(cluster):
                waiting[cluster] = waiting.get(cluster, 0) + entries
    for cluster, entries in sorted(waiting.items()):
        yield _BACKLOG.found(
            str(facts.namespace),
            f"{entries:,} entries wait to be replicated to {cluster}",
            "wait until it is near 0, or accept the longer pause.",
        )


def nobody_replicates_into_blue(view: View) -> Iterator[Finding]:
    """Another cluster's link into a topic that moves."""
    for facts in view.moving:
        inbound: dict[str, TopicStats] = {}
        for partition in facts.partitions:
            for cluster in sorted(partition.inbound):
                inbound.setdefault(cluster, partition)
        for cluster, first in inbound.items():
            yield _INBOUND.found(
                str(facts.namespace),
                f"{cluster} replicates into {view.blue.name}, first into {first.topic}",
                f"let {cluster} replicate to {view.green.name} instead, or end its replication before the switch.",
            )


def nothing_is_copied_and_redirected(view: View) -> Iterator[Finding]:
    """What blue replicates to green has to be moved by the strategy that places the subscriptions behind the copies."""
    for facts in view.moving:
        copied = [topic for topic, clusters in facts.links.items() if view.green.name in clusters]
        if copied and not view.replicates(facts.namespace):
            yield _COPIED.found(
                str(facts.namespace),
                f"{view.blue.name} replicates {len(copied)} of its topics to {view.green.name}, {copied[0]} among them",
                "move the namespace with replicate_then_switch.",
            )


def functions_are_told(view: View) -> Iterator[Finding]:
    """Functions, sources and sinks by namespace."""
    for facts in view.moving:
        if facts.runs:
            yield _RUNS.found(
                str(facts.namespace),
                f"{first_of(facts.runs)} on {view.blue.name}",
                f"create them on {view.green.name} and stop them on {view.blue.name} around the switch.",
            )


def _idle(facts: NamespaceFacts) -> Mapping[tuple[TopicName, str], list[SubscriptionStats]]:
    """Topic and subscription → it in each partition where nobody reads it."""
    found: dict[tuple[TopicName, str], list[SubscriptionStats]] = {}
    for partition in facts.partitions:
        for sub in partition.subscriptions.values():
            if sub.is_idle:
                found.setdefault((partition.topic.parent, sub.name), []).append(sub)
    return found


def _when(milliseconds: int) -> str:
    if not milliseconds:
        return "not since its topic was loaded"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _partitions(view: View) -> Iterator[TopicStats]:
    return (partition for facts in view.moving for partition in facts.partitions)
