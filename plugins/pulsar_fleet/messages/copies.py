"""The copies that geo-replication made of a topic's entries: which entry of the source each was made from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.positions import Ledgers, count_before, published_ms

SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"
REPLICATED_FROM = "x-pulsar-replicated-from"
_MARKER = "x-pulsar-marker-type"
_REMOVED = Position(-1, -1)
_IDENTITY = ("x-pulsar-producer-name", "x-pulsar-sequence-id", "x-pulsar-publish-time", "x-pulsar-num-batch-message")
_MARKERS_IN_A_ROW = 8
_AROUND = 256
"""Publish times do not ascend exactly, so an entry lies within so many entries of the place of its publish time."""


class Copies:
    """One topic of two clusters: which entry of the source each entry of the target was made from.

    A replicator of Pulsar 4.0 or newer writes the source position into the copy. That of 3.0 does not: its copy names
    the cluster and keeps producer, sequence id, publish time and size of the batch, by which the entry is found on the
    source. Copies keep their order, so usually one call confirms it.

    :param originals: the source's entries; `copies`: the target's.
    :param only_from: the source's name, where the target also has copies of other clusters, whose source positions are
        positions there; None where all copies are the source's.
    """

    def __init__(
        self,
        source: AdminClient,
        target: AdminClient,
        topic: TopicName,
        originals: Ledgers,
        copies: Ledgers,
        only_from: str | None = None,
    ) -> None:
        self._only_from = only_from
        self._source = source
        self._target = target
        self.topic = topic
        self.originals = originals
        self.copies = copies
        self._ahead = len(originals) - len(copies)

    async def origin(self, index: int) -> Position | None:
        """The source position of the target's entry `index`; None if it was published on the target directly.

        Before every position of the source if the source has removed it. Read over HTTP, because the client shows the
        property on unbatched messages only (observed).

        :raises NotFound: a copy without a source position, whose entry is not where its publish time lies.
        """
        headers = await self._target.entry_properties(self.topic, self.copies.at(index))
        if self._only_from is not None and headers.get(REPLICATED_FROM) != self._only_from:
            return None
        if position := source_position_in(headers):
            return Position.parse(position)
        if REPLICATED_FROM not in headers or headers[REPLICATED_FROM] != await self._source.cluster_name():
            return None
        return await self._found(index, headers)

    async def is_original(self, index: int) -> bool:
        """Whether the target's entry `index` was published on the target: neither a copy nor a marker of its broker."""
        headers = await self._target.entry_properties(self.topic, self.copies.at(index))
        return REPLICATED_FROM not in headers and _MARKER not in headers

    async def count_up_to(self, position: Position) -> int:
        """The number of the target's first entries that were made from entries up to and including `position`.

        Replicated entries keep their order and lie before the messages that were published on the target after the
        cut-over, so this is a binary search: about 17 calls for 100,000 entries. It skips the markers that the target's
        own broker stores for replicated subscriptions.
        """
        low, high = 0, len(self.copies)
        while low < high:
            middle = (low + high) // 2
            for number in range(middle, min(high, middle + _MARKERS_IN_A_ROW)):
                if (origin := await self.origin(number)) is not None:
                    break
            if origin is not None and origin <= position:
                low = number + 1
            else:
                high = middle
        return low

    async def _found(self, index: int, copy: Mapping[str, str]) -> Position:
        """The source's entry with the identity of a copy; entries that came since are looked at too."""
        position, _ = await self._search(self.originals, index, copy)
        if position is not None:
            return position
        grown = Ledgers.of(await self._source.internal_stats(self.topic))
        position, place = await self._search(grown, index, copy)
        if position is not None:
            return position
        if place < _AROUND:
            return _REMOVED
        raise NotFound(
            f"Entry {self.copies.at(index)} of {self.topic} on {self._target.connection.name} is a copy, but "
            f"{self._source.connection.name} does not have its entry near the publish time {copy[_IDENTITY[2]]}."
        )

    async def _search(self, entries: Ledgers, index: int, copy: Mapping[str, str]) -> tuple[Position | None, int]:
        """The entry with the identity of a copy, first at the usual distance; and the place of its publish time."""
        identity, guess = _identity(copy), index + self._ahead
        if 0 <= guess < len(entries) and await self._identity_at(entries, guess) == identity:
            return entries.at(guess), guess
        place = await count_before(self._source, self.topic, entries, published_ms(copy))
        for number in _nearest_first(place, len(entries)):
            if await self._identity_at(entries, number) == identity:
                self._ahead = number - index
                return entries.at(number), place
        return None, place

    async def _identity_at(self, entries: Ledgers, number: int) -> tuple[str | None, ...]:
        return _identity(await self._source.entry_properties(self.topic, entries.at(number)))


def source_position_in(headers: Mapping[str, str]) -> str | None:
    """The source position in the headers that a broker answers for an entry; Pulsar 3.0 has one header a property."""
    properties = json.loads(headers.get("x-pulsar-property") or "{}")
    return properties.get(SOURCE_POSITION) or headers.get(f"x-pulsar-property-{SOURCE_POSITION.lower()}")


def _identity(headers: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(headers.get(name) for name in _IDENTITY)


def _nearest_first(place: int, entries: int) -> Iterator[int]:
    """Numbers of entries around a place, in both directions alternately."""
    for distance in range(_AROUND):
        for number in dict.fromkeys((place + distance, place - distance - 1)):
            if 0 <= number < entries:
                yield number
