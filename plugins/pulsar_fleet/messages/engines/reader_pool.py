"""Readers of the pulsar client that are opened ahead and closed behind: each costs round trips, not work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pulsar

from pulsar_fleet.messages.ranges import Range

AT_ONCE = 8
LARGEST = 1_000
"""Entries of a range that is opened ahead: what its reader asks for at once is held in memory."""


class Readers:
    """Opens and closes readers, with threads where that helps. One thread may call it.

    :param open_reader: opens the reader of a range; called from several threads.
    """

    def __init__(self, open_reader: Callable[[Range], pulsar.Reader]) -> None:
        self._open = open_reader
        self._threads: ThreadPoolExecutor | None = None
        self._ahead: dict[Range, Future[pulsar.Reader]] = {}

    def expect(self, ranges: Sequence[Range]) -> None:
        """Begin to open the readers of these, which will be taken next; those that must be opened apart are left.

        Nothing that looks for chunks of a message before its range, since what a reader throws away is told to whoever
        reads at that time; and not the last entry of a terminated topic (see `ranges.cut`).
        """
        for wanted in ranges:
            apart = wanted.final or wanted.compacted or not wanted.tolerant or wanted.entries > LARGEST
            if not apart and wanted not in self._ahead:
                self._ahead[wanted] = self._pool().submit(self._open, wanted)

    def take(self, wanted: Range) -> pulsar.Reader:
        """The reader of a range; give it back."""
        ahead = self._ahead.pop(wanted, None)
        return ahead.result() if ahead else self._open(wanted)

    def give_back(self, reader: pulsar.Reader, *, now: bool) -> None:
        """Close it, behind the caller's back unless `now`."""
        if now or self._threads is None:
            _close(reader)
        else:
            self._threads.submit(_close, reader)

    def close(self) -> None:
        """Close what nobody took; a second call does nothing."""
        for ahead in self._ahead.values():
            with suppress(pulsar.PulsarException):
                _close(ahead.result())
        self._ahead = {}
        if self._threads:
            self._threads.shutdown()
            self._threads = None

    def _pool(self) -> ThreadPoolExecutor:
        # Made late: Spark forks its workers, and threads do not survive a fork.
        self._threads = self._threads or ThreadPoolExecutor(AT_ONCE, thread_name_prefix="pulsar-readers")
        return self._threads


def _close(reader: pulsar.Reader) -> None:
    # A reader that was redirected after its last message cannot be closed in order.
    with suppress(pulsar.PulsarException):
        reader.close()
