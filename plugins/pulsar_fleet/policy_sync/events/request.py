"""The settings of a run of metadata events (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.ordering.updates import Order
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_fleet.policy_sync.merge.fields import is_synchronised
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity, TieBreak, shared_options
from pulsar_fleet.policy_sync.merge.view import Item, is_selected, tenant_and_namespace

EVENT_TOPIC = "persistent://pulsar-fleet/metadata/events"
SUBSCRIPTION = "metadata-syncer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The settings of a run or a follower.

    :param topics: also carry topic policies.
    :param partitioned_topics: also create and grow partitioned topics, with their properties and schemas.
    :param propagate_deletes: what happens to resources that were deleted on another cluster.
    :param allow: ids of deletions, or of batches of them, that may be applied.
    :param order: which change wins; all followers of a fleet must have the same.
    :param skew_seconds: allowed clock error in addition to the measured skew.
    :param write_provenance: write into each namespace's properties when and where it was last written.
    :param snapshot: publish every resource once, with its original time, before anything else.
    :param snapshot_minutes: interval of a follower's own snapshots; 0 for none.
    :param poll_seconds: how long a follower waits between two scans of its cluster.
    :param calls_per_second: rate limit of a scan, on each cluster; 0 for no limit.
    :param idle_seconds: after this time without an event a run ends, unless events still wait for a cluster.
    """

    selection: Selection = field(default_factory=Selection)
    event_topic: TopicName = field(default_factory=lambda: TopicName.parse(EVENT_TOPIC))
    topics: bool = True
    partitioned_topics: bool = True
    propagate_deletes: PropagateDeletes = PropagateDeletes.NEVER
    allow: frozenset[str] = frozenset()
    order: Order = field(default_factory=Order)
    skew_seconds: float = 2.0
    write_provenance: bool = False
    snapshot: bool = False
    snapshot_minutes: float = 60.0
    poll_seconds: float = 0.5
    calls_per_second: float = 0.0
    idle_seconds: float = 2.0

    @classmethod
    def of(cls, params: Mapping[str, Json]) -> Self:
        """Read the settings of a run; an invalid one is `InvalidRequest`."""
        topic = TopicName.parse(params["event_topic"])
        if not topic.persistent:
            raise InvalidRequest(f"The event topic {str(topic)!r} stores no messages: name a persistent:// topic.")
        return cls(
            selection=Selection.parse(params["selection"]),
            event_topic=topic,
            topics=params["topics"],
            partitioned_topics=params["partitioned_topics"],
            propagate_deletes=PropagateDeletes(params["propagate_deletes"]),
            allow=frozenset(params["allow_changes"]),
            order=Order(tie_break=TieBreak(params["tie_break"]), granularity=Granularity(params["granularity"])),
            skew_seconds=params["skew_seconds"],
            write_provenance=params["write_provenance"],
            snapshot=params["snapshot"],
            snapshot_minutes=params["snapshot_minutes"],
            poll_seconds=params["poll_seconds"],
            calls_per_second=params["calls_per_second"],
            idle_seconds=params["idle_seconds"],
        )

    @property
    def options(self) -> list[str]:
        """The options of a command line with these settings."""
        topics = {"topics": self.topics, "partitioned_topics": self.partitioned_topics}
        event_topic = ["--event-topic", str(self.event_topic)] if str(self.event_topic) != EVENT_TOPIC else []
        order = self.order
        return [*event_topic, *shared_options(self.selection, order.granularity, order.tie_break, **topics)]

    @property
    def dead_letters(self) -> TopicName:
        """The topic of dead-lettered events; each cluster has its own."""
        return TopicName(self.event_topic.namespace, f"{self.event_topic.local}-dead-letters")

    def includes(self, item: Item) -> bool:
        """Whether a resource is carried; the tenant and the namespace of the event topic never are."""
        tenant, namespace = tenant_and_namespace(item)
        own = self.event_topic.namespace
        if namespace == str(own) or (item[0] is Resource.TENANT and tenant == own.tenant):
            return False
        if item[0] is Resource.TOPIC and not (self.partitioned_topics and is_synchronised(TopicName.parse(item[1]))):
            return False
        return is_selected(item, self.selection) and (self.topics or item[0] is not Resource.TOPIC_POLICY)
