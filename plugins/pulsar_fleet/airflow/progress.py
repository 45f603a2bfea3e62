"""Progress of long work in a task's log: one line every 10 s at most."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0


def log_progress(noun: str) -> Callable[[int, int], None]:
    """A callback that takes (done, all) and logs `120 of 480 changes, done in about 30 s`."""
    began = time.monotonic()
    logged = began

    def progress(done: int, total: int) -> None:
        nonlocal logged
        now = time.monotonic()
        if done < total and now - logged < EVERY_SECONDS:
            return
        logged = now
        left = f", done in about {(now - began) / done * (total - done):.0f} s" if 0 < done < total else ""
        log.info("%d of %d %s%s", done, total, noun, left)

    return progress
