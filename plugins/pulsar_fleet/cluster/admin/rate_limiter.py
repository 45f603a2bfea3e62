"""The rate of calls to a cluster."""

from __future__ import annotations

import asyncio
import time


class RateLimiter:
    """Spaces the starts of calls evenly.

    :param per_second: rate of calls; 0 is no limit.
    """

    def __init__(self, per_second: float = 0.0) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._next = 0.0

    async def acquire(self) -> None:
        """Wait until the next call may start."""
        if not self._gap:
            return
        now = time.monotonic()
        begin = max(self._next, now)
        self._next = begin + self._gap
        if begin > now:
            await asyncio.sleep(begin - now)
