"""A signal during a step stops it, or lets it finish first."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from pulsar_fleet.cli.interrupts import Interrupts, run_interruptibly


@pytest.fixture
def notes() -> list[str]:
    """What was printed."""
    return []


async def interrupted(*numbers: signal.Signals) -> str:
    await asyncio.sleep(0)
    for number in numbers:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.02)
    return "complete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_step(notes: list[str], number: signal.Signals) -> None:
    with Interrupts(notes.append) as interrupts, pytest.raises(KeyboardInterrupt):
        interrupts.run(interrupted(number))
    assert (interrupts.requested, notes) == (True, [])


def test_a_step_that_must_not_stop_half_way_is_finished_first(notes: list[str]) -> None:
    with Interrupts(notes.append) as interrupts:
        assert interrupts.run(interrupted(signal.SIGINT), finish="It is finished first.") == "complete"
    assert (interrupts.requested, notes) == (True, ["It is finished first. Press Ctrl-C again to stop at once."])


def test_a_second_signal_stops_it_at_once(notes: list[str]) -> None:
    with Interrupts(notes.append) as interrupts, pytest.raises(KeyboardInterrupt):
        interrupts.run(interrupted(signal.SIGINT, signal.SIGINT), finish="It is finished first.")


def test_a_signal_between_two_steps_stops_the_next_one(notes: list[str]) -> None:
    begun: list[str] = []

    async def step(name: str) -> None:
        begun.append(name)

    with Interrupts(notes.append) as interrupts:
        interrupts.run(step("one"))
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            interrupts.run(step("two"))
        interrupts.run(step("three"))
    assert begun == ["one", "three"]


def test_a_signal_while_the_threads_of_a_step_end_is_an_interruption(notes: list[str]) -> None:
    async def step() -> str:
        # The loop waits for the thread when the step has ended.
        asyncio.get_running_loop().run_in_executor(None, lambda: (time.sleep(0.2), os.kill(os.getpid(), signal.SIGINT)))
        return "complete"

    with Interrupts(notes.append) as interrupts, pytest.raises(KeyboardInterrupt):
        interrupts.run(step())


def test_a_third_signal_between_two_steps_ends_what_hangs(notes: list[str]) -> None:
    with Interrupts(notes.append) as interrupts:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_before_what_is_done_at_the_end_is_the_first_one(notes: list[str]) -> None:
    with Interrupts(notes.append) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.run(interrupted(), finish="It is restored first.", last=True) == "complete"
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.run(interrupted(signal.SIGINT), finish="It is restored first.", last=True)
    assert notes == ["It is restored first. Press Ctrl-C again to stop at once."] * 2


def test_a_signal_before_a_question_is_not_asked_about(notes: list[str]) -> None:
    with Interrupts(notes.append) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), interrupts.at_once():
            notes.append("asked")
    assert notes == []


def test_signals_do_afterwards_what_they_did_before(notes: list[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interrupts(notes.append) as interrupts, pytest.raises(KeyboardInterrupt):
        interrupts.run(interrupted(signal.SIGINT))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


class _InterruptedAtItsStart(asyncio.SelectorEventLoop):
    """A loop that a signal meets while it is made."""

    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        super().__init__()


def test_a_signal_while_the_loop_is_made_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.DefaultEventLoopPolicy, "_loop_factory", _InterruptedAtItsStart)
    begun: list[str] = []

    async def begin() -> None:
        begun.append("begun")

    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(begin())
    assert begun == []
