"""The tasks of `migrate_namespaces`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.migration.frozen import Frozen
    from pulsar_fleet.migration.moves import Moves
    from pulsar_fleet.migration.steps import Sides

PROCEDURE = "migrate_namespaces"


@task
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse a configuration that cannot be meant: unknown keys, connections, one cluster twice, no such namespace."""
    from pulsar_fleet.airflow.request import parse_namespaces, refuse_unknown_settings
    from pulsar_fleet.airflow.runbooks.sides import require_two_clusters

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    names = parse_namespaces(params["namespaces"])
    clusters = asyncio.run(require_two_clusters(params["blue"], params["green"], names))
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    return {**clusters, "namespaces": [str(name) for name in names]}


@task(multiple_outputs=True)
def check_gates(params: dict[str, Any], request: JsonObject) -> JsonObject:
    """Evaluate every gate at once; go on only without a blocker. Nothing has been changed by then."""
    from pulsar_fleet.change.findings import count_line
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.migration.phases import Strategy
    from pulsar_fleet.migration.steps import check

    names = [NamespaceName.parse(text) for text in request["namespaces"]]
    strategy = None if params["strategy"] == "auto" else Strategy(params["strategy"])
    moves, findings = asyncio.run(check(_sides(params), current_run(get_current_context()), names, strategy))
    return {"moves": moves.to_json(), "findings": count_line(findings)}


@task
def prepare_green(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Create on green everything that blue's clients will need; only what is missing is created."""
    from pulsar_fleet.migration.preparation import prepare

    if params["dry_run"]:
        raise AirflowSkipException("Dry run: every gate was evaluated, nothing is changed.")
    return asyncio.run(prepare(_sides(params), current_run(get_current_context()), _moves(checked["moves"])))


@task
def hold_blue_still(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Stop what could unload or delete a topic on blue; remembers how it was."""
    from pulsar_fleet.migration.steps import hold_still

    run = current_run(get_current_context())
    return asyncio.run(hold_still(_sides(params), run, _moves(checked["moves"]))).to_json()


@task
def start_replication(params: dict[str, Any], checked: JsonObject) -> int:
    """Copy what is stored on blue to green, where a namespace's strategy asks for it."""
    from pulsar_fleet.migration.steps import start_replication as start

    return asyncio.run(start(_sides(params), _moves(checked["moves"])))


@task
def switch_over(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """Quiet the writers for a moment, place the subscriptions, redirect the clients. The point of no return."""
    from pulsar_fleet.migration.steps import switch_over as switch

    run = current_run(get_current_context())
    moves, quiet = _moves(checked["moves"]), float(params["quiet_seconds"])
    return asyncio.run(switch(_sides(params), run, moves, _frozen(before), quiet_seconds=quiet)).to_json()


@task
def verify_equal(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare what blue holds with green's copy, message by message, and fail unless they are equal."""
    from pulsar_fleet.airflow.runbooks.proof import prove

    run = current_run(get_current_context())
    return asyncio.run(prove(_sides(params), run, _moves(checked["moves"])))


@task
def clean_up_blue(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """End replication and remove from blue what continues on green; say whether anything still lives there."""
    from pulsar_fleet.migration.steps import clean_up

    run, moves = current_run(get_current_context()), _moves(checked["moves"])
    removing = bool(params["remove_topics_on_blue"])
    return asyncio.run(clean_up(_sides(params), run, moves, _frozen(before), remove_topics=removing))


@task(trigger_rule="all_done")
def restore_blue(params: dict[str, Any]) -> list[str]:
    """Put back every setting and rate that the run overrode on blue, also when the run failed."""
    from pulsar_fleet.migration.steps import BEFORE, release

    run = current_run(get_current_context())
    before = run.artefacts.find(run.id, BEFORE)
    if before is None:
        raise AirflowSkipException("Nothing was overridden on blue.")
    restored = release(
        _sides(params), run, _frozen(before.to_json()), delete_topics=params["delete_inactive_topics_on_blue"]
    )
    return list(asyncio.run(restored))


@task(trigger_rule="all_done")
def write_report() -> str:
    """Say what happened, in the ledger's words; fail if anything did."""
    from pulsar_fleet.report.migration import migration_report

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    report = migration_report(run, failed)
    run.artefacts.write(run.id, "report.md", report.encode())
    finish_run(context, failed)
    return report


def _sides(params: dict[str, Any]) -> Sides:
    from pulsar_fleet.airflow.connection import cluster_connection
    from pulsar_fleet.migration.steps import Sides

    return Sides(cluster_connection(params["blue"]), cluster_connection(params["green"]))


def _moves(reference: JsonObject) -> Moves:
    from pulsar_fleet.migration.moves import Moves
    from pulsar_fleet.records.artefacts import Artefacts, Reference

    return Moves.from_json(Artefacts.open().read_json(Reference.from_json(reference)))


def _frozen(reference: JsonObject) -> Frozen:
    from pulsar_fleet.migration.frozen import Frozen
    from pulsar_fleet.records.artefacts import Artefacts, Reference

    return Frozen.from_json(Artefacts.open().read_json(Reference.from_json(reference)))
