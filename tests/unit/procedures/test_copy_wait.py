"""When a wait for a copy asks the doctor, and what it says of the answer; no cluster, a hand-made clock."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.cluster import polling
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.polling import REPEAT_SECONDS, ShownLines
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.procedures import copy_wait
from pulsar_fleet.procedures.copy_wait import EXAMINE_AGAIN_SECONDS, CopyWait, cause_of
from pulsar_fleet.replication.doctor.model import Diagnosis, Examination, Severity

MOVES = Moves("blue", "green", ())
NO_CAUSE = "it stands still, and the doctor found no cause that is known"
UNREAD = "it stands still, and the doctor found no cause, and could not read everything"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    hand_made = Clock()
    for module in (copy_wait, polling):
        monkeypatch.setattr(module, "time", hand_made)
    return hand_made


def found(*diagnoses: Diagnosis, unread: tuple[str, ...] = ()) -> Examination:
    return Examination(clusters=("blue", "green"), namespaces=1, counts={}, diagnoses=diagnoses, unread=unread)


def fault(id_: str, source: str = "blue", target: str = "green", severity: Severity = Severity.FAULT) -> Diagnosis:
    return Diagnosis(
        id=id_,
        severity=severity,
        resource="acme/orders",
        source=source,
        target=target,
        evidence="It is so.",
        consequence="Nothing arrives.",
        remedy="change it.",
    )


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Any:
    """Looks at figures, five seconds apart; returns the lines, and counts the examinations."""
    asked = 0

    async def look_at(figures: list[str], answer: Examination | Exception) -> tuple[list[str], int]:
        remaining = iter(figures)

        async def progress(*_: Any) -> tuple[bool, str]:
            text = next(remaining)
            return text == "near", text

        async def examine(*_: Any) -> Examination:
            nonlocal asked
            asked += 1
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(copy_wait, "replication_progress", progress)
        monkeypatch.setattr(copy_wait, "examine", examine)
        wait, lines = CopyWait(SimpleNamespace(blue="b", green="g"), SimpleNamespace(), MOVES), []  # type: ignore[arg-type]
        for _ in figures:
            lines.append((await wait.look())[1])
            clock.now += 5
        return lines, asked

    return lambda figures, answer: asyncio.run(look_at(figures, answer))


def test_after_five_equal_looks_the_doctor_is_asked_once(looks: Any) -> None:
    named = "7 left; it stands still: schema-blocked, acme/orders: It is so. Do: change it."
    lines, asked = looks(["8 left"] * 4 + ["7 left"] * 8 + ["6 left", "near"], found(fault("schema-blocked")))
    assert lines == ["8 left"] * 4 + ["7 left"] * 4 + [named] * 4 + ["6 left", "near"]
    assert asked == 1


def test_while_it_stands_still_the_doctor_is_asked_every_ten_minutes(looks: Any) -> None:
    number = 5 + 2 * int(EXAMINE_AGAIN_SECONDS / 5)
    assert looks(["7 left"] * number, found())[1] == 3


def test_a_doctor_that_gets_no_answer_ends_no_wait(looks: Any) -> None:
    lines, _ = looks(["7 left"] * 5, Unavailable("green does not answer."))
    assert lines[-1] == "7 left; it stands still, and the doctor could not examine why: green does not answer."


@pytest.mark.parametrize(
    ("examination", "text"),
    [
        (found(), NO_CAUSE),
        (
            found(unread=("green: topics",)),
            "it stands still, and the doctor found no cause, and could not read everything",
        ),
        (found(fault("one-way", severity=Severity.WARNING)), NO_CAUSE),
        (found(fault("namespace-missing", target="west")), NO_CAUSE),
        (found(fault("namespace-missing", source="green", target="blue")), NO_CAUSE),
        (
            found(fault("schema-blocked"), fault("topic-missing")),
            "it stands still: schema-blocked, acme/orders: It is so. Do: change it. The doctor lists 1 more fault.",
        ),
    ],
    ids=["none", "unread", "warning", "another target", "the other direction", "two"],
)
def test_the_cause_is_a_fault_of_the_way_that_is_copied(examination: Examination, text: str) -> None:
    assert cause_of(examination, MOVES) == text


def test_a_line_is_shown_again_when_it_changed_or_after_ten_minutes(clock: Clock) -> None:
    shown, due = ShownLines(10.0), []
    for line, seconds in (("a", 0), ("b", 5), ("b", 5), ("b", REPEAT_SECONDS - 1), ("b", 1), ("c", 10)):
        clock.now += seconds
        due.append(shown.is_due(line))
    assert due == [True, False, True, False, True, True]
