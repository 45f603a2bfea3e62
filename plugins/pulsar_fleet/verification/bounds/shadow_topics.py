"""Reading the source through its shadow topics: the same stored entries, by the brokers that serve the shadows."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.messages.ranges import TopicBounds
from pulsar_fleet.verification.bounds.topic_bounds import Unprovable
from pulsar_fleet.verification.request import Pair


class ReadFrom(StrEnum):
    """Where the source's messages are read."""

    SERVING = "serving"
    """From the topics themselves."""
    SHADOW = "shadow"
    """From a shadow topic of each, which spares the brokers that applications use."""


async def through_shadow(source: AdminClient, pair: Pair) -> Pair:
    """The pair, with the source read from its first shadow topic; two calls, loads the shadow. Nothing is created.

    :raises Unprovable: it has no shadow topic, or that does not hold all that is compared.
    """
    topic = TopicName.parse(pair.topic)
    shadows = await source.get(f"/{topic.path}/shadowTopics")
    if not shadows:
        raise Unprovable(f"it has no shadow topic on {source.connection.name}; verify it with read_from 'serving'")
    shadow = TopicName.parse(shadows[0])
    held = TopicBounds.whole(str(shadow), await source.internal_stats(shadow))
    wanted = pair.source
    if (
        wanted.first
        and wanted.last
        and not (held.first and held.last and held.first <= wanted.first <= wanted.last <= held.last)
    ):
        raise Unprovable(
            f"its shadow topic {shadow} holds {held.first}–{held.last}, and {wanted.first}–{wanted.last} is compared; "
            "verify again, or with read_from 'serving'"
        )
    return replace(
        pair, source=replace(wanted, topic=str(shadow)), notes=(*pair.notes, f"read from its shadow topic {shadow}")
    )
