"""What is left out of a reading and how fast it may be, for any engine: a window of time, bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pulsar_fleet.messages.ranges import EngineName, Range
from pulsar_fleet.messages.scan import Engine

BURST_SECONDS = 0.25
MESSAGE_BYTES = 64
"""What a message costs on the wire beside its payload, roughly."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Which messages of the ranges count, and how fast they are read.

    :param window: publish times, milliseconds since 1970, as (from, to): only messages in [from, to) count.
    :param bytes_per_second: for one reader; None without a limit.
    """

    window: tuple[int, int] | None = None
    bytes_per_second: float | None = None

    def on(self, engine: Engine) -> Engine:
        """The engine under these limits; itself without any."""
        if self.bytes_per_second:
            engine = Throttled(engine, Throttle(self.bytes_per_second))
        return Windowed(engine, *self.window) if self.window else engine


class Throttle:
    """A token bucket: lets `bytes_per_second` through, and a quarter of a second's worth at once."""

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
        """Account for `size` bytes that were read; waits until the next ones may be."""
        now = self._clock()
        self._room = min(self._rate * BURST_SECONDS, self._room + (now - self._at) * self._rate) - size
        self._at = now
        if self._room < 0:
            self._sleep(-self._room / self._rate)


class Throttled:
    """An engine that waits; the one behind it stops asking the broker when what it holds ready is not taken."""

    def __init__(self, engine: Engine, throttle: Throttle) -> None:
        self._engine = engine
        self._throttle = throttle

    def expect(self, ranges: Sequence[Range]) -> None:
        """Nothing is read ahead: it would not be throttled."""

    def read(self, wanted: Range) -> Iterator[Sequence[Any]]:
        """As the engine, but no faster than the throttle lets it."""
        size = _entry_bytes if wanted.engine is EngineName.ENTRY else _message_bytes
        for found in self._engine.read(wanted):
            yield found
            self._throttle.spend(sum(size(each) for each in found))


def _entry_bytes(entry: Any) -> int:
    return int(entry.size)


def _message_bytes(message: Any) -> int:
    return len(message.data()) + MESSAGE_BYTES


class Windowed:
    """An engine of messages that leaves out what was published before or after a window."""

    def __init__(self, engine: Engine, begin: int, end: int) -> None:
        self._engine = engine
        self._begin = begin
        self._end = end

    def expect(self, ranges: Sequence[Range]) -> None:
        """As the engine."""
        self._engine.expect(ranges)

    def read(self, wanted: Range) -> Iterator[Sequence[Any]]:
        """As the engine, without the messages outside of the window."""
        for messages in self._engine.read(wanted):
            yield [each for each in messages if self._begin <= each.publish_timestamp() < self._end]
