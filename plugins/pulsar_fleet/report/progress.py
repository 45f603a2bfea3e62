"""The progress of long operations as log lines, at most one every 10 s."""

from __future__ import annotations

import time
from collections.abc import Callable

from pulsar_fleet.cluster.text import duration

EVERY_SECONDS = 10.0


def progress_lines(noun: str, write: Callable[[str], None]) -> Callable[[int, int], None]:
    """A callback for (done, total) that writes `120 of 480 changes, done in about 30 s`, every 10 s and at the end.

    :param write: receives each line.
    """
    began = time.monotonic()
    reported = began

    def progress(done: int, total: int) -> None:
        nonlocal reported
        now = time.monotonic()
        if done < total and now - reported < EVERY_SECONDS:
            return
        reported = now
        remaining = f", done in about {duration((now - began) / done * (total - done))}" if 0 < done < total else ""
        write(f"{done:,} of {total:,} {noun}{remaining}")

    return progress
