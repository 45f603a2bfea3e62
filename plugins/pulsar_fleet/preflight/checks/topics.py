"""Topics that prevent the target from becoming equal (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.names import SHADOW_SOURCE, TopicName, is_addressable
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.cluster.versions import HOLDS_SCALABLE_TOPICS
from pulsar_fleet.preflight.context import Pair, blocker, call_text, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, Snapshot, SubscriptionState


def partition_counts_match(pair: Pair) -> Iterator[Finding]:
    """Partition counts must be equal, and a topic must not be partitioned on one cluster only."""
    target_counts = {topic.name: topic.partitions for topic in pair.target.topics}
    for topic in pair.source.topics:
        if topic.name in target_counts and target_counts[topic.name] != topic.partitions:
            yield _shapes_differ(pair, TopicName.parse(topic.name), topic.partitions, target_counts[topic.name])


def _shapes_differ(pair: Pair, topic: TopicName, ours: int, theirs: int) -> Finding:
    if 0 in (ours, theirs):
        return blocker(
            "partitioned-on-one-side",
            str(topic),
            pair.values(_shape(ours), _shape(theirs)),
            "Replication between the two never starts, and clients that move get a topic of the other kind.",
            f"{_delete_empty(pair.target)} Else let the applications of one cluster use another name.",
            call=_statistics(pair.target, topic, theirs),
            values=(ours, theirs),
        )
    if ours > theirs:
        return warning(
            "partitions-grow",
            str(topic),
            pair.values(ours, theirs),
            "Replication of the additional partitions never starts; adding partitions moves keys to other partitions.",
            f"allow the plan's change that adds partitions on {pair.target.cluster}, while no consumer needs order.",
            values=(ours, theirs),
        )
    return blocker(
        "partitions-differ",
        str(topic),
        pair.values(ours, theirs),
        "Replication between the two never starts, and the order per key is lost for producers that move.",
        f"{_delete_empty(pair.target)} Else, if no consumer on {pair.source.cluster} needs the order of keys across "
        "this "
        f"change, add partitions there up to {theirs} and take the snapshots again: none can be removed.",
        call=_grow(pair.source, topic, theirs),
        values=(ours, theirs),
    )


def _grow(snapshot: Snapshot, topic: TopicName, count: int) -> str:
    return call_text(
        snapshot.cluster, with_body("POST", f"/{topic.path}/partitions", count, updateLocalTopicOnly="true")
    )


def system_topic_partitions_match(pair: Pair) -> Iterator[Finding]:
    """`__change_events` carries the global topic policies: brokers refuse to replicate a namespace where it differs.

    Its deletion is no remedy: brokers refuse it while they read it, and after an unload of the namespace they create it
    again with partitions or without (observed: 1 of 4 times with both partitions and without their metadata).
    """
    target_counts = _system_topics(pair.target)
    for name, ours in sorted(_system_topics(pair.source).items()):
        theirs = target_counts.get(name, ours)
        if ours != theirs:
            yield blocker(
                "system-topic-differs",
                name,
                pair.values(_shape(ours), _shape(theirs)),
                "Topic policies of this namespace are never replicated, and brokers refuse (409) to enable it.",
                "remove the namespace from the selection, or let its applications use a namespace with another name. "
                f"Do not delete the topic: it stores the policies of topics on {pair.target.cluster}.",
                values=(ours, theirs),
            )


def _system_topics(snapshot: Snapshot) -> dict[str, int]:
    return {state.name: int(state.detail["partitions"]) for state in snapshot.inventory if state.kind == SYSTEM_TOPIC}


def topic_names_do_not_clash(pair: Pair) -> Iterator[Finding]:
    """A broker treats `x-partition-0` as a partition of `x`, also if it was created as a topic of its own."""
    for side, other, _ in pair.sides():
        parents = {topic.name for topic in other.topics if topic.partitions}
        for topic in side.topics:
            name = TopicName.parse(topic.name)
            if topic.partitions or name.partition_index is None:
                continue
            clash = str(name.parent) in parents
            yield (blocker if clash else warning)(
                "named-like-a-partition",
                topic.name,
                f"a non-partitioned topic on {side.cluster}"
                + (f", {name.parent} is partitioned on {other.cluster}" * clash),
                "Brokers treat it as a partition of another topic; from 4.1 they refuse to create it.",
                f"let its applications use a topic with another name; then, {_delete_empty(side)}",
                call=_statistics(side, name, 0),
            )


def topic_names_are_accepted(pair: Pair) -> Iterator[Finding]:
    """A producer creates topics, on first use, whose names brokers refuse in a call that creates a topic (4.2.4).

    Names that end like a partition are reported by `topic_names_do_not_clash`.
    """
    existing = {topic.name for topic in pair.target.topics}
    for topic in pair.source.topics:
        name = TopicName.parse(topic.name)
        like_partition = name.partition_index is not None and not topic.partitions
        if topic.name not in existing and name.has_refused_name(topic.partitions) and not like_partition:
            yield warning(
                "topic-name-refused",
                topic.name,
                f"its name has -partition- in it, {_shape(topic.partitions)} on {pair.source.cluster}",
                f"Brokers of {pair.target.cluster} refuse the call that creates it: it is not copied, and neither are "
                "its schemas, policies and subscriptions.",
                "let its applications use a topic with another name before they move.",
            )


def topic_states_can_be_copied(pair: Pair) -> Iterator[Finding]:
    """Topics with a state that a copy does not transfer, and topics that are terminated on the target only."""
    target_topics = {topic.name: topic for topic in pair.target.topics}
    flagged = {side.cluster: _flagged(side) for side, _, _ in pair.sides()}
    for topic in pair.source.topics:
        other, namespace = target_topics.get(topic.name), str(TopicName.parse(topic.name).namespace)
        # The flag has terminated it: another check reports that its clients are on the other cluster.
        if topic.terminated and namespace in flagged[pair.source.cluster]:
            continue
        if topic.terminated and not (other and other.terminated):
            yield warning(
                "topic-terminated",
                topic.name,
                f"terminated on {pair.source.cluster}",
                f"On {pair.target.cluster} it is not terminated, so producers could write to it.",
                f"terminate it on {pair.target.cluster} after its messages are copied, and only if no application "
                "writes to "
                "it there: a termination cannot be undone.",
                call=_statistics(pair.target, TopicName.parse(topic.name), topic.partitions),
            )
        elif other and other.terminated and not topic.terminated:
            yield blocker(
                "topic-terminated-on-target",
                topic.name,
                f"terminated on {pair.target.cluster}, not on {pair.source.cluster}",
                "Neither clients nor replication can write to it there.",
                f"keep it: the namespace was moved away from {pair.target.cluster}, and unread messages may be there "
                "only. "
                "fail_back_namespaces verifies and recreates its topics."
                if namespace in flagged[pair.target.cluster]
                else _delete_empty(pair.target),
                call=_statistics(pair.target, TopicName.parse(topic.name), other.partitions),
            )
        if SHADOW_SOURCE in topic.properties:
            yield warning(
                "shadow-topic",
                topic.name,
                f"shadow of {topic.properties[SHADOW_SOURCE]}",
                "It is left out: a shadow shares the ledgers of a topic of its own cluster.",
                "nothing, if the target does not need it.",
            )


def scalable_topics_are_not_copied(pair: Pair) -> Iterator[Finding]:
    """Scalable topics of the source by namespace; no list of ordinary topics has them."""
    names: dict[str, list[str]] = {}
    offered = HOLDS_SCALABLE_TOPICS.holds(pair.target.oldest_version())
    others = f"scalable topics of {pair.target.cluster}" if offered else "ordinary topics"
    for item in pair.source.scalable_topics:
        names.setdefault(item.namespace, []).append(item.name)
    for namespace, inside in sorted(names.items()):
        yield warning(
            "scalable-topics-not-copied",
            namespace,
            f"{counted(len(inside), 'scalable topic')} on {pair.source.cluster}: {listed(inside)}",
            f"They are neither copied nor compared, and replication leaves them out: {pair.target.cluster} gets "
            "neither the topics nor their messages.",
            f"let their applications read what is left on {pair.source.cluster}, and use {others} when they move.",
        )


def subscription_names_can_be_addressed(pair: Pair) -> Iterator[Finding]:
    """A call about a subscription called `.` or `..` would change its topic, so no such call is made."""
    names = {(row.topic, row.name) for row in pair.source.subscriptions if not is_addressable(row.name)}
    for topic, name in sorted(names):
        yield warning(
            "subscription-not-addressable",
            f"{topic} {name}",
            f"its name is {name!r}",
            "It cannot be created over HTTP: it is not copied, and its consumers would start at their own position.",
            f"let its application use another subscription name on {pair.source.cluster}, or let it subscribe on "
            f"{pair.target.cluster} from the earliest message before it moves.",
        )


def replicated_flags_match(pair: Pair) -> Iterator[Finding]:
    """A subscription that both clusters have has one replicated flag; where partitions differ, each is reported."""
    target_flags = {(row.partition, row.name): row.replicated for row in pair.target.subscriptions}
    cursors: dict[tuple[str, str], list[SubscriptionState]] = {}
    for row in pair.source.subscriptions:
        cursors.setdefault((row.topic, row.name), []).append(row)
    for (topic, name), rows in cursors.items():
        differing = [
            row for row in rows if target_flags.get((row.partition, row.name), row.replicated) != row.replicated
        ]
        alike = len(differing) == len(rows) and len({row.replicated for row in rows}) == 1
        for row in differing[:1] if alike else differing:
            place = topic if alike else row.partition
            values = (row.replicated, not row.replicated)
            path = f"{TopicName.parse(place).subscription_path(name)}/replicatedSubscriptionStatus"
            yield warning(
                "replicated-flag-differs",
                f"{place} {name}",
                pair.values(*values),
                "Its acknowledgements are replicated in one direction at most.",
                f"set the flag of {pair.source.cluster} on {pair.target.cluster}.",
                call=call_text(pair.target.cluster, with_body("POST", path, row.replicated)),
                values=values,
            )


def _delete_empty(snapshot: Snapshot) -> str:
    """When a topic may be deleted; its statistics are read then, because a snapshot does not count messages."""
    return (
        f"if its statistics on {snapshot.cluster} show no client, no subscription and storageSize 0, of each partition "
        "where it has some, delete it there without force; otherwise a deletion destroys messages."
    )


def _statistics(snapshot: Snapshot, topic: TopicName, partitions: int) -> str:
    """Of each partition: the sum leaves out a partition that cannot be loaded."""
    if not partitions:
        return call_text(snapshot.cluster, bare("GET", f"/{topic.path}/stats"))
    return call_text(snapshot.cluster, bare("GET", f"/{topic.path}/partitioned-stats", perPartition="true"))


def _flagged(snapshot: Snapshot) -> set[str]:
    return {state.name for state in snapshot.namespaces if state.policies.get("migrated")}


def _shape(partitions: int) -> str:
    return f"{partitions} partitions" if partitions else "not partitioned"
