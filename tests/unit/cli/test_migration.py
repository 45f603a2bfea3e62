"""The arguments of `migrate` and `fail-back`: an invalid one is refused before any call to a cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.cli.procedure import _begun, _resumed
from pulsar_fleet.cli.terminal import UsageError
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.request import DEFAULTS, MigrationRequest
from pulsar_fleet.procedures.failback import FAILBACK
from pulsar_fleet.procedures.migration import MIGRATION

TERMINAL: Any = SimpleNamespace(note=lambda _: None)
BLUE, GREEN = "http://blue:8080", "http://green:8080"


def configured(**changed: Any) -> dict[str, Any]:
    own = {name: value for name, value in DEFAULTS.items() if name in MIGRATION.settings}
    return {**own, "blue": BLUE, "green": GREEN, "namespaces": ["acme/orders"], **changed}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"green": None}, "Name the green: its admin URL or its Airflow connection id"),
        ({"namespaces": []}, "Missing option --namespaces"),
        ({"namespaces": ["acme/orders/events"]}, "'acme/orders/events'"),
        ({"quiesce_seconds": 60.0}, "'quiesce_seconds' is 60.0: set it to at least 0.2 and at most 5"),
        ({"waivers": [{"id": "x"}]}, "does not have 'who'"),
        ({"change_windows": ["sometimes"]}, "is not a window"),
    ],
)
def test_an_invalid_argument_is_refused(records: Path, changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        _begun(TERMINAL, MIGRATION, configured(**changed), "migrate", yes=True)


def test_a_resumed_run_takes_no_other_setting(records: Path) -> None:
    with pytest.raises(UsageError, match="--resume uses the recorded clusters and settings"):
        _resumed(MIGRATION, "cli/migrate-1", configured(), yes=True)


def test_a_run_that_cannot_be_resumed_is_refused(records: Path) -> None:
    resuming = configured(blue=None, green=None, namespaces=[])
    with pytest.raises(NotFound, match="no run 'cli/nowhere'"):
        _resumed(MIGRATION, "cli/nowhere", resuming, yes=True)
    ledger = Ledger.open()
    ledger.start_run("cli/migrate-1", "migrate_namespaces", {})
    with pytest.raises(UsageError, match="not a run of fail_back_namespaces"):
        _resumed(FAILBACK, "cli/migrate-1", {}, yes=True)
    ledger.finish_run("cli/migrate-1", "succeeded")
    assert _resumed(MIGRATION, "cli/migrate-1", resuming, yes=True)[2]
    ledger.finish_run("cli/migrate-1", "undone")
    with pytest.raises(PreconditionFailed, match="was undone"):
        _resumed(MIGRATION, "cli/migrate-1", resuming, yes=True)
    ledger.start_run("migrate_namespaces/manual__1", "migrate_namespaces", {})
    with pytest.raises(PreconditionFailed, match="belongs to Airflow"):
        _resumed(MIGRATION, "migrate_namespaces/manual__1", resuming, yes=True)


def test_settings_that_are_not_configured_have_their_defaults() -> None:
    request = MigrationRequest.of({"blue": "b", "green": "g", "namespaces": ["acme"], "unknown": 1})
    assert (request.quiesce_seconds, request.strategy, request.wave) == (0.2, "auto", 1)
