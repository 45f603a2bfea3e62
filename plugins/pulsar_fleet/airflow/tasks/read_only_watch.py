"""The task of `watch_read_only`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.conf import with_cluster
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, recorded_in_ledger
from pulsar_fleet.settings.setting import refuse_unknown_settings

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.preflight.findings import Finding
    from pulsar_fleet.read_only.upkeep.watch import ServedTopic

log = logging.getLogger(__name__)

PROCEDURE = "watch_read_only"


@task
def check_read_only(params: dict[str, Any]) -> str:
    """Let the shadow topics follow their sources; fail if data of a source will be deleted, or readers lose messages.

    A retry follows and reads again.
    """
    from pulsar_fleet.cluster.names import parse_namespaces
    from pulsar_fleet.cluster.text import counted

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    if not params["namespaces"]:
        raise AirflowSkipException(
            "No namespace is watched: name read-only namespaces in PULSAR_FLEET_WATCH_READ_ONLY, or in the form."
        )
    run = current_run(context)
    namespaces = parse_namespaces(params["namespaces"])

    async def look_after(admin: AdminClient) -> list[Watched]:
        return [await _look_after(admin, namespace, params, run) for namespace in namespaces]

    with recorded_in_ledger(context, PROCEDURE):
        watched = with_cluster(params, look_after)
        _judge(watched)
    return f"{counted(sum(len(row.topics) for row in watched), 'topic')} examined."


def _judge(watched: list[Watched]) -> None:
    """Log what was read; `PreconditionFailed` if a namespace has an alarm, or could not follow its sources."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.read_only.upkeep.watch import alarms

    for row in watched:
        for topic in row.topics:
            log.info("%s", topic.text())
        for finding in row.findings:
            log.warning("%s", finding.text())
    problems = [
        text for row in watched for text in (*row.failures, *(finding.text() for finding in alarms(row.findings)))
    ]
    if problems:
        raise PreconditionFailed("\n".join(problems))


async def _look_after(admin: AdminClient, namespace: NamespaceName, params: dict[str, Any], run: Run) -> Watched:
    """Follow first, so that what is read is what readers have by then; a namespace that cannot follow is read too."""
    from pulsar_fleet.cluster.errors import FleetError
    from pulsar_fleet.read_only.upkeep.follow import follow_sources
    from pulsar_fleet.read_only.upkeep.watch import watch_namespace

    failures: list[str] = []
    if params["follow"]:
        try:
            followed = await follow_sources(admin, namespace, params["lag_minutes"], run)
        except FleetError as error:
            failures.append(str(error))
        else:
            log.info("%s", followed.text())
            failures += followed.alarms()
    topics, findings = await watch_namespace(admin, namespace, params["lag_minutes"])
    return Watched(topics, findings, tuple(failures))


class Watched(NamedTuple):
    """What was read of one namespace, and what went wrong while it followed its sources."""

    topics: tuple[ServedTopic, ...]
    findings: tuple[Finding, ...]
    failures: tuple[str, ...]
