"""Provider metadata for the `apache_airflow_provider` entry point."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pulsar_fleet.airflow.connection_form import metadata


def get_provider_info() -> dict[str, Any]:
    """What this package adds to Airflow: the connection type `pulsar` and its form, the scheme of message queues."""
    return {
        "package-name": "pulsar-fleet",
        "name": "Apache Pulsar",
        "description": "Runbooks for fleets of Apache Pulsar clusters.",
        "versions": [version("pulsar-fleet")],
        "queues": ["pulsar_fleet.airflow.queues.pulsar.PulsarMessageQueueProvider"],
        "connection-types": [
            {
                "connection-type": "pulsar",
                "hook-class-name": "pulsar_fleet.airflow.hooks.pulsar.PulsarHook",
                "hook-name": "Apache Pulsar cluster",
                **metadata(),
            }
        ],
    }
