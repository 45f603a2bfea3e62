"""How far long work has come, as lines that are far enough apart to be read."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_SECONDS = 10.0


def progress_lines(noun: str, say: Callable[[str], None]) -> Callable[[int, int], None]:
    """A callback that takes (done, all) and says `120 of 480 changes, done in about 30 s`, every 10 s and at the end.

    :param say: gets each line.
    """
    began = time.monotonic()
    said = began

    def progress(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if done < total and now - said < EVERY_SECONDS:
            return
        said = now
        left = f", done in about {(now - began) / done * (total - done):.0f} s" if 0 < done < total else ""
        say(f"{done} of {total} {noun}{left}")

    return progress
