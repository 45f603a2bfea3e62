"""The tasks of `fail_back_namespaces` that a migration does not have: its checks, and blue reopened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.conf import inputs_of
from pulsar_fleet.airflow.operators.procedure import task

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject


@task
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse an invalid configuration: unknown keys, unknown connections or namespaces, one cluster twice."""
    from pulsar_fleet.airflow.conf import require_two_clusters
    from pulsar_fleet.migration.procedure import Failback
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Failback.validate(params)
    failback = Failback.of(*inputs_of(context))
    names = failback.namespaces
    clusters = asyncio.run(require_two_clusters(params["green"], params["blue"], names))
    failback.run.ledger.start_run(failback.run.id, failback.NAME, dict(params))
    return {**clusters, "namespaces": [str(name) for name in names]}


@task
def check_failback() -> str:
    """Evaluate every interlock and every gate; a blocker stops the run. Nothing has been changed."""
    from pulsar_fleet.migration.procedure import Failback
    from pulsar_fleet.preflight.findings import count_line

    failback = Failback.of(*inputs_of(get_current_context()))
    return count_line(asyncio.run(failback.check_failback()))


@task
def reopen_blue(params: dict[str, Any]) -> JsonObject:
    """Clear blue's migration flags and recreate its terminated topics; applications that restart now stay on blue."""
    from pulsar_fleet.migration.procedure import Failback

    if params["dry_run"]:
        raise AirflowSkipException("Dry run: every interlock passed. Nothing has been changed.")
    failback = Failback.of(*inputs_of(get_current_context()))
    return dict(asyncio.run(failback.reopen_blue()))


@task(multiple_outputs=True)
def check_gates() -> JsonObject:
    """Evaluate every gate again, now that blue is reopened, and choose the strategy of each namespace."""
    from pulsar_fleet.migration.procedure import Failback
    from pulsar_fleet.preflight.findings import count_line

    failback = Failback.of(*inputs_of(get_current_context()))
    moves, findings = asyncio.run(failback.check_gates())
    return {"moves": moves.to_json(), "findings": count_line(findings)}
