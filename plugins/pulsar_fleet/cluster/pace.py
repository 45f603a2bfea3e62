"""How many calls may begin in a second."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """Lets calls begin evenly, one after the other.

    :param per_second: how many of them; 0 lets each begin at once.
    """

    def __init__(self, per_second: float = 0.0) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._next = 0.0

    async def turn(self) -> None:
        """Wait for the caller's turn."""
        if not self._gap:
            return
        now = time.monotonic()
        begin = max(self._next, now)
        self._next = begin + self._gap
        if begin > now:
            await asyncio.sleep(begin - now)
