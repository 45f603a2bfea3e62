"""What commands and applications report at the end of a migration, judged."""

from __future__ import annotations

from typing import Any

from tests.support.shell import Said

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import CUT_OVER
from pulsar_fleet.migration.subscriptions.checkpoint import stored_transfers
from pulsar_sandbox.demo.judgement import without_predicted
from pulsar_sandbox.demo.story import Window
from pulsar_sandbox.workload import Tally

DONE = 0


def done(completed: Said) -> Any:
    """The document of a command that has succeeded."""
    assert completed.state == DONE, f"{completed.out[-4000:]}\n{completed.err[-4000:]}"
    return completed.document


def ended(completed: Said) -> Run:
    """The run of a migration that has succeeded."""
    (run,) = done(completed)["runs"]
    assert run["failed"] == [], run
    return Run.open(run["run"])


def windows(run: Run, namespace: NamespaceName) -> dict[str, Window]:
    """What the run said its subscriptions would get twice."""
    transfers, duplicates = stored_transfers(run, str(namespace)), (run.stored(CUT_OVER) or {})[str(namespace)]
    return {
        partition: Window(transfers[TopicName.parse(partition)].end, messages)
        for partition, messages in duplicates["duplicates"].items()
    }


def check(tally: Tally, predicted: dict[str, Window]) -> None:
    """Nothing is lost, keys are in order, and what came twice was predicted."""
    assert (tally.finished, tally.lost, tally.order_breaks) == (True, 0, 0), tally.text()
    repeated = [
        repetition
        for subscription in tally.subscriptions
        for repetition in without_predicted(subscription.duplicates.unexplained, predicted)
    ]
    assert repeated == [], tally.text()
