"""The tasks of `verify_read_only`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context

from pulsar_fleet.airflow.conf import with_cluster
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject

PROCEDURE = "verify_read_only"


@task(multiple_outputs=True)
def freeze_bounds(params: dict[str, Any]) -> JsonObject:
    """Refuse an invalid configuration, then freeze the entries that the sources have now."""
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.read_only.upkeep.proof import freeze_served
    from pulsar_fleet.settings.setting import refuse_unknown_settings
    from pulsar_fleet.verification.steps import store_request

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    namespace, limit = NamespaceName.parse(params["namespace"]), params["max_bytes_per_second"]
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    frozen = with_cluster(params, lambda admin: freeze_served(admin, namespace, max_bytes_per_second=limit))
    request, result = store_request(run, frozen)
    return {"request": request, "result": result, "topics": len(frozen.pairs), "entries": frozen.entries}


@task
def read_verdict(params: dict[str, Any], frozen: JsonObject) -> JsonObject:
    """Record the verdict; fail unless it is equal, and list the first different messages."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.verification.messages.report import verification_text
    from pulsar_fleet.verification.messages.verdict import Verdict
    from pulsar_fleet.verification.steps import conclude_job

    run = current_run(get_current_context())
    cluster = cluster_connection(params["cluster"])
    compared = asyncio.run(conclude_job(run, cluster, cluster, frozen))
    if compared.verdict is not Verdict.EQUAL:
        raise PreconditionFailed("\n".join(["Not verified as equal.", verification_text(compared)]))
    return {"verdict": compared.verdict.value, "messages": compared.messages}


@task(trigger_rule="all_done")
def write_report(params: dict[str, Any]) -> str:
    """Report the verdict; fail unless it is equal."""
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.verification import verification_report
    from pulsar_fleet.verification.request import FOLDER

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    report = verification_report(run, failed, [{"namespaces": [params["namespace"]], "folder": FOLDER}])
    store_report(run, report)
    finish_run(context, failed)
    return report.markdown()
