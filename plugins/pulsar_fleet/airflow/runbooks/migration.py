"""The tasks of `migrate_namespaces`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.migration.frozen import Frozen
    from pulsar_fleet.migration.moves import Moves
    from pulsar_fleet.migration.phases import Strategy
    from pulsar_fleet.migration.steps import Sides
    from pulsar_fleet.records.run import Run

log = logging.getLogger(__name__)

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
    from pulsar_fleet.migration.steps import check

    names = [NamespaceName.parse(text) for text in request["namespaces"]]
    run = current_run(get_current_context())
    moves, findings = asyncio.run(check(_sides(params), run, names, strategy_of(params)))
    plan = asyncio.run(_plan_placements(params, run, moves_of(moves.to_json())))
    log.info("%s", plan)
    return {"moves": moves.to_json(), "findings": count_line(findings)}


@task
def prepare_green(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Create on green everything that blue's clients will need; only what is missing is created."""
    from pulsar_fleet.migration.preparation import prepare

    if params["dry_run"]:
        raise AirflowSkipException("Dry run: every gate was evaluated, nothing is changed.")
    return asyncio.run(prepare(_sides(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def hold_blue_still(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Stop what could unload or delete a topic on blue; remembers how it was."""
    from pulsar_fleet.migration.steps import hold_still

    run = current_run(get_current_context())
    return asyncio.run(hold_still(_sides(params), run, moves_of(checked["moves"]))).to_json()


@task
def start_replication(params: dict[str, Any], checked: JsonObject) -> int:
    """Copy what is stored on blue to green, where a namespace's strategy asks for it."""
    from pulsar_fleet.migration.steps import start_replication as start

    return asyncio.run(start(_sides(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def prove_copy(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare what was copied, message by message, and keep on what the switch may rely."""
    from pulsar_fleet.airflow.runbooks.proof import prove_copy as prove

    return asyncio.run(prove(_sides(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def switch_over(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """Quiet the writers for a moment, place the subscriptions, redirect the clients. The point of no return."""
    from pulsar_fleet.migration.standing import Singles
    from pulsar_fleet.migration.steps import switch_over as switch

    run = current_run(get_current_context())
    moves, quiet = moves_of(checked["moves"]), float(params["quiet_seconds"])
    switching = switch(
        _sides(params),
        run,
        moves,
        frozen_of(before),
        quiet_seconds=quiet,
        singles=Singles(params["acknowledged_singly"]),
        proof_max_age_minutes=float(params["proof_max_age_minutes"]),
    )
    return asyncio.run(switching).to_json()


@task
def compare_subscriptions(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Right after the switch: do the subscriptions without consumers stand on green where they stood on blue?"""
    from pulsar_fleet.airflow.runbooks.proof import prove_placements

    return asyncio.run(prove_placements(_sides(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def verify_equal(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare what blue holds with green's copy, message by message, and fail unless they are equal."""
    from pulsar_fleet.airflow.runbooks.proof import prove

    run = current_run(get_current_context())
    return asyncio.run(prove(_sides(params), run, moves_of(checked["moves"])))


@task
def clean_up_blue(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """End replication and remove from blue what continues on green; say whether anything still lives there."""
    from pulsar_fleet.migration.steps import clean_up

    run, moves = current_run(get_current_context()), moves_of(checked["moves"])
    removing = bool(params["remove_topics_on_blue"])
    return asyncio.run(clean_up(_sides(params), run, moves, frozen_of(before), remove_topics=removing))


@task(trigger_rule="all_done")
def restore_blue(params: dict[str, Any]) -> list[str]:
    """Put back every setting and rate that the run overrode on blue, also when the run failed."""
    from pulsar_fleet.migration.steps import BEFORE, release

    run = current_run(get_current_context())
    before = run.artefacts.find(run.id, BEFORE)
    if before is None:
        raise AirflowSkipException("Nothing was overridden on blue.")
    restored = release(
        _sides(params), run, frozen_of(before.to_json()), delete_topics=params["delete_inactive_topics_on_blue"]
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


async def _plan_placements(params: dict[str, Any], run: Run, moves: Moves) -> str:
    from pulsar_fleet.migration.placement_plan import plan_placements
    from pulsar_fleet.migration.standing import Singles

    async with _sides(params).open() as (blue, _green):
        kept = await plan_placements(blue, run, moves, Singles(params["acknowledged_singly"]))
    return str(run.artefacts.read_json(kept)["text"])


def strategy_of(params: dict[str, Any]) -> Strategy | None:
    """The strategy of the form; None for `auto`."""
    from pulsar_fleet.migration.phases import Strategy

    return None if params["strategy"] == "auto" else Strategy(params["strategy"])


def moves_of(reference: JsonObject) -> Moves:
    """What moves, from its reference."""
    from pulsar_fleet.migration.moves import Moves
    from pulsar_fleet.records.artefacts import Artefacts, Reference

    return Moves.from_json(Artefacts.open().read_json(Reference.from_json(reference)))


def frozen_of(reference: JsonObject) -> Frozen:
    """How the cluster was before it was held still, from its reference."""
    from pulsar_fleet.migration.frozen import Frozen
    from pulsar_fleet.records.artefacts import Artefacts, Reference

    return Frozen.from_json(Artefacts.open().read_json(Reference.from_json(reference)))
