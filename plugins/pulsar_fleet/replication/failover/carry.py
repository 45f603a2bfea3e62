"""Carry the positions of subscriptions to the cluster that applications move to, while they go on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.messages.cursor_setting import (
    MAX_CARRIED,
    PartitionCursors,
    TargetCursor,
    set_cursors,
)
from pulsar_fleet.messages.positions import Intervals
from pulsar_fleet.replication.failover.measure import TOPICS_AT_ONCE, Counter
from pulsar_fleet.replication.failover.read import TooMany, TopicReader
from pulsar_fleet.replication.failover.topic_copy import ClusterTopic

_MOST, _FEW = 100, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedCursor(Document):
    """One durable subscription of a plain topic or partition. Counts are entries of `to`, not messages.

    :param unread: it delivers them there.
    :param carried: acknowledged individually, beyond its mark-delete position, and there too.
    :param again: acknowledged there and not on `from`: it is set back, and delivers them.
    :param repeated: acknowledged individually on `from`, and delivered there, because they are too many.
    :param is_new: `to` has no such subscription.
    :param used: consumers are connected to it on `to`: it stays where it is.
    :param unsent: messages that it has not read on `from` and that are still to be replicated.
    :param absent: messages that it has not read on `from` and `to` has no copy of, nor will get one.
    """

    topic: str
    subscription: str
    unread: int
    carried: int = 0
    again: int = 0
    repeated: int = 0
    is_new: bool = False
    used: bool = False
    unsent: int = 0
    absent: int = 0

    def text(self, target: str) -> str:
        """One line."""
        if self.used:
            return f"`{self.subscription}` on `{self.topic}`: it has consumers on {target}, and stays as it is there"
        parts = [f"continues with {counted(self.unread, 'unread entry')}"]
        if self.carried:
            parts.append(f"{counted(self.carried, 'individually acknowledged entry')} acknowledged there too")
        if self.again:
            parts.append(f"**set back**: {target} delivers {counted(self.again, 'entry')} again")
        if self.repeated:
            parts.append(f"**{counted(self.repeated, 'individually acknowledged entry')} delivered again**")
        if self.unsent:
            parts.append(f"{counted(self.unsent, 'message')} still to be replicated")
        if self.absent:
            parts.append(f"**{target} has no copy of {counted(self.absent, 'message')}**")
        if self.is_new:
            parts.append(f"created on {target}")
        return f"`{self.subscription}` on `{self.topic}`: {'; '.join(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedPositions(Document):
    """The subscriptions of the topics of a move.

    :param unknown: topic → why its subscriptions could not be read or set.
    :param one_way: topics that one of both clusters does not replicate to the other.
    :param stayed: `subscription of topic` whose position is not carried: its client has made it.
    """

    cursors: tuple[CarriedCursor, ...] = ()
    unknown: dict[str, str]
    one_way: tuple[str, ...] = ()
    stayed: tuple[str, ...] = ()

    @property
    def absent(self) -> int:
        """Messages that subscriptions have not read and the other cluster has no copy of."""
        return sum(cursor.absent for cursor in self.cursors)

    def lines(self, target: str) -> list[str]:
        """A line for each subscription, those first that do not simply continue."""
        ordered = sorted(self.cursors, key=lambda one: not (one.used or one.again or one.repeated or one.absent))
        lines = [cursor.text(target) for cursor in ordered[:_MOST]]
        if more := len(ordered) - _MOST:
            lines += [f"… and {counted(more, 'more subscription')}"] if more > 0 else []
        lines += [
            f"`{name}` stays on {target} where it was: its client has made it on the other cluster, and may have "
            "skipped what it had not read. What it read there is delivered again"
            for name in self.stayed
        ]
        return [*lines, *(f"`{topic}`: **unknown**: {why}" for topic, why in sorted(self.unknown.items()))]

    def after(self, earlier: CarriedPositions | None) -> CarriedPositions:
        """The same, with what an earlier time has created and set back."""
        known = {(one.topic, one.subscription): one for one in (earlier.cursors if earlier else ())}
        cursors = []
        for one in self.cursors:
            first = known.get((one.topic, one.subscription), one)
            cursors.append(replace(one, is_new=one.is_new or first.is_new, again=max(one.again, first.again)))
        return replace(self, cursors=tuple(cursors))

    def headline(self) -> str:
        """`5 subscriptions carried, 1 of them created, 2 set back`."""
        numbers = {
            "of them created": sum(cursor.is_new for cursor in self.cursors),
            "set back": sum(bool(cursor.again) for cursor in self.cursors),
            "in use there": sum(cursor.used for cursor in self.cursors),
            "left where they were": len(self.stayed),
            "unknown": len(self.unknown),
        }
        carried = counted(sum(not cursor.used for cursor in self.cursors), "subscription")
        return ", ".join([f"{carried} carried", *(f"{number:,} {name}" for name, number in numbers.items() if number)])

    @property
    def accepted_by(self) -> str:
        """The setting of a run that goes on in spite of `problem`."""
        return "skip_positions" if self.unknown or self.one_way else "accept_lost"

    def problem(self) -> str:
        """Why applications that move now may lose messages; empty if none do."""
        if self.one_way:
            return f"{listed(self.one_way, _FEW)}: not replicated both ways"
        if self.unknown:
            topic, why = next(iter(sorted(self.unknown.items())))
            others = f" and {counted(len(self.unknown) - 1, 'other topic')}" if len(self.unknown) > 1 else ""
            return f"The positions of {topic}{others} are not known: {why.rstrip('.')}"
        if self.absent:
            topics = listed(dict.fromkeys(cursor.topic for cursor in self.cursors if cursor.absent))
            return f"{counted(self.absent, 'message')} that nobody has read would not be delivered: {topics}"
        return ""


async def plan_positions(
    reader: TopicReader,
    topics: Iterable[TopicName],
    only: Mapping[TopicName, Collection[str]] | None = None,
    confirmed: Mapping[TopicName, Position] | None = None,
) -> CarriedPositions:
    """What `carry_positions` would do; changes nothing, and loads the topics. Calls: as there.

    :param confirmed: topic → the last entry of `to` that `from` had confirmed, where `to` replicates to it no more.
    """
    return await _each(reader, topics, only=only, confirmed=confirmed)


async def carry_positions(
    reader: TopicReader,
    topics: Iterable[TopicName],
    to: AdminClient,
    only: Mapping[TopicName, Collection[str]] | None = None,
    present: Mapping[TopicName, Collection[str]] | None = None,
    confirmed: Mapping[TopicName, Position] | None = None,
) -> CarriedPositions:
    """Set the cursors on `to` so that each subscription delivers there what it has not acknowledged on `from`.

    By the entries themselves, in whichever order both clusters have them, and with individual acknowledgments. Missing
    subscriptions are created; one with consumers on `to` stays. What is acknowledged on `from` meanwhile is delivered
    again on `to`. A second call sets what has changed since. Six calls for a topic, its entries from the first unread
    one on, and some calls for each cursor that moves.

    :param only: topic → the subscriptions to carry; None: all.
    :param present: topic → the subscriptions that `from` had when clients were led there without `to`. Another one that
        both have stays: its client has created it on `from`, by default behind everything. None: all are carried.
    :param confirmed: as of `plan_positions`.
    """
    return await _each(reader, topics, to, only, present, confirmed)


async def _each(
    reader: TopicReader,
    topics: Iterable[TopicName],
    to: AdminClient | None = None,
    only: Mapping[TopicName, Collection[str]] | None = None,
    present: Mapping[TopicName, Collection[str]] | None = None,
    confirmed: Mapping[TopicName, Position] | None = None,
) -> CarriedPositions:
    slots, unknown = asyncio.Semaphore(TOPICS_AT_ONCE), dict[str, str]()
    one_way, stayed = list[str](), list[str]()

    async def one(topic: TopicName) -> Collection[CarriedCursor]:
        async with slots:
            try:
                on_from, on_to = await reader.topics(topic)
                if on_to.replicated is None and (position := (confirmed or {}).get(topic)):
                    on_to = replace(on_to, replicated=on_to.ledgers.index_after(position))
                if on_to.exists and None in (on_from.replicated, on_to.replicated):
                    one_way.append(str(topic))
                if only is not None:
                    # Others may have stood still for days: what only these have not read is not looked at.
                    wanted = on_from.cursors.keys() & {*only.get(topic, ())}
                    on_from = replace(on_from, cursors={name: on_from.cursors[name] for name in wanted})
                if present is not None:
                    own = (on_from.cursors.keys() & on_to.cursors.keys()) - {*present.get(topic, ())}
                    stayed.extend(f"{name} of {topic}" for name in sorted(own))
                    kept = {name: cursor for name, cursor in on_from.cursors.items() if name not in own}
                    on_from = replace(on_from, cursors=kept)
                return await _carry(reader, topic, (on_from, on_to), to)
            except (FleetError, TooMany) as error:
                unknown[str(topic)] = str(error)
                return ()

    carried = await asyncio.gather(*map(one, topics))
    return CarriedPositions(
        cursors=tuple(cursor for cursors in carried for cursor in cursors),
        unknown=unknown,
        one_way=tuple(sorted(one_way)),
        stayed=tuple(sorted(stayed)),
    )


async def _carry(
    reader: TopicReader,
    topic: TopicName,
    sides: tuple[ClusterTopic, ClusterTopic],
    to: AdminClient | None,
) -> list[CarriedCursor]:
    on_from, on_to = sides
    if on_from.exists and not on_to.exists:
        raise NotFound(f"it has no topic {topic}")
    copy = await reader.copy(topic, on_from, on_to, unsent=True)
    counter, targets, carried = Counter(on_from, on_to, copy), dict[str, TargetCursor](), list[CarriedCursor]()
    for name, source in sorted(on_from.cursors.items()):
        there = on_to.cursors.get(name)
        position, lost = counter.position(name), counter.forecast(name).lost
        too_many = len(position.individually_acknowledged) > MAX_CARRIED
        target = replace(position, individually_acknowledged=Intervals()) if too_many else position
        unread = target.unread(len(on_to.ledgers))
        cursor = CarriedCursor(
            topic=str(topic),
            subscription=name,
            unread=len(unread),
            carried=len(target.individually_acknowledged),
            again=len(unread.minus(there.unread)) if there else 0,
            repeated=len(position.individually_acknowledged) if too_many else 0,
            is_new=there is None,
            used=bool(there and there.consumers),
            unsent=lost.unreplicated.messages,
            absent=lost.absent,
        )
        carried.append(cursor)
        if not cursor.used:
            # A cursor that has the flag of a replicated subscription keeps it.
            flagged = source.replicated or bool(there and there.replicated)
            targets[name] = TargetCursor(replace(source, replicated=flagged), target)
    if to is not None and targets:
        current = PartitionCursors(on_to.ledgers, on_to.last, on_to.cursors)
        await set_cursors(to, topic, targets, current, live=True)
    return carried
