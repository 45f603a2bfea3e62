"""State of the topics on blue that a redirect does not move (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import SubscriptionStats, TopicStats
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY

_TRANSACTIONS = blocks(
    "transactions-in-use",
    Owner.APPLICATION,
    "A client's next transaction would hide every later message of {green}'s topic from its consumers.",
)
_NON_PERSISTENT = warns(
    "non-persistent-topic",
    Owner.APPLICATION,
    "Messages in flight at the cut-over are lost, as on any reconnect.",
)
_DELAYED = warns(
    "delayed-messages",
    Owner.APPLICATION,
    "They stay on {blue} until their delivery time, and the drain does not end before that, unless they are copied.",
)
_ABANDONED = blocks(
    "abandoned-subscription",
    Owner.APPLICATION,
    "It has no consumer, so it does not drain on {blue}, and its backlog does not move.",
    milder="a warning with replicate_then_switch, which transfers it",
)
_ONE_WAY = blocks(
    "moved-topic-not-linked",
    Owner.RUN,
    "{green} may lack what {blue} has: applications could not go on there.",
    never_waived="what is on {blue} only ends with its topic.",
)
_READ_SINCE = warns(
    "read-on-blue-since",
    Owner.APPLICATION,
    "A client still comes by the old address: when the move is complete it gets nothing new on {blue}.",
)
_CREATED = warns(
    "subscription-missing-on-green",
    Owner.APPLICATION,
    "The run creates it on {green} where {blue} has it, and {green} keeps its messages until somebody reads them.",
)
_DISCONNECTED = blocks(
    "replicator-disconnected",
    Owner.BLUE,
    "While a replication backlog exists, {blue} accepts and redirects no producer: producers hang until it is sent.",
)
_BACKLOG = warns(
    "replication-backlog",
    Owner.BLUE,
    "Producers wait at the cut-over until these entries are replicated.",
)
_COPIED = blocks(
    "copied-and-redirected",
    Owner.RUN,
    "Consumers get each message twice: as a copy on {green}, and on {blue} before they are redirected.",
)
_UNCOPIED = blocks(
    "unread-not-copied",
    Owner.APPLICATION,
    "On {green} the subscription would continue behind them: its application would never get them.",
    never_waived="no cursor can point to messages that {green} does not have.",
)
_INBOUND = blocks(
    "replicates-into-blue",
    Owner.BLUE,
    "Its replicator follows the redirect; half a minute later {green} can refuse it without end, and its messages stay "
    "on that cluster.",
)
_PROPERTY = blocks(
    "migrated-property",
    Owner.APPLICATION,
    "It reads as the brokers' mark of a redirected topic: when such a topic is terminated, its clients are redirected.",
)
_RUNS = warns(
    "functions-in-namespace",
    Owner.APPLICATION,
    "They are not moved: they keep running on {blue} until {blue} stops.",
)


def no_transactions_are_used(view: View) -> Iterator[Finding]:
    """Checks all three counters of a topic: committed transactions show that an application uses transactions.

    They begin at 0 when the topic is loaded, and what transactions have written before is still stored.
    """
    for facts in view.moving:
        used = dict.fromkeys(facts.transacted, "transactions were used in it before it was loaded")
        for partition in facts.partitions:
            if count := partition.transactions:
                used[partition.topic] = f"{count} transactions ongoing, committed or aborted since it was loaded"
        for topic, value in sorted(used.items()):
            yield _TRANSACTIONS.finding(
                str(topic),
                value,
                "stop the transactional applications before the cut-over and start them against {green}.",
            )


def messages_in_flight_can_be_lost(view: View) -> Iterator[Finding]:
    """Non-persistent topics store nothing."""
    for facts in view.moving:
        for topic in facts.topics:
            if not topic.persistent:
                yield _NON_PERSISTENT.finding(
                    str(topic), "not persistent", "stop its producers before the cut-over if that matters."
                )


def delayed_messages_are_reported(view: View) -> Iterator[Finding]:
    """Delayed messages by namespace."""
    for facts in view.moving:
        delayed = [
            (partition.topic, subscription)
            for partition in facts.partitions
            for subscription in partition.subscriptions.values()
            if subscription.delayed
        ]
        if delayed:
            topic, first = delayed[0]
            yield _DELAYED.finding(
                str(facts.namespace),
                f"{sum(subscription.delayed for _, subscription in delayed):,} delayed messages in {len(delayed)} "
                f"subscriptions, first {first.name!r} of {topic}",
                "let the run copy the namespace first (replicate_then_switch), or wait until they are delivered.",
            )


def subscriptions_have_consumers(view: View) -> Iterator[Finding]:
    """Subscriptions with a backlog and without consumers, with the time of their last use, as far as blue knows."""
    for facts in view.moving:
        if view.is_moved_before(facts.namespace):
            yield from _read_since(view, facts)
            continue
        for (topic, name), subscriptions in _idle(facts).items():
            entries = sum(subscription.backlog for subscription in subscriptions)
            last_used = max(subscription.last_used for subscription in subscriptions)
            is_transferred = view.replicates(facts.namespace)
            yield _ABANDONED.finding(
                f"{topic} {name}",
                f"{entries:,} unread entries and no consumer; last read {_when(last_used)}",
                "nothing: it is transferred with its position."
                if is_transferred
                else "let a consumer read it, or move the namespace with replicate_then_switch; a failback of copied "
                "history has only the consumer. Delete it only if no application needs its messages.",
                mild=is_transferred,
            )


def _read_since(view: View, facts: NamespaceFacts) -> Iterator[Finding]:
    """Subscriptions that were read on blue after their applications had moved; without a document nobody knows when."""
    on_green = {(row.partition, row.name) for row in view.green.snapshot.subscriptions}
    for partition in facts.partitions:
        for name in sorted(name for name, one in partition.subscriptions.items() if one.durable):
            if (str(partition.topic), name) not in on_green:
                yield _CREATED.finding(
                    f"{partition.topic} {name}",
                    f"{view.green.name} has no such subscription",
                    f"nothing; but delete it on {view.blue.name} before if its application has unsubscribed on "
                    f"{view.green.name}.",
                )
        for name, subscription in sorted(partition.subscriptions.items()):
            if 0 < facts.led_since < subscription.last_used:
                yield _READ_SINCE.finding(
                    f"{partition.topic} {name}",
                    f"last read on {view.blue.name} {_when(subscription.last_used)}; {facts.led_to_green}",
                    f"find who reads it there, and start it with the address of {view.green.name}. Where others have "
                    "read it there, it gets again what it has read here since.",
                )


def replicators_are_connected(view: View) -> Iterator[Finding]:
    """Every cluster in a topic's list must have a connected replicator, also where the statistics leave it out."""
    for facts in view.moving:
        broken: dict[str, list[TopicStats]] = {}
        unlisted: dict[str, list[TopicStats]] = {}
        for partition in (stats for stats in facts.partitions if stats.exists):
            listed = facts.links.get(partition.topic.parent, frozenset())
            for cluster in listed | set(partition.replication_connected):
                if not partition.replication_connected.get(cluster):
                    (broken if cluster in listed else unlisted).setdefault(cluster, []).append(partition)
        for cluster, partitions in sorted(broken.items()):
            yield _DISCONNECTED.finding(
                str(facts.namespace),
                f"no link to {cluster} from {_described(partitions, cluster)}",
                f"repair the replication to {cluster}. Only if {cluster} needs none of these entries, take it out of "
                "the namespace's list, and leave all other clusters in it.",
            )
        for cluster, partitions in sorted(unlisted.items()):
            yield _DISCONNECTED.finding(
                str(facts.namespace),
                f"no link to {cluster}, which is in no list any more, from {_described(partitions, cluster)}",
                "store the namespace's list of clusters once more as it is: the broker then ends this replicator.",
            )
        yield from _waiting(facts)


def _described(partitions: Sequence[TopicStats], cluster: str) -> str:
    waiting = sum(stats.replication_backlog.get(cluster, 0) for stats in partitions)
    return f"{len(partitions)} partitions, first {partitions[0].topic}; {waiting:,} entries wait"


def _waiting(facts: NamespaceFacts) -> Iterator[Finding]:
    waiting: dict[str, int] = {}
    for partition in facts.partitions:
        for cluster, entries in partition.replication_backlog.items():
            if entries and partition.replication_connected.get(cluster):
                waiting[cluster] = waiting.get(cluster, 0) + entries
    for cluster, entries in sorted(waiting.items()):
        yield _BACKLOG.finding(
            str(facts.namespace),
            f"{entries:,} entries wait to be replicated to {cluster}",
            "wait until it is near 0, or accept the longer publish pause.",
        )


def no_cluster_replicates_into_blue(view: View) -> Iterator[Finding]:
    """Replication from another cluster into a topic that moves.

    Observed on 4.2.4: the replicator follows the redirect as a client does. When its first request to blue times out,
    after 30 s, it connects to green again, often by another connection of its pool, and green refuses the name of a
    producer that is still connected. The topic's messages stay in the other cluster's backlog.
    """
    for facts in view.moving:
        inbound: dict[str, str] = {}
        for partition in facts.partitions:
            # What green's applications write comes back: until the cut-over has ended that, or for good.
            comes_back = view.is_moved_before(facts.namespace) or not view.ends_blue(facts.namespace)
            returning = {view.green.name} if comes_back else set[str]()
            for cluster in sorted(partition.inbound - returning):
                inbound.setdefault(cluster, f"first into {partition.topic}")
        # A third cluster that is not connected now is still one that replicates.
        for cluster, namespaces in view.thirds.items():
            if (lists := namespaces.get(facts.namespace)) and lists.names(view.blue.name):
                inbound.setdefault(cluster, "by its list of clusters")
        for cluster, first in inbound.items():
            if not view.leads(cluster, facts.namespace):
                yield _INBOUND.finding(
                    str(facts.namespace),
                    f"{cluster} replicates into {view.blue.name}, {first}",
                    _inbound_remedy(view, facts, cluster),
                )


def _inbound_remedy(view: View, facts: NamespaceFacts, cluster: str) -> str:
    blue, green = view.blue.name, view.green.name
    sent = f"when {cluster}'s replication backlog to {blue} is 0"
    lingers = "Brokers may report the connection for another minute."
    if cluster == green and facts.led_to_blue:
        return f"first move the clients of {listed(facts.led_to_blue)} (move_clients): then a run completes that move."
    if cluster == green:
        return (
            f"Before the cut-over, {sent}, take {blue} out of the namespace's list on {cluster}, and leave all other "
            f"clusters in it. {lingers}"
        )
    copied = (
        f"move the namespace with redirect: a copy lacks what {blue} got from {cluster}, and is not cut over. Then "
        if view.replicates(facts.namespace) and not view.is_moved_before(facts.namespace)
        else ""
    )
    lists = view.thirds.get(cluster, {}).get(facts.namespace)
    if lists and lists.names(green):
        return (
            f"{cluster} replicates to {green} as well, so consumers would get its messages twice. Take {green} out of "
            f"the namespace's list on {cluster}, and leave all other clusters in it: the run puts it in the place of "
            f"{blue} at the cut-over."
        )
    led = f"the run holds that replication at the cut-over, and leads it to {green}. Where no run can reach {cluster}, "
    if lists or view.is_moved_before(facts.namespace):
        # The strategy prevents it, not a connection that the run lacks.
        led = ""
    return (
        f"{copied}{led and f'name a connection to {cluster} in third_clusters: {led}'}stop the namespace's producers "
        f"on {cluster}; {sent}, put {green} in the place of {blue} in the namespace's list on {cluster}, and leave all "
        f"other clusters in it. Start the producers after the cut-over. {lingers} If the producers cannot stop, waive "
        f"this, and right after the cut-over do on {cluster} what the runbook's page says about incoming replication."
    )


def moved_topics_are_linked(view: View) -> Iterator[Finding]:
    """Where applications are on green already, nothing is copied by the run: both clusters replicate to each other."""
    for facts in view.moving:
        if view.is_moved_before(facts.namespace):
            linked = {topic for topic, clusters in facts.links.items() if view.green.name in clusters}
            if missing := sorted(topic for topic in facts.topics if topic.persistent and topic not in linked):
                yield _ONE_WAY.finding(
                    str(facts.namespace),
                    f"{view.blue.name} does not replicate {listed(missing)} to {view.green.name}",
                    "replicate them in both directions first (replicate_namespaces), or choose the strategy auto where "
                    f"applications are on {view.blue.name}.",
                )


def replicated_namespaces_are_not_redirected(view: View) -> Iterator[Finding]:
    """A namespace that blue replicates to green needs the strategy that sets the cursors behind the copies."""
    for facts in view.moving:
        copied = [topic for topic, clusters in facts.links.items() if view.green.name in clusters]
        if copied and not view.replicates(facts.namespace):
            yield _COPIED.finding(
                str(facts.namespace),
                f"{view.blue.name} replicates {len(copied)} of its topics to {view.green.name}, first {copied[0]}",
                "move the namespace with replicate_then_switch.",
            )


def subscriptions_have_read_what_was_not_copied(view: View) -> Iterator[Finding]:
    """Replication that somebody set up began with the messages of that time, and green removes what nobody keeps there.

    What a consumer has not read it reads on blue before it is redirected; other subscriptions continue on green.
    """
    for facts in view.prepared:
        if not view.replicates(facts.namespace):
            continue
        redirected = view.redirects(facts.namespace)
        subscriptions = {stats.topic: stats.subscriptions for stats in facts.partitions}
        for topic, lacking in sorted(facts.uncopied.items(), key=lambda item: str(item[0])):
            for name, entries in sorted(lacking.unread.items()):
                if not (redirected and subscriptions[topic][name].consumers):
                    yield _UNCOPIED.finding(
                        f"{topic} {name}",
                        f"{entries:,} unread entries that {view.green.name} does not have: {view.blue.name} stored "
                        f"them before the oldest one that it has",
                        "let the application read them on {blue}, then run again. Delete the subscription only if no "
                        "application needs them.",
                    )


def no_topic_has_the_property_of_the_broker(view: View) -> Iterator[Finding]:
    """A property `migrated` that an application gave to a topic.

    Observed on 4.2.4: while the topic is not terminated the property has no effect, with or without a flag; it loads,
    accepts messages and is terminated as any other. If a user has terminated it, a broker that loads it again redirects
    its producers as soon as a redirect is stored, without any flag. The metadata of a partitioned topic has the
    property, its partitions do not. The copy of a topic never gets it (`planning/translation.py`).
    """
    moving = {str(facts.namespace): facts for facts in view.moving}
    for state in view.blue.snapshot.topics:
        topic = TopicName.parse(state.name)
        value = state.properties.get(MIGRATED_PROPERTY)
        if value is not None and not state.terminated and str(topic.namespace) in moving:
            yield _PROPERTY.finding(
                state.name,
                f"its own property {MIGRATED_PROPERTY} = {value}",
                "store that fact under another name, and remove this property.",
                call=f"{view.blue.name}: DELETE /admin/v2/{topic.path}/properties?key={MIGRATED_PROPERTY}",
            )


def functions_are_reported(view: View) -> Iterator[Finding]:
    """Functions, sources and sinks by namespace."""
    for facts in view.moving:
        if facts.functions:
            yield _RUNS.finding(
                str(facts.namespace),
                f"{listed(facts.functions)} on {view.blue.name}",
                f"create them on {view.green.name} and stop them on {view.blue.name} at the cut-over.",
            )


def _idle(facts: NamespaceFacts) -> Mapping[tuple[TopicName, str], list[SubscriptionStats]]:
    """Topic and subscription → its statistics in each partition where it has a backlog and no consumer."""
    idle: dict[tuple[TopicName, str], list[SubscriptionStats]] = {}
    for partition in facts.partitions:
        for sub in partition.subscriptions.values():
            if sub.is_idle:
                idle.setdefault((partition.topic.parent, sub.name), []).append(sub)
    return idle


def _when(milliseconds: int) -> str:
    if not milliseconds:
        return "not since its topic was loaded"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
