"""Reading the source from its shadow topics: the same stored entries, served by other brokers."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.ranges import TopicBounds
from pulsar_fleet.verification.bounds.continuation import Unprovable
from pulsar_fleet.verification.request import Pair


class ReadFrom(StrEnum):
    """Where the source's messages are read."""

    SERVING = "serving"
    """From the topics themselves."""
    SHADOW = "shadow"
    """From a shadow topic of each topic, which takes load off the brokers that applications use."""


async def read_from_shadow(source: AdminClient, pair: Pair) -> Pair:
    """The pair, with the source read from its first shadow topic; two calls. Creates nothing. **Loads the shadow.**

    :raises Unprovable: the topic has no shadow topic, or the shadow topic does not hold all compared entries.
    """
    topic = TopicName.parse(pair.topic)
    shadows = await source.get(f"/{topic.path}/shadowTopics")
    if not shadows:
        raise Unprovable(f"it has no shadow topic on {source.connection.name}; verify it with read_from 'serving'")
    shadow = TopicName.parse(shadows[0])
    stored = TopicBounds.whole(str(shadow), await source.internal_stats(shadow))
    bounds = pair.source
    if (
        bounds.first
        and bounds.last
        and not (stored.first and stored.last and stored.first <= bounds.first <= bounds.last <= stored.last)
    ):
        raise Unprovable(
            f"its shadow topic {shadow} holds {stored.first}–{stored.last}, and {bounds.first}–{bounds.last} is "
            f"compared; "
            "verify again, or with read_from 'serving'"
        )
    return replace(
        pair, source=replace(bounds, topic=str(shadow)), notes=(*pair.notes, f"read from its shadow topic {shadow}")
    )
