"""The tasks of `verify_clusters`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context

from pulsar_fleet.airflow.assets import VERIFIED, emit_verified
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.verification.messages.verdict import Verification

PROCEDURE = "verify_clusters"


@task
def read_request(params: dict[str, Any]) -> list[JsonObject]:
    """Refuse an invalid configuration: unknown keys, unknown connections or namespaces, one cluster twice.

    Returns the batches: the namespaces of one Spark job, and the folder of their documents.
    """
    from pulsar_fleet.airflow.conf import require_two_clusters
    from pulsar_fleet.cluster.names import parse_namespaces
    from pulsar_fleet.settings.setting import refuse_unknown_settings
    from pulsar_fleet.verification.coverage import coverage_of
    from pulsar_fleet.verification.request import FOLDER, EntryMapping, require_comparable

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    names = parse_namespaces(params["namespaces"])
    coverage_of(params)
    require_comparable(EntryMapping(params["mapping"]), subscriptions=params["subscriptions"])
    asyncio.run(require_two_clusters(params["source"], params["target"], names))
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    size = params["namespaces_per_job"]
    batches = [[str(name) for name in names[start : start + size]] for start in range(0, len(names), size)]
    return [
        {"namespaces": batch, "folder": FOLDER if len(batches) == 1 else f"{FOLDER}/{number}"}
        for number, batch in enumerate(batches, start=1)
    ]


@task(multiple_outputs=True)
def freeze_bounds(params: dict[str, Any], batch: JsonObject) -> JsonObject:
    """Freeze the bounds: the current end of the source, and on the target the messages that came from it."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.verification import steps
    from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
    from pulsar_fleet.verification.bounds.shadow_topics import ReadFrom
    from pulsar_fleet.verification.coverage import coverage_of
    from pulsar_fleet.verification.request import EntryMapping, Order
    from pulsar_fleet.verification.subscriptions import steps as subscription_steps

    async def freeze() -> JsonObject:
        source, target = cluster_connection(params["source"]), cluster_connection(params["target"])
        names = [NamespaceName.parse(text) for text in batch["namespaces"]]
        run = current_run(get_current_context())
        async with AdminClient(source) as source_admin, AdminClient(target) as target_admin:
            frozen = await steps.freeze_bounds(
                source_admin,
                target_admin,
                names,
                mapping=EntryMapping(params["mapping"]),
                coverage=coverage_of(params),
                run=run,
                examples=params["examples"],
                engine=EngineChoice(params["engine"]),
                keyed=params["keyed_digests"],
                read_from=ReadFrom(params["read_from"]),
                max_bytes_per_second=params["max_bytes_per_second"],
                order=Order(params["order"]),
            )
        request, result = steps.store_request(run, frozen, batch["folder"])
        subscriptions = subscription_steps.result_uri(run, batch["folder"])
        sizes = {"topics": len(frozen.pairs), "entries": frozen.entries}
        return {"request": request, "result": result, "subscriptions": subscriptions, **sizes}

    return asyncio.run(freeze())


@task(trigger_rule="none_failed", outlets=[VERIFIED])
def read_verdict(params: dict[str, Any], batch: JsonObject, frozen: JsonObject) -> JsonObject:
    """Record the verdict; fail unless it is equal, and list the first different messages and subscriptions."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.verification.messages.report import verification_text
    from pulsar_fleet.verification.messages.verdict import Verdict
    from pulsar_fleet.verification.subscriptions.report import subscription_text
    from pulsar_fleet.verification.subscriptions.steps import conclude as conclude_subscriptions

    run = current_run(get_current_context())
    compared = conclude_messages(run, params["source"], params["target"], frozen, batch["folder"])
    verdicts, texts, count = [compared.verdict], [verification_text(compared)], 0
    if params["subscriptions"]:
        subscriptions = conclude_subscriptions(run, frozen["subscriptions"], batch["folder"])
        verdicts.append(subscriptions.verdict)
        texts.append(subscription_text(subscriptions))
        count = subscriptions.subscriptions
    verdict = Verdict.over(verdicts)
    if verdict is not Verdict.EQUAL:
        raise PreconditionFailed("\n".join(["Not verified as equal.", *texts]))
    emit_verified(run, compared)
    return {"verdict": verdict.value, "messages": compared.messages, "subscriptions": count}


def conclude_messages(run: Run, source: str, target: str, frozen: JsonObject, folder: str = "") -> Verification:
    """Read the result of a Spark job, recheck it on both clusters, and record it.

    :param source: connection id; `target` too.
    :param frozen: the URIs of the job's `request` and `result`.
    :param folder: of the verification's documents in the run; the usual one by default.
    """
    from upath import UPath

    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.verification.request import FOLDER, VerifyRequest
    from pulsar_fleet.verification.steps import conclude

    async def read() -> Verification:
        request = VerifyRequest.from_bytes(UPath(frozen["request"]).read_bytes())
        async with (
            AdminClient(cluster_connection(source)) as source_admin,
            AdminClient(cluster_connection(target)) as target_admin,
        ):
            return await conclude(run, source_admin, target_admin, request, frozen["result"], folder or FOLDER)

    return asyncio.run(read())


@task(trigger_rule="all_done")
def write_report(batches: list[JsonObject] | None) -> str:
    """Report the verdict over all batches; fail unless it is equal."""
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.verification import verification_report

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    report = verification_report(run, failed, batches or [])
    store_report(run, report)
    finish_run(context, failed)
    return report.markdown()
