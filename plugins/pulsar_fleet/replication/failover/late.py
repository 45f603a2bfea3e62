"""What a cluster had not replicated when clients were led away without it, and which came when it was back.

Those entries lie on the other cluster behind what was written there since: each was published before the clients were
led, and stored after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.links.lag import read_replication_progress
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EngineName, TopicBounds, cut
from pulsar_fleet.replication.failover.measure import persistent_partitions

if TYPE_CHECKING:
    from pulsar_fleet.messages.engines.engines import EntryEngine

LEFT_BEHIND = "left-behind.json"
"""The artefact of a run that has led clients away from a cluster which did not answer."""
_PROBE_SECONDS, _LOOK_SECONDS = 3.0, 1.0
_REMOVED = "what it had then was removed since, and maybe what came late: it was read by all subscriptions"
MOST_NAMED = 1_000
"""So many late entries are named for a topic; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind(Document):
    """Where the topics of a cluster ended when clients were led there, away from one that did not answer.

    :param origin: own name of the cluster that they left; `target`: the one to which they were led.
    :param at: when, in milliseconds since 1970.
    :param ends: plain topic or partition → its last entry on `target` then; one without any is left out.
    :param subscriptions: topic → those that `target` had then: others are made by clients, which may skip messages.
    :param unread: topic → why its end is not known.
    """

    SCHEMA_VERSION = 1

    origin: str
    target: str
    at: int
    ends: Mapping[TopicName, Position]
    subscriptions: Mapping[TopicName, tuple[str, ...]] = field(default_factory=dict)
    unread: Mapping[TopicName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEntry(Document):
    """An entry that came late.

    :param position: on the cluster to which it came.
    :param published: milliseconds since 1970, by the clock of its producer.
    :param messages: of its batch.
    :param key: of a message that is no batch; empty without one.
    """

    topic: str
    position: str
    published: int
    messages: int
    producer: str
    key: str = ""

    def line(self) -> str:
        """`2026-11-30T20:02:42.120 persistent://acme/orders/events 12:7, key a, by p1`."""
        at = datetime.fromtimestamp(self.published / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        what = f", key {self.key}" if self.key else f", {self.messages:,} messages" if self.messages > 1 else ""
        return f"{at} {self.topic} {self.position}{what}, by {self.producer or '?'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEntries(Document):
    """What came late until now.

    :param entries: the first ones of each topic.
    :param messages: in all late entries, also those that are not in `entries`.
    :param to_come: entries that the cluster has still to send; None: it does not answer, as `unknown` says.
    :param unread: topic → why it could not be read.
    """

    origin: str
    target: str
    entries: tuple[LateEntry, ...]
    messages: int
    to_come: int | None
    unknown: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether nothing comes any more, and every topic was read."""
        return self.to_come == 0 and not self.unread

    def text(self, most: int) -> str:
        """The count, and the first of them, a line each."""
        lines = [f"{counted(self.messages, 'message')} of {self.origin} came to {self.target} late."]
        if self.to_come is None:
            lines.append(f"{self.origin} may have more, which cannot be asked now: {self.unknown}")
        elif self.to_come:
            lines.append(f"{self.origin} has {counted(self.to_come, 'entry')} still to send: look again.")
        lines += [f"Not read: {topic}: {why}" for topic, why in self.unread.items()]
        lines += [f"  {entry.line()}" for entry in self.entries[:most]]
        if (more := len(self.entries) - most) > 0:
            lines.append(f"  … and {counted(more, 'more entry')}: --json names up to {MOST_NAMED:,} of a topic")
        return "\n".join(lines)


async def read_ends(target: AdminClient, origin: str, topics: Sequence[TopicName]) -> LeftBehind:
    """Where the topics end now, and which subscriptions they have. A call for each; loads them.

    A topic that cannot be read within a second is noted as such: applications wait.
    """
    unread: dict[TopicName, str] = {}

    async def look(topic: TopicName) -> JsonObject:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return await target.internal_stats(topic)
        except NotFound:
            # A topic of the cluster that is gone: all of it comes late.
            return {}
        except (FleetError, TimeoutError) as error:
            unread[topic] = str(error) or "it did not answer in time when clients were led"
            return {}

    internal = dict(zip(topics, await asyncio.gather(*map(look, topics)), strict=True))
    ledgers = {topic: Ledgers.of(stats) for topic, stats in internal.items() if stats}
    return LeftBehind(
        origin=origin,
        target=await target.cluster_name(),
        at=int(datetime.now(UTC).timestamp() * 1000),
        ends={topic: listed.at(len(listed) - 1) for topic, listed in ledgers.items() if len(listed)},
        subscriptions={topic: tuple(sorted(stats["cursors"])) for topic, stats in internal.items() if stats},
        unread=unread,
    )


async def read_late(
    origin: ClusterConnection, target: ClusterConnection, behind: LeftBehind, namespaces: Collection[NamespaceName]
) -> LateEntries:
    """The late entries that have come until now. Reads what was stored since; changes nothing, and loads the topics."""
    from pulsar_fleet.messages.engines.engines import EntryEngine

    entries: list[LateEntry] = []
    messages, unread = 0, {str(topic): why for topic, why in behind.unread.items()}
    # Asked first: what has been sent by then is read below.
    to_come, unknown = await _to_come(origin, behind.target, namespaces)
    async with AdminClient(target) as admin:
        topics = await persistent_partitions(admin, dict.fromkeys(namespaces, ()))
        with EntryEngine(target) as engine:
            for topic in topics:
                try:
                    ledgers = Ledgers.of(await admin.internal_stats(topic))
                    end = behind.ends.get(topic)
                    if end and end.ledger not in dict(ledgers.runs):
                        unread[str(topic)] = _REMOVED
                        continue
                    begin = ledgers.index_after(end) if end else 0
                    bounds = TopicBounds(str(topic), ledgers, begin, len(ledgers))
                    late = await asyncio.to_thread(_late, engine, topic, bounds, behind)
                except FleetError as error:
                    unread[str(topic)] = str(error)
                    continue
                messages += sum(entry.messages for entry in late)
                entries += late[:MOST_NAMED]
    return LateEntries(
        origin=behind.origin,
        target=behind.target,
        entries=tuple(sorted(entries, key=lambda entry: entry.published)),
        messages=messages,
        to_come=to_come,
        unknown=unknown,
        unread=unread,
    )


async def _to_come(
    origin: ClusterConnection, target: str, namespaces: Collection[NamespaceName]
) -> tuple[int | None, str]:
    """Entries that the cluster has not sent yet, over all topics that it has; None and why, where that is not known."""
    try:
        async with AdminClient(origin, retry_seconds=_PROBE_SECONDS) as admin:
            topics = await persistent_partitions(admin, dict.fromkeys(namespaces, ()))
            progress = await read_replication_progress(admin, target, topics)
    except FleetError as error:
        return None, str(error)
    if progress.lag.unlinked:
        return None, f"it is not linked to {target}: {progress.lag.unlinked[0]}"
    return progress.lag.entries, ""


class _Read(NamedTuple):
    position: Position
    messages: int
    size: int
    marker: bool
    origin: str
    metadata: Any


def _late(engine: EntryEngine, topic: TopicName, bounds: TopicBounds, behind: LeftBehind) -> list[LateEntry]:
    """The late entries within these bounds. Blocks."""
    from pulsar_fleet.messages.protocol.pulsar_api_pb2 import MessageMetadata
    from pulsar_fleet.messages.protocol.stored_entry import parts

    def read(ledger: int, entry: int, content: Any) -> _Read:
        metadata, _, size = parts(content, MessageMetadata)
        messages, marker = metadata.num_messages_in_batch or 1, metadata.HasField("marker_type")
        return _Read(Position(ledger, entry), messages, size, marker, metadata.replicated_from.decode(), metadata)

    ranges = cut(bounds, pair=0, publish_time=True, engine=EngineName.ENTRY) if len(bounds) else ()
    return [
        LateEntry(
            topic=str(topic),
            position=str(entry.position),
            published=entry.metadata.publish_time,
            messages=entry.messages,
            producer=entry.metadata.producer_name.decode(errors="replace"),
            key=entry.metadata.partition_key.decode(errors="replace"),
        )
        for part in ranges
        for entries in engine.entries(replace(part, origin=behind.origin), read)
        for entry in entries
        # What its producers publish there since is replicated as ever.
        if entry.metadata.publish_time <= behind.at
    ]
