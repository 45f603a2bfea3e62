"""A pool that opens and closes readers of the pulsar client in the background: both cost round trips, not CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pulsar

from pulsar_fleet.messages.ranges import Range

MOST_THREADS = 8
LARGEST_RANGE = 1_000
"""The most entries of a range whose reader is opened ahead, because its prefetched messages use memory."""


class ReaderPool:
    """Opens and closes readers, in threads if that is faster. Only one thread may call it.

    :param open_reader: opens the reader of a range; called from several threads.
    """

    def __init__(self, open_reader: Callable[[Range], pulsar.Reader]) -> None:
        self._open = open_reader
        self._threads: ThreadPoolExecutor | None = None
        self._ahead: dict[Range, Future[pulsar.Reader]] = {}

    def expect(self, ranges: Sequence[Range]) -> None:
        """Start to open the readers of the next ranges, except of those that need a reader of their own.

        A range with a lookback is not opened ahead, because a discarded chunk is reported to the read that runs at that
        time; nor is the last entry of a terminated topic (see `ranges.cut`).
        """
        for entry_range in ranges:
            small = entry_range.entries <= LARGEST_RANGE
            opens_ahead = small and entry_range.tolerant and not (entry_range.final or entry_range.compacted)
            if opens_ahead and entry_range not in self._ahead:
                self._ahead[entry_range] = self._pool().submit(self._open, entry_range)

    def take(self, entry_range: Range) -> pulsar.Reader:
        """The reader of a range; the caller must release it."""
        ahead = self._ahead.pop(entry_range, None)
        return ahead.result() if ahead else self._open(entry_range)

    def release(self, reader: pulsar.Reader, *, now: bool) -> None:
        """Close a reader, in the background unless `now`."""
        if now or self._threads is None:
            _close(reader)
        else:
            self._threads.submit(_close, reader)

    def close(self) -> None:
        """Close the readers that were not taken; a second call does nothing."""
        for ahead in self._ahead.values():
            with suppress(pulsar.PulsarException):
                _close(ahead.result())
        self._ahead = {}
        if self._threads:
            self._threads.shutdown()
            self._threads = None

    def _pool(self) -> ThreadPoolExecutor:
        # Created at the first use: Spark forks its workers, and threads do not survive a fork.
        self._threads = self._threads or ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="pulsar-readers")
        return self._threads


def _close(reader: pulsar.Reader) -> None:
    # Closing a reader that was redirected after its last message fails.
    with suppress(pulsar.PulsarException):
        reader.close()
