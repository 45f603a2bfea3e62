"""Airflow: connection type, hook, operators, sensors, triggers, parameters and tasks.

Your own DAGs import the public classes from here; docs/provider.md describes each of them. Those of the procedures are
imported from their modules. Each class is imported at its first use, since Airflow parses DAG files every few seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_fleet import import_at_first_use

if TYPE_CHECKING:
    from pulsar_fleet.airflow.hooks.pulsar import PulsarHook
    from pulsar_fleet.airflow.notifications.pulsar import PulsarNotifier
    from pulsar_fleet.airflow.operators.messages import PulsarConsumeOperator, PulsarPublishOperator
    from pulsar_fleet.airflow.sensors.conditions import (
        NamespacePhaseSensor,
        PulsarBacklogSensor,
        PulsarReplicationSensor,
        PulsarSubscriptionSensor,
        PulsarTopicTerminatedSensor,
    )
    from pulsar_fleet.airflow.triggers.messages import PulsarMessageTrigger

__all__ = [
    "NamespacePhaseSensor",
    "PulsarBacklogSensor",
    "PulsarConsumeOperator",
    "PulsarHook",
    "PulsarMessageTrigger",
    "PulsarNotifier",
    "PulsarPublishOperator",
    "PulsarReplicationSensor",
    "PulsarSubscriptionSensor",
    "PulsarTopicTerminatedSensor",
]

__getattr__ = import_at_first_use(
    __name__,
    {
        "NamespacePhaseSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PulsarBacklogSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PulsarConsumeOperator": "pulsar_fleet.airflow.operators.messages",
        "PulsarHook": "pulsar_fleet.airflow.hooks.pulsar",
        "PulsarMessageTrigger": "pulsar_fleet.airflow.triggers.messages",
        "PulsarNotifier": "pulsar_fleet.airflow.notifications.pulsar",
        "PulsarPublishOperator": "pulsar_fleet.airflow.operators.messages",
        "PulsarReplicationSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PulsarSubscriptionSensor": "pulsar_fleet.airflow.sensors.conditions",
        "PulsarTopicTerminatedSensor": "pulsar_fleet.airflow.sensors.conditions",
    },
)
