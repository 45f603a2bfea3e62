"""Airflow: connection type, hook, operators, sensors, triggers, parameters and tasks.

DAG files import the public classes from here. Each class is imported at its first use, since Airflow parses DAG files
every few seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsar_fleet.airflow.hooks.pulsar import PulsarHook
    from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator, WaveApprovalOperator
    from pulsar_fleet.airflow.operators.drift import FindDriftOperator
    from pulsar_fleet.airflow.operators.snapshot_equality import VerifySnapshotOperator
    from pulsar_fleet.airflow.operators.spark import (
        CompareSnapshotsOperator,
        VerifyMessagesOperator,
        VerifySubscriptionsOperator,
    )
    from pulsar_fleet.airflow.sensors.migration import ChangeWindowSensor, MigrationSensor
    from pulsar_fleet.airflow.triggers.migration import MigrationTrigger, Milestone

__all__ = [
    "ChangeWindowSensor",
    "CompareSnapshotsOperator",
    "FindDriftOperator",
    "MigrationSensor",
    "MigrationTrigger",
    "Milestone",
    "PlanApprovalOperator",
    "PulsarHook",
    "VerifyMessagesOperator",
    "VerifySnapshotOperator",
    "VerifySubscriptionsOperator",
    "WaveApprovalOperator",
]

_MODULES = {
    "ChangeWindowSensor": "sensors.migration",
    "CompareSnapshotsOperator": "operators.spark",
    "FindDriftOperator": "operators.drift",
    "MigrationSensor": "sensors.migration",
    "MigrationTrigger": "triggers.migration",
    "Milestone": "triggers.migration",
    "PlanApprovalOperator": "operators.approval",
    "PulsarHook": "hooks.pulsar",
    "VerifyMessagesOperator": "operators.spark",
    "VerifySnapshotOperator": "operators.snapshot_equality",
    "VerifySubscriptionsOperator": "operators.spark",
    "WaveApprovalOperator": "operators.approval",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
