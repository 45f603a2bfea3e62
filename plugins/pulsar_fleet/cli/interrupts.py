"""Ctrl-C and SIGTERM during a step of a long procedure: stop the step, or finish it first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

Result = TypeVar("Result")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_HANGS = 3
"""Who sends so many signals between two steps waits for something that does not end."""


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
    """Runs steps, and stops them on a signal; one between two steps takes effect where the next one begins.

    What follows a step that failed, such as the restoration and the report, is so not left out; a third signal between
    two steps raises all the same. To be used with `with`: behind it, signals do what they did before.

    :param note: prints what the signal will do.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.requested = False
        self._pending = False
        self._before = [(number, signal.getsignal(number)) for number in _SIGNALS]

    def __enter__(self) -> Self:
        """Signals are kept until a step begins."""
        self._later()
        return self

    def __exit__(self, *_: object) -> None:
        """Signals do what they did before."""
        for number, handler in self._before:
            signal.signal(number, handler)

    def run(self, step: Coroutine[Any, Any, Result], *, finish: str = "", last: bool = False) -> Result:
        """Run a step; a signal cancels it, also one that has arrived since the step before.

        :param finish: what is finished first: a first signal prints it and sets `requested`, a second one cancels.
        :param last: a signal from before is the first one: what is done whatever happened begins all the same.
        :raises KeyboardInterrupt: the step was cancelled.
        """
        try:
            return run_interruptibly(self._guard(step, finish, last=last))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._later()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A signal inside raises `KeyboardInterrupt`, also one from before it: a person is asked."""
        _interrupt_at_once()
        try:
            self.stop()
            yield
        except KeyboardInterrupt:
            self.requested = True
            raise
        finally:
            self._later()

    def stop(self) -> None:
        """Take up a signal that has arrived since the last step.

        :raises KeyboardInterrupt: one has.
        """
        if self._take():
            raise KeyboardInterrupt

    def _take(self) -> bool:
        """Whether a signal has arrived that no step has taken up; from now on it is."""
        pending, self._pending = self._pending, False
        return pending

    def _later(self) -> None:
        signals = 0

        def receive(_number: int, _frame: object) -> None:
            nonlocal signals
            signals += 1
            self.requested = self._pending = True
            if signals >= _HANGS:
                raise KeyboardInterrupt

        for number in _SIGNALS:
            signal.signal(number, receive)

    async def _guard(self, step: Coroutine[Any, Any, Result], finish: str, *, last: bool) -> Result:
        loop, task, signals = asyncio.get_running_loop(), asyncio.ensure_future(step), 0
        early = self._take()

        def receive(_number: int, _frame: object) -> None:
            nonlocal signals
            signals += 1
            self.requested = True
            if finish and signals == 1:
                self._pending = True
                loop.call_soon_threadsafe(self._note, f"{finish} Press Ctrl-C again to stop at once.")
                return
            # One that has just ended cannot be cancelled: the next one does not begin.
            self._pending = task.done()
            task.cancel()
            # A step that blocks the loop is ended by the next one.
            _interrupt_at_once()
            loop.call_soon_threadsafe(lambda: None)

        for number in _SIGNALS:
            signal.signal(number, receive)
        # One that came before the handlers were set stops this step, and not only the next one.
        early = early or (not signals and self._take())
        if early and last:
            receive(0, None)
        elif early:
            task.cancel()
        try:
            return await task
        finally:
            # The loop waits for its threads: what is finished first has ended, anything else is stopped.
            if finish and not signals:
                self._later()
            else:
                _interrupt_at_once()
