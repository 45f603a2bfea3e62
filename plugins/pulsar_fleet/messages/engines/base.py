"""The interface of an engine, the `with` statement for engines that hold connections, and limits of reading."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from pulsar_fleet.messages.ranges import EngineName, Range


class Engine(Protocol):
    """Reads stored messages or entries."""

    def read(self, entry_range: Range) -> Iterator[Sequence[Any]]:
        """All messages of the range in order, in lists; for a range of `EngineName.ENTRY` all entries.

        A message is a `StoredMessage`, an entry is a `StoredEntry`.
        """
        ...


class ConnectedEngine(ABC):
    """An engine that holds connections and closes them at the end of a `with` statement."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connections; a second call does nothing."""


BURST_SECONDS = 0.25
MESSAGE_BYTES = 64
"""The approximate bytes of a message on the wire in addition to its payload."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Which messages of the ranges are read, and how fast.

    :param window: publish times, milliseconds since 1970, as (from, to): only messages in [from, to) are read.
    :param bytes_per_second: for one reader; None means no limit.
    """

    window: tuple[int, int] | None = None
    bytes_per_second: float | None = None

    def on(self, engine: Engine) -> Engine:
        """The engine with these limits."""
        if self.bytes_per_second:
            engine = Throttled(engine, Throttle(self.bytes_per_second))
        return Windowed(engine, *self.window) if self.window else engine


class Throttle:
    """A token bucket of `bytes_per_second`, with bursts of a quarter of a second."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._room = bytes_per_second * BURST_SECONDS
        self._at = clock()

    def spend(self, size: int) -> None:
        """Take `size` bytes that were read from the bucket; wait until the next read is allowed."""
        now = self._clock()
        self._room = min(self._rate * BURST_SECONDS, self._room + (now - self._at) * self._rate) - size
        self._at = now
        if self._room < 0:
            self._sleep(-self._room / self._rate)


class Throttled:
    """A throttled engine; the inner engine stops requesting messages from the broker when its queue is full."""

    def __init__(self, engine: Engine, throttle: Throttle) -> None:
        self._engine = engine
        self._throttle = throttle

    def read(self, entry_range: Range) -> Iterator[Sequence[Any]]:
        """Read like the engine, no faster than the throttle allows."""
        size = _entry_bytes if entry_range.engine is EngineName.ENTRY else _message_bytes
        for items in self._engine.read(entry_range):
            yield items
            self._throttle.spend(sum(size(item) for item in items))


def _entry_bytes(entry: Any) -> int:
    return int(entry.size)


def _message_bytes(message: Any) -> int:
    return len(message.payload) + MESSAGE_BYTES


class Windowed:
    """An engine of messages that omits messages published outside of a time window."""

    def __init__(self, engine: Engine, begin: int, end: int) -> None:
        self._engine = engine
        self._begin = begin
        self._end = end

    def read(self, entry_range: Range) -> Iterator[Sequence[Any]]:
        """Read like the engine, without the messages outside of the window."""
        for messages in self._engine.read(entry_range):
            yield [message for message in messages if self._begin <= message.publish_time < self._end]
