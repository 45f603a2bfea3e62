"""One cluster that takes part: how it is looked at, and what is known of its resources (client)."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.event_store import Kept, MarkStore
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event_topic import EventTopic
from pulsar_fleet.policy_sync.events.request import SUBSCRIPTION, Request
from pulsar_fleet.policy_sync.events.versions import EXISTS, Known
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN
from pulsar_fleet.policy_sync.merge.scan import Observed, look, look_at, look_for_topics, look_in_parts
from pulsar_fleet.policy_sync.merge.view import Item, View, items_of, place

_BASE_SECONDS = 60.0
_SCOPE = ("look", "")


@dataclass(frozen=True, slots=True)
class Ledgered:
    """What the ledger knew of resources when it was read, to be kept again by who was faster."""

    kept: Mapping[tuple[str, str], Kept]

    def known(self, item: Item) -> Known | None:
        """Of one resource; None if it was never looked at."""
        found = self.kept.get(_plain(item))
        return Known.from_json(found.document) if found else None

    def items(self) -> set[Item]:
        """Every resource that was ever looked at."""
        return {(Resource(kind), name) for kind, name in self.kept if (kind, name) != _SCOPE}

    def version(self, key: tuple[str, str]) -> int:
        """How often a document was written."""
        return self.kept[key].version if key in self.kept else 0

    def covers(self, scope: Mapping[str, Json]) -> bool:
        """Whether the last whole look meant the same, so that what it did not show was not there."""
        found = self.kept.get(_SCOPE)
        return found is not None and found.document == dict(scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the event topic of a cluster stands.

    :param active: the events come to us, not to another follower.
    :param backlog: events that nobody has acknowledged.
    :param unsent: cluster → events that wait here for it.
    """

    active: bool
    backlog: int
    unsent: Mapping[str, int]


@dataclass(kw_only=True)
class Site:
    """One cluster with its event topic.

    :param looker: makes the calls of whole looks, at the rate that was asked for.
    :param fleet: the names of all clusters that the event topic is replicated to.
    :param clusters: all clusters of this process, by name; more may join.
    """

    own: str
    admin: AdminClient
    looker: AdminClient
    topic: EventTopic
    request: Request
    ledger: Ledger
    seal: Redactor
    fleet: tuple[str, ...]
    clusters: Mapping[str, AdminClient]

    def __post_init__(self) -> None:
        self._store = MarkStore(self.ledger, str(self.request.event_topic), self.own)
        self._base: Observed | None = None
        self._in_hand: set[Item] = set()
        self._touched: set[Item] = set()

    @property
    def peers(self) -> list[AdminClient]:
        """The other clusters of this process, from which secrets are read."""
        return [admin for name, admin in self.clusters.items() if name != self.own]

    @contextmanager
    def in_hand(self, items: Collection[Item]) -> Iterator[None]:
        """Events are being applied to these resources: a look from before or meanwhile says nothing about them."""
        mine = set(items)
        self._in_hand |= mine
        self._touched |= mine
        try:
            yield
        finally:
            self._in_hand -= mine

    @property
    def touched(self) -> frozenset[Item]:
        """Resources to which events were applied since the last whole look began."""
        return frozenset(self._touched)

    @property
    def in_work(self) -> frozenset[Item]:
        """Resources to which events are being applied."""
        return frozenset(self._in_hand)

    def begin_look(self) -> None:
        """From now on count what is touched; to be called before what is known is read."""
        self._touched = set(self._in_hand)

    async def look(self) -> AsyncGenerator[Observed, None]:
        """Look at all that is meant, in parts: see `look_in_parts`."""
        base, request = self._fresh_base(), self.request
        parts = look_in_parts(self.looker, request.selection, self.seal, topics=request.topics, earlier=base)
        async with aclosing(parts):
            async for found in parts:
                self._base = base or found
                yield found

    async def look_at(self, items: Collection[Item]) -> Observed:
        """Look at some resources."""
        base = self._fresh_base()
        if base is None:
            nothing = Selection(namespaces=frozenset({self.request.event_topic.namespace}))
            self._base = base = await look(self.admin, nothing, self.seal, topics=False)
        return await look_at(self.admin, items, self.seal, base)

    async def with_topics(self, observed: Observed, namespaces: Iterable[str]) -> Observed:
        """The same, knowing the topics of some namespaces."""
        new = sorted(set(namespaces) - set(observed.topics))
        return await look_for_topics(self.admin, observed, new) if new else observed

    def view(self, observed: Observed) -> View:
        """What a look showed, in fields that mean the same on every cluster."""
        return View(
            cluster=self.own,
            items=items_of(observed.snapshot, self.fleet),
            unread=observed.unread,
            topics=observed.topics,
        )

    def remembered(self, items: Collection[Item] | None = None) -> Ledgered:
        """What is known of all resources, or of some."""
        return Ledgered(self._store.load(None if items is None else {_SCOPE[1], *(name for _, name in items)}))

    def keep(self, earlier: Ledgered, known: Mapping[Item, Known]) -> bool:
        """Keep what is known now; False, and nothing kept, if another process was faster."""
        rows = {_plain(item): one.to_json() for item, one in known.items()}
        return self._store.keep({key: Kept(earlier.version(key), document) for key, document in rows.items()})

    def keep_scope(self, earlier: Ledgered) -> bool:
        """Keep what a whole look meant."""
        return self._store.keep({_SCOPE: Kept(earlier.version(_SCOPE), self.scope())})

    def scope(self) -> dict[str, Json]:
        """What a whole look means."""
        return {"selection": list(self.request.selection.texts()), "topics": self.request.topics}

    async def standing(self) -> Standing:
        """How the event topic stands here."""
        topic = self.request.event_topic
        stats = TopicStats.of(topic, await self.admin.stats(topic))
        subscription = stats.subscriptions.get(SUBSCRIPTION)
        return Standing(
            active=subscription is not None and subscription.active_consumer == self.topic.consumer_name,
            backlog=subscription.backlog if subscription else 0,
            unsent={name: link.backlog for name, link in stats.links.items()},
        )

    def _fresh_base(self) -> Observed | None:
        return self._base if self._base and time.time() - self._base.ended < _BASE_SECONDS else None


def shown(view: View, item: Item) -> dict[str, Json]:
    """The fields of a resource as marks know them; nothing where it is not there."""
    values = view.values(item)
    if values is None:
        return {}
    return dict(values) if item[0] is Resource.TOPIC_POLICY else {**values, EXISTS: True}


def times(observed: Observed, item: Item) -> dict[str, int]:
    """Field → when it was written, in ms since 1970 by our clock: of topics' policies, whose events tell."""
    events = observed.events.get(place(item)[1]) if item[0] is Resource.TOPIC_POLICY else None
    if events is None:
        return {}
    spans = events.spans(item[1], observed.clock, 0.0)
    return {name: int((begin + end) * 500) for name, (begin, end) in spans.items() if begin != UNKNOWN}


def _plain(item: Item) -> tuple[str, str]:
    return item[0].value, item[1]
