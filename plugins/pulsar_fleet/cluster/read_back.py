"""Read back what was just written, where another broker of the cluster may answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

KEPT_SECONDS = 10.0
_POLL_SECONDS = 0.05


async def is_kept(read: Callable[[], Awaitable[bool]]) -> bool:
    """Whether what was just written is read back within 10 s: another broker may answer, with what it still remembers.

    :param read: whether an answer has what was written.
    """
    end = time.monotonic() + KEPT_SECONDS
    while not (kept := await read()) and time.monotonic() < end:
        await asyncio.sleep(_POLL_SECONDS)
    return kept
