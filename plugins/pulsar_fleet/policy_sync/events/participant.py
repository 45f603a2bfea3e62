"""One participating cluster: its scans, and the stored versions of its resources (client)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.ledger.event_store import EventStore, StoredDocument
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event_topic import EventTopic
from pulsar_fleet.policy_sync.events.fleet import Members
from pulsar_fleet.policy_sync.events.ordering.reference_clock import ClockReader, ReferenceClock
from pulsar_fleet.policy_sync.events.request import SUBSCRIPTION, Request
from pulsar_fleet.policy_sync.events.results import Batch, Waiting
from pulsar_fleet.policy_sync.events.versions import (
    BEFORE_EVERYTHING,
    BEGAN,
    EXISTS,
    SCOPE,
    Bounds,
    ResourceVersions,
    StoredVersions,
    Version,
    key_of,
)
from pulsar_fleet.policy_sync.guards import unmeasured_brokers
from pulsar_fleet.policy_sync.merge.fields import SCHEMAS
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN
from pulsar_fleet.policy_sync.merge.scan import ClusterScan, list_topics, scan_cluster, scan_in_parts, scan_items
from pulsar_fleet.policy_sync.merge.view import Item, View, items_of, tenant_and_namespace

_BASE_SECONDS = 60.0
_MOST_SCHEMA_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTopicState:
    """The state of the event topic of a cluster.

    :param active: whether the cluster gives the events to this follower.
    :param backlog: events that are not acknowledged yet.
    :param unread: those of them that this follower did not postpone.
    :param unsent: cluster → events that wait here for its replication.
    """

    active: bool
    backlog: int
    unread: int
    unsent: Mapping[str, int]


@dataclass(kw_only=True)
class Participant:
    """One cluster with its event topic.

    :param scan_admin: makes the calls of full scans, with the requested rate limit.
    :param fleet: the names of all clusters that the event topic is replicated to.
    :param clusters: all clusters of this process, by name; more may join.
    :param behind: connection of this process → why its cluster did not answer yet.

    `scan_began` is when the last full scan of this process began, in ms since 1970 by the reference clock, and
    `unscanned` are the resources that were left out of it. `waiting` are the resources whose events are delivered again
    until they can be applied. `joins` is whether the cluster has not applied yet what the others have: it publishes
    nothing.
    """

    own: str
    admin: AdminClient
    scan_admin: AdminClient
    topic: EventTopic
    request: Request
    ledger: Ledger
    redactor: Redactor
    fleet: tuple[str, ...]
    clusters: Mapping[str, AdminClient]
    behind: Mapping[str, str]

    def __post_init__(self) -> None:
        self._store = EventStore(self.ledger, str(self.request.event_topic), self.own)
        self._base: ClusterScan | None = None
        self._being_applied: set[Item] = set()
        self._touched: set[Item] = set()
        self._clock_reader = ClockReader(
            own=self.own, admin=self.admin, clusters=self.clusters, allowed=self.request.skew_seconds
        )
        self.scan_began: int | None = None
        self.unscanned: frozenset[Item] = frozenset()
        self.waiting: dict[Item, Waiting] = {}
        self.members = Members(self.ledger, self.request.event_topic)
        self.joins = self.members.joins(self.own)

    @property
    def clock(self) -> ReferenceClock:
        """The reference clock as it was measured before the last scan."""
        if self.last_clock is None:
            raise RuntimeError("The clock is measured before the first scan.")
        return self.last_clock

    @property
    def last_clock(self) -> ReferenceClock | None:
        """The last measurement; None before the first scan."""
        return self._clock_reader.last

    async def measure_clock(self) -> ReferenceClock:
        """The reference clock; measured again after a minute."""
        return await self._clock_reader.read(self.fleet)

    @property
    def peers(self) -> list[AdminClient]:
        """The other clusters of this process, from which secrets are read."""
        return [admin for name, admin in self.clusters.items() if name != self.own]

    @contextmanager
    def applying(self, items: Collection[Item]) -> Iterator[None]:
        """Mark resources to which events are applied: a concurrent or earlier scan of them is not valid."""
        marked = set(items)
        self._being_applied |= marked
        self._touched |= marked
        try:
            yield
        finally:
            self._being_applied -= marked

    @property
    def touched(self) -> frozenset[Item]:
        """Resources to which events were applied since the last full scan began."""
        return frozenset(self._touched)

    @property
    def being_applied(self) -> frozenset[Item]:
        """Resources to which events are applied now."""
        return frozenset(self._being_applied)

    def wait(self, batch: Batch) -> None:
        """Take over which resources wait after a batch, and for what; each keeps the time since which it waits."""
        for item in batch.settled:
            self.waiting.pop(item, None)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        for item, why in batch.waiting.items():
            first = self.waiting.get(item)
            self.waiting[item] = Waiting(since=first.since if first else now, why=why)

    def begin_scan(self) -> None:
        """Reset `touched`; call it before the stored versions are loaded."""
        self._touched = set(self._being_applied)

    async def scan_cluster(self) -> AsyncGenerator[ClusterScan, None]:
        """Scan all selected resources in parts: see `scan_in_parts`."""
        base, request = self._fresh_base(), self.request
        parts = scan_in_parts(
            self.scan_admin,
            request.selection,
            self.redactor,
            topics=request.topics,
            partitioned=request.partitioned_topics,
            earlier=base,
        )
        async with aclosing(parts):
            async for part in parts:
                self._base = base or part
                yield part

    def unmeasured(self) -> list[str]:
        """What is not known of the brokers' versions; nothing before the first scan."""
        return list(unmeasured_brokers(self._base.snapshot)) if self._base else []

    async def scan_items(self, items: Collection[Item]) -> ClusterScan:
        """Scan some resources."""
        await self.measure_clock()
        base = self._fresh_base()
        if base is None:
            smallest = Selection(namespaces=frozenset({self.request.event_topic.namespace}))
            self._base = base = await scan_cluster(self.admin, smallest, self.redactor, topics=False)
        return await scan_items(self.admin, items, self.redactor, base)

    async def with_topics(self, observed: ClusterScan, namespaces: Iterable[str]) -> ClusterScan:
        """The scan with the topics of these namespaces."""
        return await list_topics(self.admin, observed, namespaces)

    def view(self, observed: ClusterScan) -> View:
        """A scan in fields that mean the same on every cluster."""
        return View(
            cluster=self.own,
            items=items_of(observed.snapshot, self.fleet),
            unread=observed.unread,
            topics=observed.topics,
            shadows=observed.shadows,
        )

    def stored_versions(self, items: Collection[Item] | None = None) -> StoredVersions:
        """The stored versions of these resources; None means all."""
        return StoredVersions(self._store.load(None if items is None else {SCOPE[1], *(name for _, name in items)}))

    def tenant_updates(self) -> dict[str, Version]:
        """Tenant → where and when it was last written, if that is known."""
        stored = self._store.load(kind=Resource.TENANT.value)
        newest = {name: ResourceVersions.from_json(row.document).newest for (_, name), row in stored.items()}
        return {name: last for name, last in newest.items() if last and last.update_time > BEFORE_EVERYTHING}

    def save(self, earlier: StoredVersions, versions: Mapping[Item, ResourceVersions]) -> bool:
        """Save versions; False, and nothing saved, if another process saved one of them since `earlier`."""
        rows = {key_of(item): entry.to_json() for item, entry in versions.items()}
        return self._store.save(
            {key: StoredDocument(earlier.write_count(key), document) for key, document in rows.items()}
        )

    def save_scope(self, earlier: StoredVersions, began: int | None) -> bool:
        """Save the scope of a full scan, and when it began; None if resources were left out of it."""
        document = {**self.scope(), BEGAN: began}
        return self._store.save({SCOPE: StoredDocument(earlier.write_count(SCOPE), document)})

    def scope(self) -> dict[str, Json]:
        """The scope of a full scan."""
        request = self.request
        topics = {"topics": request.topics, "partitioned_topics": request.partitioned_topics}
        return {"selection": list(request.selection.texts()), **topics}

    async def topic_state(self) -> EventTopicState:
        """Read the state of the event topic: one call."""
        topic = self.request.event_topic
        stats = TopicStats.of(topic, await self.admin.stats(topic))
        subscription = stats.subscriptions.get(SUBSCRIPTION)
        backlog = subscription.backlog if subscription else 0
        return EventTopicState(
            active=subscription is not None and subscription.active_consumer == self.topic.consumer_name,
            backlog=backlog,
            unread=max(0, backlog - self.topic.postponed),
            unsent={name: link.backlog for name, link in stats.links.items()},
        )

    def _fresh_base(self) -> ClusterScan | None:
        return self._base if self._base and time.time() - self._base.ended < _BASE_SECONDS else None


def field_values(view: View, item: Item) -> dict[str, Json]:
    """The fields of a resource, including `EXISTS`; empty if it does not exist.

    A schema history that is too large for a message of the event topic is left to reconciliation.
    """
    values = view.values(item)
    if values is None:
        return {}
    if len(json.dumps(values.get(SCHEMAS))) > _MOST_SCHEMA_BYTES:
        values = {name: value for name, value in values.items() if name != SCHEMAS}
    return dict(values) if item[0] is Resource.TOPIC_POLICY else {**values, EXISTS: True}


def write_times(observed: ClusterScan, item: Item, clock: ReferenceClock) -> dict[str, tuple[int, Bounds | None]]:
    """Field → when it was written, by the reference clock: only for topic policies, by their events."""
    events = observed.events.get(tenant_and_namespace(item)[1]) if item[0] is Resource.TOPIC_POLICY else None
    if events is None:
        return {}
    spans = events.spans(item[1], ClockSkew(0.0, 0.0), 0.0)
    return {name: clock.written(begin, end) for name, (begin, end) in spans.items() if begin != UNKNOWN}


@asynccontextmanager
async def open_participant(
    name: str, reached: Fleet, fleet: tuple[str, ...], request: Request, run: Run, redactor: Redactor
) -> AsyncIterator[Participant]:
    """One cluster with its event topic, which must exist.

    :raises Unavailable: the topic cannot be used now.
    """
    admin = reached.clusters[name]
    # Scans have a client of their own: the rate limit must not delay the events of other clusters.
    scan_admin = AdminClient(
        admin.connection, retry_seconds=admin.http.retry_seconds, calls_per_second=request.calls_per_second
    )
    async with scan_admin, EventTopic(admin.connection, request) as topic:
        yield Participant(
            own=name,
            admin=admin,
            scan_admin=scan_admin,
            topic=topic,
            request=request,
            ledger=run.ledger,
            redactor=redactor,
            fleet=fleet,
            clusters=reached.clusters,
            behind=reached.behind,
        )
