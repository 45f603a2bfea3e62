"""A source with its shadow topic, and the calls that create, link and take away the shadow topic (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import PARTITIONED_WITH_PROPERTIES, Call, bare, with_body
from pulsar_fleet.cluster.admin.shadow_guard import RETIRED_FROM
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Document):
    """A source and its shadow topic.

    :param linked: the shadow topics that the source had besides when the run was planned.
    :param links: whether this run links them; when it takes them away: whether they are linked.
    :param retires: when it takes them away: whether the shadow topic must lose the ledgers of its source first.
    :param stand_in: then: whether an empty topic is deleted too, which this run makes or an earlier one left.
    """

    source: TopicName
    shadow: TopicName
    partitions: int
    linked: tuple[str, ...] = ()
    links: bool = True
    retires: bool = True
    stand_in: bool = True

    @property
    def stored(self) -> Iterator[tuple[TopicName, TopicName]]:
        """What stores the messages: the partitions of both, or both topics themselves."""
        return zip(self.source.partitions(self.partitions), self.shadow.partitions(self.partitions), strict=True)

    def link_call(self) -> Call:
        """Link the shadow topic; the list holds the other shadow topics too, as they were planned."""
        return shadow_list_call(self.source, sorted({*self.linked, str(self.shadow)}))


def stand_in_of(shadow: TopicName) -> TopicName:
    """The empty topic whose ledgers a shadow topic shares instead of its source's, before it is deleted."""
    return TopicName(shadow.namespace, f"{shadow.local}-retired")


def topic_creation(topic: TopicName, partitions: int, properties: JsonObject) -> Call:
    """Create a topic with or without partitions, with properties."""
    if not partitions:
        return with_body("PUT", f"/{topic.path}", properties)
    return Call(
        "PUT",
        f"/{topic.path}/partitions",
        (("createLocalTopicOnly", "true"),),
        {"partitions": partitions, "properties": properties},
        has_body=True,
        content_type=PARTITIONED_WITH_PROPERTIES,
    )


def topic_deletion(topic: TopicName, partitions: int) -> Call:
    """Delete a topic with its partitions, if nobody uses it."""
    return bare("DELETE", f"/{topic.path}/partitions" if partitions else f"/{topic.path}")


def shadow_list_call(source: TopicName, shadows: Sequence[str]) -> Call:
    """Store the list of shadow topics of a source; an empty one is refused, so it is deleted."""
    path = f"/{source.path}/shadowTopics"
    return with_body("PUT", path, list(shadows)) if shadows else bare("DELETE", path)


def retirement_calls(pair: Pair) -> tuple[Call, ...]:
    """Let a shadow topic share the ledgers of an empty topic, so that its deletion deletes none of its source's.

    Unloading the empty topic gives it a new ledger, upon which the shadow topic drops all older ones. Its stored list
    is written when a property of the topic or partition is set (observed, 4.2.4).
    """
    shadow, stand_in = pair.shadow, stand_in_of(pair.shadow)
    follow = {SHADOW_SOURCE: str(stand_in), RETIRED_FROM: str(pair.source)}
    stored = shadow.partitions(pair.partitions)
    return (
        topic_creation(stand_in, pair.partitions, {}),
        *(bare("GET", f"/{topic.path}/stats") for topic in stand_in.partitions(pair.partitions)),
        with_body("PUT", f"/{shadow.path}/properties", follow),
        bare("PUT", f"/{shadow.path}/unload"),
        *(bare("GET", f"/{topic.path}/stats") for topic in stored),
        bare("PUT", f"/{stand_in.path}/unload"),
        *(bare("GET", f"/{topic.path}/stats") for topic in stand_in.partitions(pair.partitions)),
    )


def storing_calls(pair: Pair) -> tuple[Call, ...]:
    """Let the broker store the ledger lists of a retired shadow topic."""
    body, stored = {RETIRED_FROM: str(pair.source)}, pair.shadow.partitions(pair.partitions)
    return tuple(with_body("PUT", f"/{topic.path}/properties", body) for topic in stored)


def removal_calls(pair: Pair) -> tuple[Call, ...]:
    """Every call that takes a shadow topic away, in the only order that loses nothing."""
    return (
        shadow_list_call(pair.source, pair.linked),
        bare("PUT", f"/{pair.source.path}/unload"),
        *((*retirement_calls(pair), *storing_calls(pair)) if pair.retires else ()),
        topic_deletion(pair.shadow, pair.partitions),
        *((topic_deletion(stand_in_of(pair.shadow), pair.partitions),) if pair.stand_in else ()),
    )
