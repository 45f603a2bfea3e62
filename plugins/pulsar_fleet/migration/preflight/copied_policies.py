"""What a copy by geo-replication takes over and what not: policies, compaction, transactions, earlier copies."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import Note, PartialReads, Problem
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import Layer
from pulsar_fleet.cluster.policies.topic_policies import Scope, topic_comparable
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.links.partition_stats import internal_stats_documents
from pulsar_fleet.messages.clients.read import first_compacted
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.ranges import EARLIEST
from pulsar_fleet.messages.subscription_cursors import replicated_up_to, subscription_cursors
from pulsar_fleet.migration.facts import CompactedView, NamespaceFacts, Uncopied, compacted_view
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.target_limits import Effective
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.verification.bounds.compaction import compacted_entries
from pulsar_fleet.verification.bounds.topic_bounds import Unprovable

_SEARCHED = 1_000
_LOOKED_AT = 64
"""Entries that may have come from other clusters, or be markers: the replicator to green sends neither."""


async def read_uncopied(
    blue: AdminClient, green: AdminClient, linked: Sequence[TopicStats]
) -> tuple[dict[TopicName, Uncopied], tuple[Note, ...]]:
    """What green lacks, by partition, and a note for each partition that could not be read.

    Loads the topics on green. Calls for each partition: three where green begins with blue's first entry; else more of
    green's entries, 32 at once and 1,000 at most, and up to 64 of blue's.

    :param linked: the partitions that blue replicated to green before the run.
    """
    attempts = PartialReads()
    found = await asyncio.gather(*(attempts.read(str(stats.topic), _uncopied(blue, green, stats)) for stats in linked))
    lacking = {stats.topic: one for stats, one in zip(linked, found, strict=True) if one and one.entries}
    return lacking, tuple(attempts.take_notes())


async def _uncopied(blue: AdminClient, green: AdminClient, stats: TopicStats) -> Uncopied:
    names = await blue.cluster_name(), await green.cluster_name()
    internal = await blue.internal_stats(stats.topic)
    entries = Ledgers.of(internal)
    cursors = subscription_cursors(entries, stats, internal)
    begin = await _begin(blue, green, stats.topic, entries, names)
    confirmed = replicated_up_to(entries, internal, names[1])
    # What the replicator has not sent yet will come, unless it has no cursor: then it begins with the next message.
    begin = min(begin, len(entries) if confirmed is None else confirmed)
    originals = Copies(blue, blue, stats.topic, entries, entries)
    looked_at = range(max(begin - _LOOKED_AT, 0), begin)
    published = await asyncio.gather(*(originals.is_original(number) for number in looked_at))
    if begin == len(looked_at) and not any(published):
        return Uncopied(0, {})
    after = Intervals.of([(begin, len(entries))])
    unread = {name: len(cursor.unread.minus(after)) for name, cursor in cursors.items()}
    return Uncopied(begin, {name: count for name, count in unread.items() if count})


async def _begin(
    blue: AdminClient, green: AdminClient, topic: TopicName, entries: Ledgers, names: tuple[str, str]
) -> int:
    """The number of blue's first entries that are older than the oldest copy on green; all of them without a copy."""
    # NumPy comes with it, and every process of Airflow loads the plugin whose pages lead here.
    from pulsar_fleet.verification.bounds.topic_bounds import oldest_copy

    try:
        target = Ledgers.of(await green.internal_stats(topic))
    except NotFound:
        return len(entries)
    copies = Copies(blue, green, topic, entries, target, only_from=names[0])
    try:
        _, oldest = await oldest_copy(copies, names, EARLIEST, len(target), most=_SEARCHED)
    except Unprovable as error:
        raise PreconditionFailed(
            f"what {names[1]} lacks of it is unknown: none of its first {_SEARCHED:,} entries there is a copy of "
            f"{names[0]}'s"
        ) from error
    return len(entries) if oldest is None else max(entries.index_after(oldest) - 1, 0)


_SETTING = "transactionCoordinatorEnabled"
_RECOVERING, _UNUSED = frozenset({"None", "Initializing"}), frozenset({"NoSnapshot", "Unused"})
_SECONDS, _POLL_SECONDS = 30.0, 0.3


def may_transact(snapshot: Snapshot) -> bool:
    """Whether any broker of the cluster has transactions, or may have them: its settings were not read."""
    return not snapshot.brokers or any(broker.configuration.get(_SETTING) != "false" for broker in snapshot.brokers)


async def read_transacted(
    blue: AdminClient, partitions: Sequence[TopicName]
) -> tuple[frozenset[TopicName], tuple[Note, ...]]:
    """The partitions in which transactions were used at any time, and a note for each that could not be read.

    A topic's counts begin when it is loaded; a snapshot of its transactions stays. Observed on 4.2.4: `NoSnapshot` is
    the state of a topic without any transaction, `Ready` that of one with, after it was loaded again too.

    Calls: one for each partition, which must be loaded; more while brokers recover it.
    """
    attempts = PartialReads()
    states = await asyncio.gather(*(_state(blue, topic) for topic in partitions))
    transacted: set[TopicName] = set()
    for topic, state in zip(partitions, states, strict=True):
        if isinstance(state, FleetError):
            attempts.note(str(topic), Problem.UNREADABLE, str(state))
        elif state in _RECOVERING:
            attempts.note(str(topic), Problem.UNREADABLE, f"its transactions are in the state {state!r}")
        elif state not in _UNUSED:
            transacted.add(topic)
    return frozenset(transacted), tuple(attempts.take_notes())


async def _state(blue: AdminClient, topic: TopicName) -> str | FleetError:
    """The state of its transaction buffer; `Unused` for a deleted topic, and from a broker without transactions."""
    loop = asyncio.get_running_loop()
    end, path = loop.time() + _SECONDS, topic.path.partition("/")[2]
    try:
        while True:
            document = await blue.get_v3(f"/transactions/transactionBufferStats/{path}", answered_retry_seconds=0)
            state = str((document or {}).get("state"))
            if state not in _RECOVERING or loop.time() > end:
                return state
            await asyncio.sleep(_POLL_SECONDS)
    except NotFound:
        return "Unused"
    except FleetError as error:
        return "Unused" if f"{_SETTING}=true" in str(error) else error


async def read_compacted(
    blue: AdminClient, partitions: Sequence[TopicName], compacting: Collection[TopicName]
) -> tuple[dict[TopicName, CompactedView], tuple[Note, ...]]:
    """The compacted views with values, and a note for each that could not be read. Loads the topics.

    Calls: one for each topic; a reader for each partition with a compacted ledger.

    :param compacting: topics that brokers compact by themselves.
    """
    attempts, views = PartialReads(), dict[TopicName, CompactedView]()
    read = await internal_stats_documents(blue, partitions)
    documents = {topic: document for topic, document in read.items() if not isinstance(document, FleetError)}
    compacted = [topic for topic, document in documents.items() if compacted_entries(document)]
    begins = await _begins(blue, compacted)
    for topic, answer in {**read, **begins}.items():
        if isinstance(answer, FleetError) and not isinstance(answer, NotFound):
            attempts.note(str(topic), Problem.UNREADABLE, str(answer))
    positions = {topic: begin for topic, begin in begins.items() if not isinstance(begin, FleetError)}
    for topic, document in documents.items():
        if view := compacted_view(document, positions.get(topic), compacting=topic.parent in compacting):
            views[topic] = view
    return views, tuple(attempts.take_notes())


async def _begins(
    blue: AdminClient, compacted: Sequence[TopicName]
) -> Mapping[TopicName, Position | FleetError | None]:
    try:
        return await asyncio.to_thread(first_compacted, blue.connection, compacted)
    except FleetError as error:
        return dict.fromkeys(compacted, error)


@dataclass(frozen=True, slots=True)
class Side:
    """The policies of a cluster as they are while the run copies and compares."""

    name: str
    namespaces: Mapping[str, Mapping[str, Json]]
    topics: Mapping[tuple[str, str], Mapping[str, Json]]
    subscriptions: Mapping[str, frozenset[str]]
    configuration: JsonObject

    @classmethod
    def of(cls, snapshot: Snapshot, existing: Snapshot) -> Side:
        """The policies of one snapshot; brokers and subscriptions of the other, which is of the same cluster."""
        subscriptions: dict[str, set[str]] = {}
        for row in existing.subscriptions:
            subscriptions.setdefault(row.partition, set()).add(row.name)
        return cls(
            existing.cluster,
            {state.name: comparable(state.policies, snapshot.cluster) for state in snapshot.namespaces},
            {(state.topic, state.scope): topic_comparable(state.policies) for state in snapshot.topic_policies},
            {partition: frozenset(names) for partition, names in subscriptions.items()},
            existing.brokers[0].configuration if existing.brokers else {},
        )

    def layers(self, topic: TopicName, field: str) -> dict[Layer, Json]:
        """The layers that set a topic policy, the effective one first."""
        return self.effective(topic).layers(field)

    def value(self, topic: TopicName, field: str) -> Json:
        """The effective value of a topic policy."""
        return self.effective(topic).value(field)

    def effective(self, owner: NamespaceName | TopicName) -> Effective:
        """What is in effect for a topic, or for those of a namespace that have no policies."""
        topic = str(owner.parent) if isinstance(owner, TopicName) else ""
        return Effective(
            cluster=self.name,
            local=self.topics.get((topic, Scope.LOCAL), {}),
            shared=self.topics.get((topic, Scope.GLOBAL), {}),
            namespace=self.namespaces.get(str(owner.namespace if isinstance(owner, TopicName) else owner), {}),
            configuration=self.configuration,
        )


def sides_of(view: View) -> dict[str, Side]:
    """Blue and green by these words; the run itself copies blue's policies where it prepares green."""
    blue, green = view.blue.snapshot, view.green.snapshot
    planned = view.pair().translated if view.expected.prepares_green else green
    return {"blue": Side.of(blue, blue), "green": Side.of(planned, green)}


def copied_in(view: View) -> tuple[NamespaceFacts, ...]:
    """The namespaces whose messages are replicated before the cut-over."""
    return tuple(facts for facts in view.moving if view.replicates(facts.namespace))


def until_ended(view: View) -> str:
    """The run copies blue's policies to green where it prepares green; the two must stay equal."""
    on = view.blue.name + ("" if view.expected.prepares_green else f" and {view.green.name}")
    return f"on {on} until the run has ended, then set it back on {view.green.name}"


def on_every_side(view: View, call: str) -> str:
    """The call on blue, from which the run prepares green; on green too, where it exists: the two must stay equal."""
    sides = (view.blue,) if view.expected.prepares_green else (view.blue, view.green)
    return "; ".join(f"{side.name}: {call}" for side in sides)
