"""The tasks of `verify_replication`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, Stats
from airflow.sdk import get_current_context

from pulsar_fleet.airflow.assets import VERIFIED, emit_verified
from pulsar_fleet.airflow.operators.procedure import task
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run

PROCEDURE = "verify_replication"
_UNREAD = "unread-lists.json"
METRIC = "pulsar_fleet.verify_replication.oldest_proof_seconds"


@task
def find_links(params: dict[str, Any]) -> list[JsonObject]:
    """Find what is replicated between the clusters now. Skipped if no cluster is named.

    Returns batches: one direction between two clusters, its namespaces, of some of them single topics, and the mode:
    incremental behind a proof. What could not be read is stored, and `check_proofs` fails by it.
    """
    from pulsar_fleet.airflow.conf import clusters_of
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.replication.clusters import open_clusters
    from pulsar_fleet.replication.replicated_namespaces import replicated_namespaces
    from pulsar_fleet.settings.setting import refuse_unknown_settings

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    selection = Selection.parse(params["selection"])
    if not params["clusters"]:
        raise AirflowSkipException("No cluster is named: set PULSAR_FLEET_VERIFY_REPLICATION, or fill in the form.")
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))

    async def read(clusters: Any) -> list[JsonObject]:
        links, unread = await replicated_namespaces(clusters, selection)
        run.artefacts.write_json(run.id, _UNREAD, list(unread))
        connections = {name: admin.connection.name for name, admin in clusters.admins.items()}
        return [
            {
                "source": connections[link.source],
                "target": connections[link.target],
                "names": [link.source, link.target],
                "namespaces": part,
                "topics": [str(topic) for name in part for topic in sent[NamespaceName.parse(name)]],
                "mode": mode,
                "number": number,
            }
            for link, sent in links.items()
            for mode, group in _by_mode(run, sorted(map(str, sent)), link.source, link.target).items()
            for number, part in enumerate(_parts(group, params["namespaces_per_job"]))
        ]

    async def run_here() -> list[JsonObject]:
        async with open_clusters(clusters_of(params)) as clusters:
            return await read(clusters)

    return asyncio.run(run_here())


def _parts(names: list[str], size: int) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def _by_mode(run: Run, names: Iterable[str], source: str, target: str) -> dict[str, list[str]]:
    """Namespaces with a proof to continue are read from its end."""
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.verification.messages.incremental import earlier_proofs

    modes: dict[str, list[str]] = {}
    for name in names:
        try:
            proofs = earlier_proofs(run.ledger, run.artefacts, NamespaceName.parse(name), source, target)
        except InvalidRequest:
            proofs = {}
        mode = "incremental" if proofs and all(proof["mesh"] for proof in proofs.values()) else "full"
        modes.setdefault(mode, []).append(name)
    return modes


def _run_of(batch: JsonObject) -> Run:
    """A run of its own for each direction: the ledger keeps one verdict of a namespace for each run."""
    from pulsar_fleet.ledger.run import Run

    run = current_run(get_current_context())
    return Run.open("/".join((run.id, *batch["names"], f"{batch['mode']}-{batch['number']}")))


@task(multiple_outputs=True)
def freeze_bounds(params: dict[str, Any], batch: JsonObject) -> JsonObject:
    """Freeze the bounds: what producers wrote to the source, and its copies on the target."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.names import NamespaceName, TopicName
    from pulsar_fleet.verification import steps
    from pulsar_fleet.verification.coverage import Coverage, Mode
    from pulsar_fleet.verification.request import EntryMapping

    async def freeze() -> JsonObject:
        run = _run_of(batch)
        run.ledger.start_run(run.id, PROCEDURE, batch)
        source, target = cluster_connection(batch["source"]), cluster_connection(batch["target"])
        async with AdminClient(source) as source_admin, AdminClient(target) as target_admin:
            frozen = await steps.freeze_bounds(
                source_admin,
                target_admin,
                [NamespaceName.parse(name) for name in batch["namespaces"]],
                mapping=EntryMapping.MESH,
                coverage=Coverage(mode=Mode(batch["mode"])),
                run=run,
                max_bytes_per_second=params["max_bytes_per_second"],
                topics=[TopicName.parse(topic) for topic in batch["topics"]],
            )
        request, result = steps.store_request(run, frozen)
        return {"request": request, "result": result, "source": batch["source"], "target": batch["target"]}

    return asyncio.run(freeze())


@task(outlets=[VERIFIED])
def read_verdict(batch: JsonObject, frozen: JsonObject) -> JsonObject:
    """Record the verdict; fail unless it is equal, and list the first different messages."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.verification.messages.report import verification_text
    from pulsar_fleet.verification.messages.verdict import Verdict
    from pulsar_fleet.verification.steps import conclude_job

    run = _run_of(batch)
    source, target = cluster_connection(batch["source"]), cluster_connection(batch["target"])
    compared = asyncio.run(conclude_job(run, source, target, frozen))
    equal = compared.verdict is Verdict.EQUAL
    run.ledger.finish_run(run.id, "succeeded" if equal else "failed")
    if not equal:
        raise PreconditionFailed("\n".join(["Not verified as equal.", verification_text(compared)]))
    emit_verified(run, compared)
    return {"messages": compared.messages}


@task(trigger_rule="all_done")
def check_proofs(params: dict[str, Any], batches: list[JsonObject] | None) -> str:
    """Report the age of every proof; fail if one is too old or missing, a list is unknown, or a task failed."""
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.report.page import store_report
    from pulsar_fleet.report.replication.proofs import proofs_report
    from pulsar_fleet.verification.proof_age import proof_ages, too_old

    context = get_current_context()
    failed, run = failed_tasks(context), current_run(context)
    if batches is None and not failed:
        raise AirflowSkipException("Nothing was verified.")
    compared = [(name, *batch["names"]) for batch in batches or () for name in batch["namespaces"]]
    ages = proof_ages(run, sorted(compared))
    old = too_old(ages, params["max_proof_age_hours"])
    Stats.gauge(METRIC, max((age.seconds or 0 for age in ages), default=0))
    stored = run.artefacts.find(run.id, _UNREAD)
    unread = run.artefacts.read_json(stored) if stored else []
    report = proofs_report(ages, old, failed, unread)
    store_report(run, report)
    if (old or unread) and not failed:
        run.ledger.finish_run(run.id, "failed")
        lines = ["Proofs are too old or missing:", *(age.text() for age in old)] if old else []
        lines += ["What is replicated is unknown:", *unread] if unread else []
        raise PreconditionFailed("\n".join(lines))
    finish_run(context, failed)
    return report.markdown()
