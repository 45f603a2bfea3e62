"""The alerts of a DAG by Airflow's own means: a callback of its failed runs, and a deadline."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from importlib import import_module
from inspect import isclass
from typing import Any

from pulsar_fleet.airflow.run import record_end
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.settings.alerts import VARIABLE, Alerts


def run_alerts(dag_id: str) -> dict[str, Any]:
    """Arguments of the DAG: its failed runs are recorded, and told by what the environment variable names.

    It imports the module of that.

    :raises InvalidRequest: the variable cannot be used; Airflow shows it as the import error of the DAG's file.
    """
    alerts = Alerts.read()
    if not alerts.callback:
        return {"on_failure_callback": [record_end]}
    arguments: dict[str, Any] = {"on_failure_callback": [record_end, _callback(alerts)]}
    if minutes := alerts.deadlines.get(dag_id):
        arguments["deadline"] = _deadline(alerts, minutes)
    return arguments


def _callback(alerts: Alerts) -> Any:
    """The notifier, or the function with its named arguments."""
    module, _, name = alerts.callback.rpartition(".")
    try:
        target = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidRequest(f"{VARIABLE} names {alerts.callback!r}, which cannot be imported: {error}.") from error
    try:
        return target(**alerts.arguments) if isclass(target) else partial(target, **alerts.arguments)
    except TypeError as error:
        raise InvalidRequest(f"{VARIABLE} has other arguments than {alerts.callback!r} takes: {error}.") from error


def _deadline(alerts: Alerts, minutes: float) -> Any:
    # Airflow 3.1 has them here only.
    from airflow.sdk.definitions.deadline import (  # type: ignore[attr-defined]
        AsyncCallback,
        DeadlineAlert,
        DeadlineReference,
    )

    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(minutes=minutes),
        callback=AsyncCallback(alerts.callback, dict(alerts.arguments)),
    )
