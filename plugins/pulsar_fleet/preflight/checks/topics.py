"""Topics that stand in the way of an equal target (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.planning.changes.topics import SHADOW_SOURCE
from pulsar_fleet.preflight.context import Pair, blocker, call_text, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, Snapshot, TopicState


def topics_have_the_same_shape(pair: Pair) -> Iterator[Finding]:
    """Partition counts must agree, and a name must not be a plain topic here and a partitioned one there."""
    held = {topic.name: topic.partitions for topic in pair.target.topics}
    for topic in pair.source.topics:
        if topic.name in held and held[topic.name] != topic.partitions:
            yield _shapes_differ(pair, TopicName.parse(topic.name), topic.partitions, held[topic.name])


def _shapes_differ(pair: Pair, topic: TopicName, ours: int, theirs: int) -> Finding:
    if 0 in (ours, theirs):
        path = f"/{topic.path}/partitions" if theirs else f"/{topic.path}"
        return blocker(
            "partitioned-on-one-side",
            str(topic),
            pair.values(_shape(ours), _shape(theirs)),
            "Replication between the two never starts, and clients that move find another kind of topic.",
            f"delete the one on {pair.target.cluster} if it holds nothing, or give one another name.",
            call=call_text(pair.target.cluster, bare("DELETE", path)),
            values=(ours, theirs),
        )
    if ours > theirs:
        return warning(
            "partitions-grow",
            str(topic),
            pair.values(ours, theirs),
            "Replication of the new partitions would never start as it is; growing moves keys to other partitions.",
            f"allow the plan's change that grows {pair.target.cluster}, while no ordered consumer runs there.",
            call=_grow(pair.target, topic, ours),
            values=(ours, theirs),
        )
    return blocker(
        "partitions-differ",
        str(topic),
        pair.values(ours, theirs),
        "Replication between the two never starts, and producers that move would lose the order of keys.",
        f"grow {pair.source.cluster} to {theirs} and take the snapshots again: none can be removed.",
        call=_grow(pair.source, topic, theirs),
        values=(ours, theirs),
    )


def _grow(snapshot: Snapshot, topic: TopicName, count: int) -> str:
    return call_text(
        snapshot.cluster, with_body("POST", f"/{topic.path}/partitions", count, updateLocalTopicOnly="true")
    )


def system_topics_have_the_same_shape(pair: Pair) -> Iterator[Finding]:
    """`__change_events` carries the global topic policies: brokers refuse to replicate a namespace where it differs."""
    held = _system_topics(pair.target)
    for name, ours in sorted(_system_topics(pair.source).items()):
        theirs = held.get(name, ours)
        if ours != theirs:
            topic = TopicName.parse(name)
            path = f"/{topic.path}/partitions" if theirs else f"/{topic.path}"
            yield blocker(
                "system-topic-differs",
                name,
                pair.values(_shape(ours), _shape(theirs)),
                "Topic policies of this namespace are never replicated, and brokers answer 409 when asked to start it.",
                f"delete it on {pair.target.cluster} if none of its topics has a policy; the broker makes a new one.",
                call=call_text(pair.target.cluster, bare("DELETE", path, force="true")),
                values=(ours, theirs),
            )


def _system_topics(snapshot: Snapshot) -> dict[str, int]:
    return {one.name: int(one.detail["partitions"]) for one in snapshot.inventory if one.kind == SYSTEM_TOPIC}


def names_do_not_clash(pair: Pair) -> Iterator[Finding]:
    """`x-partition-0` is a partition of `x` to a broker, whatever else it was meant to be."""
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
                f"a single topic on {side.cluster}" + (f", {name.parent} is partitioned on {other.cluster}" * clash),
                "Brokers take it for a partition of another topic; from 4.1 they refuse to create it.",
                f"move its clients to another name on {side.cluster} and delete it.",
                call=call_text(side.cluster, bare("DELETE", f"/{name.path}")),
            )


def states_can_be_carried(pair: Pair) -> Iterator[Finding]:
    """Topics whose state a copy does not carry, and those that are further on the target."""
    held = {topic.name: topic for topic in pair.target.topics}
    for topic in pair.source.topics:
        other = held.get(topic.name)
        if topic.terminated and not (other and other.terminated):
            yield warning(
                "topic-terminated",
                topic.name,
                f"terminated on {pair.source.cluster}",
                f"On {pair.target.cluster} it is open, so producers could write to it.",
                "terminate it there after its messages were copied.",
                call=_terminate(pair.target, topic),
            )
        elif other and other.terminated and not topic.terminated:
            yield blocker(
                "topic-terminated-on-target",
                topic.name,
                f"terminated on {pair.target.cluster}, open on {pair.source.cluster}",
                "Nothing can be written to it there any more, neither by clients nor by replication.",
                f"delete it on {pair.target.cluster} if its messages are no longer needed.",
                call=call_text(pair.target.cluster, bare("DELETE", f"/{TopicName.parse(topic.name).path}")),
            )
        if SHADOW_SOURCE in topic.properties:
            yield warning(
                "shadow-topic",
                topic.name,
                f"shadow of {topic.properties[SHADOW_SOURCE]}",
                "It is left out: a shadow shares the ledgers of a topic of its own cluster.",
                "nothing, if it need not be served there.",
            )


def subscriptions_are_marked_alike(pair: Pair) -> Iterator[Finding]:
    """The replicated flag of a subscription that both have is left as it is by the copy."""
    held = {(one.topic, one.name): one.replicated for one in pair.target.subscriptions}
    told: set[tuple[str, str]] = set()
    for one in pair.source.subscriptions:
        key = (one.topic, one.name)
        if key in told or held.get(key, one.replicated) == one.replicated:
            continue
        told.add(key)
        topic = TopicName.parse(one.topic)
        flag = with_body("POST", f"{topic.subscription_path(one.name)}/replicatedSubscriptionStatus", one.replicated)
        yield warning(
            "replicated-flag-differs",
            f"{one.topic} {one.name}",
            pair.values(one.replicated, held[key]),
            "Its acknowledgements travel in one direction at most.",
            f"set the flag on {pair.target.cluster} as on {pair.source.cluster}.",
            call=call_text(pair.target.cluster, flag),
            values=(one.replicated, held[key]),
        )


def _terminate(snapshot: Snapshot, topic: TopicState) -> str:
    path = f"/{TopicName.parse(topic.name).path}/terminate" + ("/partitions" if topic.partitions else "")
    return call_text(snapshot.cluster, bare("POST", path))


def _shape(partitions: int) -> str:
    return f"{partitions} partitions" if partitions else "not partitioned"
