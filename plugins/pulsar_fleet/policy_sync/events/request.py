"""What a run of metadata events was asked for (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.resolve import Order
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity
from pulsar_fleet.policy_sync.merge.view import Item, is_selected, place

EVENT_TOPIC = "persistent://pulsar-fleet/metadata/events"
SUBSCRIPTION = "metadata-syncer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for.

    :param topics: carry the policies of topics too.
    :param order: which change counts; all followers of a fleet must have the same.
    :param stamp: write into each namespace's properties who wrote it last, and when.
    :param snapshot: publish every resource once, with its original time, before anything else.
    :param snapshot_minutes: how often a follower does that by itself; 0 for never.
    :param poll_seconds: how long a follower waits between two looks at its cluster.
    :param calls_per_second: how many calls a look makes in a second at most, on each cluster; 0 for no bound.
    :param quiet_seconds: a run ends when no event came for so long.
    """

    selection: Selection = field(default_factory=Selection)
    event_topic: TopicName = field(default_factory=lambda: TopicName.parse(EVENT_TOPIC))
    topics: bool = True
    order: Order = field(default_factory=Order)
    stamp: bool = False
    snapshot: bool = False
    snapshot_minutes: float = 60.0
    poll_seconds: float = 0.5
    calls_per_second: float = 0.0
    quiet_seconds: float = 2.0

    @classmethod
    def of(cls, params: Mapping[str, Json]) -> Self:
        """Read the settings of a run; a wrong one is `InvalidRequest`."""
        topic = TopicName.parse(params["event_topic"])
        if not topic.persistent:
            raise InvalidRequest(f"The event topic {str(topic)!r} keeps no message: name it persistent://….")
        return cls(
            selection=Selection.parse(params["selection"]),
            event_topic=topic,
            topics=params["topics"],
            order=Order(tie_break=TieBreak(params["tie_break"]), granularity=Granularity(params["granularity"])),
            stamp=params["stamp"],
            snapshot=params["snapshot"],
            snapshot_minutes=params["snapshot_minutes"],
            poll_seconds=params["poll_seconds"],
            calls_per_second=params["calls_per_second"],
            quiet_seconds=params["quiet_seconds"],
        )

    @property
    def dead_letters(self) -> TopicName:
        """Where events go that could not be applied; each cluster has its own."""
        return TopicName(self.event_topic.namespace, f"{self.event_topic.local}-dead-letters")

    def means(self, item: Item) -> bool:
        """Whether a resource travels: where the events themselves are kept never does."""
        tenant, namespace = place(item)
        own = self.event_topic.namespace
        if namespace == str(own) or (item[0] is Resource.TENANT and tenant == own.tenant):
            return False
        return is_selected(item, self.selection) and (self.topics or item[0] is not Resource.TOPIC_POLICY)
