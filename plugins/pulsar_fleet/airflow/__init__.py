"""Airflow: connection type, hook, operators, sensors, triggers, parameters and tasks.

DAG files import the public classes from here. Each class is imported at its first use, since Airflow parses DAG files
every few seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_fleet import import_at_first_use

if TYPE_CHECKING:
    from pulsar_fleet.airflow.hooks.pulsar import PulsarHook
    from pulsar_fleet.airflow.notifications.pulsar import PulsarNotifier
    from pulsar_fleet.airflow.operators.acknowledgments import ForwardAcknowledgmentsOperator
    from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator, WaveApprovalOperator
    from pulsar_fleet.airflow.operators.drift import FindDriftOperator
    from pulsar_fleet.airflow.operators.messages import PulsarConsumeOperator, PulsarPublishOperator
    from pulsar_fleet.airflow.operators.snapshot_equality import VerifySnapshotOperator
    from pulsar_fleet.airflow.operators.spark import (
        CompareSnapshotsOperator,
        MigrationProofOperator,
        VerifyMessagesOperator,
        VerifySubscriptionsOperator,
    )
    from pulsar_fleet.airflow.sensors.conditions import (
        NamespacePhaseSensor,
        PulsarBacklogSensor,
        PulsarReplicationSensor,
        PulsarSubscriptionSensor,
        PulsarTopicTerminatedSensor,
    )
    from pulsar_fleet.airflow.sensors.failover import ApplicationsArrivedSensor
    from pulsar_fleet.airflow.sensors.migration import ChangeWindowSensor, MigrationSensor
    from pulsar_fleet.airflow.sensors.replication import BacklogSentSensor
    from pulsar_fleet.airflow.triggers.acknowledgments import ForwardingTrigger
    from pulsar_fleet.airflow.triggers.conditions import ConditionTrigger
    from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger
    from pulsar_fleet.airflow.triggers.migration import MigrationTrigger, Milestone

__all__ = [
    "ApplicationsArrivedSensor",
    "BacklogSentSensor",
    "ChangeWindowSensor",
    "CompareSnapshotsOperator",
    "ConditionTrigger",
    "FindDriftOperator",
    "ForwardAcknowledgmentsOperator",
    "ForwardingTrigger",
    "MigrationProofOperator",
    "MigrationSensor",
    "MigrationTrigger",
    "Milestone",
    "NamespacePhaseSensor",
    "PlanApprovalOperator",
    "PulsarBacklogSensor",
    "PulsarConsumeOperator",
    "PulsarHook",
    "PulsarMessageTrigger",
    "PulsarNotifier",
    "PulsarPublishOperator",
    "PulsarReplicationSensor",
    "PulsarSubscriptionSensor",
    "PulsarTopicTerminatedSensor",
    "VerifyMessagesOperator",
    "VerifySnapshotOperator",
    "VerifySubscriptionsOperator",
    "WaveApprovalOperator",
]

__getattr__ = import_at_first_use(
    __name__,
    {
        "ApplicationsArrivedSensor": "pulsar_fleet.airflow.sensors.failover",
        "BacklogSentSensor": "pulsar_fleet.airflow.sensors.replication",
        "ChangeWindowSensor": "pulsar_fleet.airflow.sensors.migration",
        "CompareSnapshotsOperator": "pulsar_fleet.airflow.operators.spark",
        "ConditionTrigger": "pulsar_fleet.airflow.triggers.conditions",
        "FindDriftOperator": "pulsar_fleet.airflow.operators.drift",
        "ForwardAcknowledgmentsOperator": "pulsar_fleet.airflow.operators.acknowledgments",
        "ForwardingTrigger": "pulsar_fleet.airflow.triggers.acknowledgments",
        "MigrationProofOperator": "pulsar_fleet.airflow.operators.spark",
        "MigrationSensor": "pulsar_fleet.airflow.sensors.migration",
        "MigrationTrigger": "pulsar_fleet.airflow.triggers.migration",
        "Milestone": "pulsar_fleet.airflow.triggers.migration",
        "NamespacePhaseSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PlanApprovalOperator": "pulsar_fleet.airflow.operators.approval",
        "PulsarBacklogSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PulsarConsumeOperator": "pulsar_fleet.airflow.operators.messages",
        "PulsarHook": "pulsar_fleet.airflow.hooks.pulsar",
        "PulsarMessageTrigger": "pulsar_fleet.airflow.triggers.messages",
        "PulsarNotifier": "pulsar_fleet.airflow.notifications.pulsar",
        "PulsarPublishOperator": "pulsar_fleet.airflow.operators.messages",
        "PulsarReplicationSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PulsarSubscriptionSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PulsarTopicTerminatedSensor": "pulsar_fleet.airflow.sensors.conditions",
        "VerifyMessagesOperator": "pulsar_fleet.airflow.operators.spark",
        "VerifySnapshotOperator": "pulsar_fleet.airflow.operators.snapshot_equality",
        "VerifySubscriptionsOperator": "pulsar_fleet.airflow.operators.spark",
        "WaveApprovalOperator": "pulsar_fleet.airflow.operators.approval",
    },
)
