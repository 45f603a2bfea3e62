"""Airflow: connection type, hook, operators, sensors, triggers, parameters and tasks.

DAG files import the public classes from here. Each class is imported at its first use, since Airflow parses DAG files
every few seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_fleet import import_at_first_use

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

__getattr__ = import_at_first_use(
    __name__,
    {
        "ChangeWindowSensor": "pulsar_fleet.airflow.sensors.migration",
        "CompareSnapshotsOperator": "pulsar_fleet.airflow.operators.spark",
        "FindDriftOperator": "pulsar_fleet.airflow.operators.drift",
        "MigrationSensor": "pulsar_fleet.airflow.sensors.migration",
        "MigrationTrigger": "pulsar_fleet.airflow.triggers.migration",
        "Milestone": "pulsar_fleet.airflow.triggers.migration",
        "PlanApprovalOperator": "pulsar_fleet.airflow.operators.approval",
        "PulsarHook": "pulsar_fleet.airflow.hooks.pulsar",
        "VerifyMessagesOperator": "pulsar_fleet.airflow.operators.spark",
        "VerifySnapshotOperator": "pulsar_fleet.airflow.operators.snapshot_equality",
        "VerifySubscriptionsOperator": "pulsar_fleet.airflow.operators.spark",
        "WaveApprovalOperator": "pulsar_fleet.airflow.operators.approval",
    },
)
