"""Ctrl-C and SIGTERM during a step of a long procedure: stop the step, or finish it first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """The operator stopped the step."""


class Interrupts:
    """Runs steps, and stops them on a signal.

    :param note: prints what the signal will do.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.requested = False
        # Between two steps, and while the operator is asked, SIGTERM does what Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    def run(self, step: Coroutine[Any, Any, Result], *, finish: str = "") -> Result:
        """Run a step; a signal cancels it.

        :param finish: what is finished first: a first signal prints it and sets `requested`, a second one cancels.
        :raises Interrupted: the step was cancelled.
        """
        return asyncio.run(self._guard(step, finish))

    async def _guard(self, step: Coroutine[Any, Any, Result], finish: str) -> Result:
        loop, task, signals = asyncio.get_running_loop(), asyncio.ensure_future(step), 0

        def receive() -> None:
            nonlocal signals
            signals += 1
            self.requested = True
            if finish and signals == 1:
                self._note(f"{finish} Press Ctrl-C again to stop at once.")
            else:
                task.cancel()

        for number in _SIGNALS:
            loop.add_signal_handler(number, receive)
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted from None
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
