"""Ctrl-C and SIGTERM during a step of a long procedure: stop the step, or finish it first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_interruptibly(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end in an event loop of its own; Ctrl-C cancels it at any moment.

    `asyncio.run` fails with an `AttributeError` where the signal arrives while it makes the loop.

    :raises KeyboardInterrupt: it was cancelled by Ctrl-C.
    """
    runner = asyncio.Runner()
    try:
        with _interrupts_later():
            runner.get_loop()
        return runner.run(work)
    finally:
        runner.close()
        # Work that was never begun would be named in a warning.
        work.close()


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """A Ctrl-C that arrives inside takes effect at the end. A blocked signal would be taken by another thread."""
    arrived: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived:
        signal.raise_signal(signal.SIGINT)


def _interrupt_at_once() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.default_int_handler)


class Interrupts:
    """Runs steps, and stops them on a signal.

    :param note: prints what the signal will do.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.requested = False
        # Between two steps, and while the operator is asked, SIGTERM does what Ctrl-C does.
        _interrupt_at_once()

    def run(self, step: Coroutine[Any, Any, Result], *, finish: str = "") -> Result:
        """Run a step; a signal cancels it.

        :param finish: what is finished first: a first signal prints it and sets `requested`, a second one cancels.
        :raises KeyboardInterrupt: the step was cancelled.
        """
        try:
            return run_interruptibly(self._guard(step, finish))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    async def _guard(self, step: Coroutine[Any, Any, Result], finish: str) -> Result:
        loop, task, signals = asyncio.get_running_loop(), asyncio.ensure_future(step), 0

        def receive(_number: int, _frame: object) -> None:
            nonlocal signals
            signals += 1
            self.requested = True
            if finish and signals == 1:
                loop.call_soon_threadsafe(self._note, f"{finish} Press Ctrl-C again to stop at once.")
                return
            task.cancel()
            # A step that blocks the loop is ended by the next one.
            _interrupt_at_once()
            loop.call_soon_threadsafe(lambda: None)

        for number in _SIGNALS:
            signal.signal(number, receive)
        try:
            return await task
        finally:
            _interrupt_at_once()
