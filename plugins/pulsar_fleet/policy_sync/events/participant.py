"""One participating cluster: its scans, and the stored versions of its resources (client)."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.event_store import EventStore, Key, StoredDocument
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event_topic import EventTopic
from pulsar_fleet.policy_sync.events.request import SUBSCRIPTION, Request
from pulsar_fleet.policy_sync.events.versions import EXISTS, ResourceVersions
from pulsar_fleet.policy_sync.fleet import Fleet
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN
from pulsar_fleet.policy_sync.merge.scan import ClusterScan, list_topics, scan_cluster, scan_in_parts, scan_items
from pulsar_fleet.policy_sync.merge.view import Item, View, items_of, tenant_and_namespace

_BASE_SECONDS = 60.0
_SCOPE = ("scan", "")


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The versions of resources in the ledger, loaded for a later save with optimistic locking."""

    documents: Mapping[Key, StoredDocument]

    def of(self, item: Item) -> ResourceVersions | None:
        """The versions of one resource; None if it was never scanned."""
        stored = self.documents.get(_plain(item))
        return ResourceVersions.from_json(stored.document) if stored else None

    def items(self) -> set[Item]:
        """Every resource that was ever scanned."""
        return {(Resource(kind), name) for kind, name in self.documents if (kind, name) != _SCOPE}

    def write_count(self, key: Key) -> int:
        """How often a document was written."""
        return self.documents[key].version if key in self.documents else 0

    def covers(self, scope: Mapping[str, Json]) -> bool:
        """Whether the last full scan had this scope, so that a resource without versions did not exist then."""
        stored = self.documents.get(_SCOPE)
        return stored is not None and stored.document == dict(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTopicState:
    """The state of the event topic of a cluster.

    :param active: whether the cluster gives the events to this follower.
    :param backlog: events that are not acknowledged yet.
    :param unsent: cluster → events that wait here for its replication.
    """

    active: bool
    backlog: int
    unsent: Mapping[str, int]


@dataclass(kw_only=True)
class Participant:
    """One cluster with its event topic.

    :param scan_admin: makes the calls of full scans, with the requested rate limit.
    :param fleet: the names of all clusters that the event topic is replicated to.
    :param clusters: all clusters of this process, by name; more may join.
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

    def __post_init__(self) -> None:
        self._store = EventStore(self.ledger, str(self.request.event_topic), self.own)
        self._base: ClusterScan | None = None
        self._being_applied: set[Item] = set()
        self._touched: set[Item] = set()

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

    def begin_scan(self) -> None:
        """Reset `touched`; call it before the stored versions are loaded."""
        self._touched = set(self._being_applied)

    async def scan_cluster(self) -> AsyncGenerator[ClusterScan, None]:
        """Scan all selected resources in parts: see `scan_in_parts`."""
        base, request = self._fresh_base(), self.request
        parts = scan_in_parts(self.scan_admin, request.selection, self.redactor, topics=request.topics, earlier=base)
        async with aclosing(parts):
            async for part in parts:
                self._base = base or part
                yield part

    async def scan_items(self, items: Collection[Item]) -> ClusterScan:
        """Scan some resources."""
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
        )

    def stored_versions(self, items: Collection[Item] | None = None) -> StoredVersions:
        """The stored versions of these resources; None means all."""
        return StoredVersions(self._store.load(None if items is None else {_SCOPE[1], *(name for _, name in items)}))

    def save(self, earlier: StoredVersions, versions: Mapping[Item, ResourceVersions]) -> bool:
        """Save versions; False, and nothing saved, if another process saved one of them since `earlier`."""
        rows = {_plain(item): entry.to_json() for item, entry in versions.items()}
        return self._store.save(
            {key: StoredDocument(earlier.write_count(key), document) for key, document in rows.items()}
        )

    def save_scope(self, earlier: StoredVersions) -> bool:
        """Save the scope of a full scan."""
        return self._store.save({_SCOPE: StoredDocument(earlier.write_count(_SCOPE), self.scope())})

    def scope(self) -> dict[str, Json]:
        """The scope of a full scan."""
        return {"selection": list(self.request.selection.texts()), "topics": self.request.topics}

    async def topic_state(self) -> EventTopicState:
        """Read the state of the event topic: one call."""
        topic = self.request.event_topic
        stats = TopicStats.of(topic, await self.admin.stats(topic))
        subscription = stats.subscriptions.get(SUBSCRIPTION)
        return EventTopicState(
            active=subscription is not None and subscription.active_consumer == self.topic.consumer_name,
            backlog=subscription.backlog if subscription else 0,
            unsent={name: link.backlog for name, link in stats.links.items()},
        )

    def _fresh_base(self) -> ClusterScan | None:
        return self._base if self._base and time.time() - self._base.ended < _BASE_SECONDS else None


def field_values(view: View, item: Item) -> dict[str, Json]:
    """The fields of a resource, including `EXISTS`; empty if it does not exist."""
    values = view.values(item)
    if values is None:
        return {}
    return dict(values) if item[0] is Resource.TOPIC_POLICY else {**values, EXISTS: True}


def write_times(observed: ClusterScan, item: Item) -> dict[str, int]:
    """Field → when it was written, in ms since 1970 by our clock: only for topic policies, by their events."""
    events = observed.events.get(tenant_and_namespace(item)[1]) if item[0] is Resource.TOPIC_POLICY else None
    if events is None:
        return {}
    spans = events.spans(item[1], observed.clock, 0.0)
    return {name: int((begin + end) * 500) for name, (begin, end) in spans.items() if begin != UNKNOWN}


def _plain(item: Item) -> Key:
    return item[0].value, item[1]


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
        )
