"""What a runner stores of steps and reports, without a cluster."""

from __future__ import annotations

import asyncio

import pytest

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures import runner
from pulsar_fleet.procedures.procedure import Checked, Procedure, Session, Step


@pytest.fixture
def session(records: object) -> Session:
    return Session({}, Run.open("unload_namespaces/1"), {})


def procedure(*steps: Step) -> Procedure:
    async def check(_: Session) -> Checked:
        return Checked(headline="1 namespace is read.")

    return Procedure(name="unload_namespaces", summary="", clusters={}, own_settings={}, check=check, work=tuple(steps))


def saying(said: str) -> Step:
    async def work(_: Session) -> str:
        return said

    return Step("unload", work)


def test_a_procedure_without_steps_reports_its_check(session: Session) -> None:
    examined = procedure()
    asyncio.run(runner.check(examined, session))
    assert runner.end(examined, session.run, {}, {}).report.headline == "1 namespace is read."


def test_a_step_that_says_nothing_is_done(session: Session) -> None:
    quiet = procedure(saying(""))
    asyncio.run(runner.check(quiet, session))
    assert not runner.has_run(session, "unload")
    asyncio.run(runner.run_step(quiet.work[0], session))
    assert runner.has_run(session, "unload")
    report = runner.end(quiet, session.run, {}, {}).report
    assert report.headline == "1 namespace is read."
    assert "| unload | done |" in report.markdown()
