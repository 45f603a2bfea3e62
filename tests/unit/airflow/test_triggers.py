"""The trigger of a migration survives the way through Airflow's database."""

from __future__ import annotations

from importlib import import_module

from pulsar_fleet.airflow.triggers.migration import MigrationTrigger, Milestone


def test_a_trigger_is_rebuilt_from_what_it_serialises() -> None:
    trigger = MigrationTrigger(
        milestone=Milestone.DRAINED.value, blue="b", green="g", moves={"uri": "m"}, run_id="r", poll_seconds=5, end=9.0
    )
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    rebuilt = getattr(import_module(module), name)(**arguments)
    assert rebuilt.serialize() == (path, arguments)
