"""For how long acknowledgments are forwarded: cleared, retried, and where the triggerer has stored nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures import forwarding
from pulsar_fleet.procedures.forwarding import FORWARDING, forward_until_end, keep_forwarding
from pulsar_fleet.procedures.procedure import Done, NotYet, Session, Skipped
from pulsar_fleet.read_only.forwarding.results import ForwardingResult

BLUE = ClusterConnection(name="blue", admin_url="http://127.0.0.1:9")
FORWARDED = ForwardingResult(cluster="blue", subscriptions=(), passes=3)


@pytest.fixture
def run(records: Path) -> Run:
    return Run.open("forward_acknowledgments/r")


def session(run: Run, minutes: float) -> Session:
    conf: JsonObject = {"minutes": minutes, "namespaces": ["acme/readers"]}
    return Session(conf, run, {"cluster": AdminClient(BLUE)}, {"cluster": (BLUE,)})


def test_a_run_of_no_minutes_makes_one_pass(run: Run) -> None:
    assert isinstance(asyncio.run(keep_forwarding(session(run, 0))), Skipped)


def test_a_cleared_task_forwards_for_its_minutes_again(run: Run) -> None:
    for _ in range(2):
        assert isinstance(asyncio.run(keep_forwarding(session(run, 5))), NotYet)
        # The worker looks again, for example after a restart of the triggerer.
        assert isinstance(asyncio.run(keep_forwarding(session(run, 5))), NotYet)
        run.artefacts.write_json(run.id, forwarding._LATER, FORWARDED.to_json())
        # Also where a retry takes it, since the worker died before it was stored.
        for _ in range(2):
            said = asyncio.run(keep_forwarding(session(run, 5)))
            assert isinstance(said, Done)
            assert said.result == FORWARDED
        run.artefacts.write_json(run.id, forwarding._END, time.time() - 700)


def test_a_cluster_that_never_answered_fails_the_task_once(run: Run) -> None:
    assert isinstance(asyncio.run(keep_forwarding(session(run, 5))), NotYet)
    run.artefacts.write_json(run.id, forwarding._END, time.time() - 1)
    with pytest.raises(PreconditionFailed, match=r"forwarded in 5 min 0 s is not known: .*blue did not answer"):
        asyncio.run(keep_forwarding(session(run, 5)))
    run.artefacts.write_json(run.id, forwarding._END, time.time() - 700)
    assert isinstance(asyncio.run(keep_forwarding(session(run, 5))), NotYet)


def test_a_triggerer_that_comes_late_leaves_it_to_the_worker(run: Run) -> None:
    assert asyncio.run(forward_until_end(session(run, 5))) == ""
    assert run.stored(forwarding._LATER) is None


def test_a_failed_first_pass_reports_nothing_of_an_earlier_attempt(run: Run) -> None:
    run.artefacts.write_json(run.id, "results/keep_forwarding.json", FORWARDED.to_json())
    assert FORWARDING.end is not None
    ended = FORWARDING.end(run, {}, {"forward_acknowledgments": "blue does not answer."})
    assert ended.document == {"failed": ["forward_acknowledgments"]}


def test_a_scheduled_run_without_a_cluster_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidRequest, match="set 'cluster' in PULSAR_FLEET_FORWARD_ACKNOWLEDGMENTS"):
        FORWARDING.validate({"cluster": None, "namespaces": ["acme/readers"]})
