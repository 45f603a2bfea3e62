"""The arguments of `migrate` and `fail-back`: an invalid one is refused before any call to a cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.cli.commands.migration import _procedure
from pulsar_fleet.cli.terminal import UsageError
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.procedure import Failback, Migration
from pulsar_fleet.migration.request import DEFAULTS, MigrationRequest

TERMINAL: Any = SimpleNamespace(note=lambda _: None)
BLUE, GREEN = "http://blue:8080", "http://green:8080"


def configured(**changed: Any) -> dict[str, Any]:
    return {**DEFAULTS, "blue": BLUE, "green": GREEN, "namespaces": ["acme/orders"], **changed}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"green": None}, "Name two clusters"),
        ({"namespaces": []}, "names no namespace"),
        ({"namespaces": ["acme/orders/events"]}, "'acme/orders/events'"),
        ({"quiesce_seconds": 60.0}, "'quiesce_seconds' is 60.0: set it to at least 0.2 and at most 5"),
        ({"waivers": [{"id": "x"}]}, "does not have 'who'"),
        ({"change_windows": ["sometimes"]}, "is not a window"),
    ],
)
def test_an_invalid_argument_is_refused(records: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        _procedure(TERMINAL, Migration, "migrate", configured(**changed), None, yes=True)


def test_a_resumed_run_takes_no_other_setting(records: Path) -> None:
    with pytest.raises(UsageError, match="--resume uses the recorded clusters and settings"):
        _procedure(TERMINAL, Migration, "migrate", configured(), "cli/migrate-1", yes=True)


def test_a_run_that_cannot_be_resumed_is_refused(records: Path) -> None:
    resuming = configured(blue=None, green=None, namespaces=[])
    with pytest.raises(NotFound, match="no run 'cli/nowhere'"):
        _procedure(TERMINAL, Migration, "migrate", resuming, "cli/nowhere", yes=True)
    ledger = Ledger.open()
    ledger.start_run("cli/migrate-1", "migrate_namespaces", {})
    with pytest.raises(UsageError, match="not a run of fail_back_namespaces"):
        _procedure(TERMINAL, Failback, "fail-back", resuming, "cli/migrate-1", yes=True)
    ledger.finish_run("cli/migrate-1", "succeeded")
    with pytest.raises(PreconditionFailed, match=r"has ended \(succeeded\)"):
        _procedure(TERMINAL, Migration, "migrate", resuming, "cli/migrate-1", yes=True)
    ledger.start_run("migrate_namespaces/manual__1", "migrate_namespaces", {})
    with pytest.raises(PreconditionFailed, match="belongs to Airflow"):
        _procedure(TERMINAL, Migration, "migrate", resuming, "migrate_namespaces/manual__1", yes=True)


def test_settings_that_are_not_configured_have_their_defaults() -> None:
    request = MigrationRequest.of({"blue": "b", "green": "g", "namespaces": ["acme"], "unknown": 1})
    assert (request.quiesce_seconds, request.strategy, request.wave) == (0.2, "auto", 1)
