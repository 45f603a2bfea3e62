"""The tasks of `migrate_namespaces`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_fleet.airflow.conf import expectations_of, moves_of, original_settings_of, sides_of, strategy_of, waivers_of
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.model import Moves

log = logging.getLogger(__name__)

PROCEDURE = "migrate_namespaces"


@task
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse an invalid configuration: unknown keys, unknown connections or namespaces, one cluster twice."""
    from pulsar_fleet.airflow.conf import refuse_unknown_settings, require_two_clusters
    from pulsar_fleet.migration.preflight.waivers import Waiver
    from pulsar_fleet.migration.waves.change_windows import Calendar

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    Calendar.parse(params["change_windows"], params["freeze_windows"])
    for waiver in params["waivers"]:
        Waiver.parse(waiver)
    clusters = asyncio.run(require_two_clusters(params["blue"], params["green"], ()))
    run = current_run(context)
    names = asyncio.run(_selected(params, run))
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    return {**clusters, "namespaces": [str(name) for name in names]}


async def _selected(params: dict[str, Any], run: Run) -> Sequence[NamespaceName]:
    """The namespaces of the continued wave, or of the selection without those that earlier runs moved."""
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.scope import resolve
    from pulsar_fleet.migration.waves.steps import already_moved, read_plan, wave_of

    if params["continues"]:
        return wave_of(read_plan(Run.open(params["continues"])), params["wave"]).namespaces
    if params["wave"] != 1:
        raise InvalidRequest(
            f"Wave {params['wave']!r} has no plan: set 'continues' to the run that planned it, or 'wave' to 1."
        )
    async with sides_of(params).open() as (blue, _green):
        names = await resolve(blue, params["namespaces"])
        moved = await already_moved(blue, names, run.ledger)
    if len(moved) == len(names):
        raise InvalidRequest(
            f"Earlier runs have moved all {len(names)} namespaces of the selection: there is nothing to do."
        )
    for name in moved:
        log.info("%s was moved by an earlier run and is left out", name)
    return [name for name in names if name not in moved]


@task(multiple_outputs=True)
def check_gates(params: dict[str, Any], request: JsonObject) -> JsonObject:
    """Evaluate every gate and plan the waves; a blocker stops the run. Nothing has been changed."""
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.steps import check_gates
    from pulsar_fleet.migration.waves.planner import Limits
    from pulsar_fleet.migration.waves.steps import select_wave, wave_moves
    from pulsar_fleet.preflight.findings import count_line

    run = current_run(get_current_context())
    checked, findings = asyncio.run(
        check_gates(
            sides_of(params),
            run,
            [NamespaceName.parse(text) for text in request["namespaces"]],
            strategy_of(params),
            expected=expectations_of(params),
            waivers=waivers_of(params),
            limits=Limits(namespaces=params["wave_namespaces"], topics=params["wave_topics"]),
        )
    )
    planned_by = Run.open(params["continues"]) if params["continues"] else run
    number = params["wave"]
    moves = wave_moves(run, checked, planned_by=planned_by, number=number)
    plan = asyncio.run(_plan_transfers(params, run, moves))
    taken = select_wave(run, moves, findings, planned_by=planned_by, number=number, transfers=plan)
    return {**taken.to_json(), "findings": count_line(findings)}


@task
def prepare_green(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Create on green what blue's clients need and green lacks."""
    from pulsar_fleet.migration.steps import prepare_green

    return asyncio.run(prepare_green(sides_of(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def recheck_gates(params: dict[str, Any], checked: JsonObject) -> str:
    """Evaluate every gate again, now that green is prepared; a new blocker stops the run."""
    from pulsar_fleet.migration.steps import recheck_gates
    from pulsar_fleet.preflight.findings import count_line

    run = current_run(get_current_context())
    moves = moves_of(checked["moves"])
    return count_line(
        asyncio.run(
            recheck_gates(sides_of(params), run, moves, expected=expectations_of(params), waivers=waivers_of(params))
        )
    )


@task
def freeze_blue(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Turn off what could unload or delete a topic on blue; stores the original settings."""
    from pulsar_fleet.migration.steps import freeze_blue

    run = current_run(get_current_context())
    return asyncio.run(freeze_blue(sides_of(params), run, moves_of(checked["moves"]))).to_json()


@task
def start_replication(params: dict[str, Any], checked: JsonObject) -> int:
    """Replicate stored messages from blue to green, where the strategy of the namespace requires it."""
    from pulsar_fleet.migration.steps import start_replication

    return asyncio.run(
        start_replication(sides_of(params), current_run(get_current_context()), moves_of(checked["moves"]))
    )


@task
def verify_copy(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare the copied messages, and store the proof that the cut-over requires."""
    from pulsar_fleet.migration.steps import verify_copy

    return asyncio.run(verify_copy(sides_of(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def cut_over(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """Quiesce the producers, transfer the cursors, redirect the clients to green. The point of no return."""
    from pulsar_fleet.migration.steps import cut_over
    from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged

    run = current_run(get_current_context())
    moves, quiet = moves_of(checked["moves"]), float(params["quiesce_seconds"])
    cutting_over = cut_over(
        sides_of(params),
        run,
        moves,
        original_settings_of(before),
        quiesce_seconds=quiet,
        individually_acknowledged=IndividuallyAcknowledged(params["individually_acknowledged"]),
        proof_max_age_minutes=float(params["proof_max_age_minutes"]),
    )
    return asyncio.run(cutting_over).to_json()


@task
def verify_subscriptions(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare the cursors of subscriptions without consumers on both clusters, right after the cut-over."""
    from pulsar_fleet.migration.steps import verify_subscriptions

    return asyncio.run(
        verify_subscriptions(sides_of(params), current_run(get_current_context()), moves_of(checked["moves"]))
    )


@task
def verify_messages(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare blue's messages with green's copy; fail unless they are equal."""
    from pulsar_fleet.migration.steps import verify_messages

    run = current_run(get_current_context())
    return asyncio.run(verify_messages(sides_of(params), run, moves_of(checked["moves"])))


@task
def clean_up_blue(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """End replication, remove from blue what continues on green, and list the leftovers on blue."""
    from pulsar_fleet.migration.steps import clean_up_blue

    run, moves = current_run(get_current_context()), moves_of(checked["moves"])
    removing = bool(params["remove_topics_on_blue"])
    return asyncio.run(
        clean_up_blue(sides_of(params), run, moves, original_settings_of(before), remove_topics=removing)
    )


@task(trigger_rule="all_done")
def restore_blue(params: dict[str, Any]) -> list[str]:
    """Restore every setting and rate limit that the run changed on blue, also after a failed run."""
    from pulsar_fleet.migration.prepare.freeze import find_original_settings
    from pulsar_fleet.migration.steps import restore_blue

    run = current_run(get_current_context())
    before = find_original_settings(run)
    if before is None:
        raise AirflowSkipException("The run changed no setting on blue.")
    restored = restore_blue(sides_of(params), run, before, delete_topics=params["delete_inactive_topics_on_blue"])
    return list(asyncio.run(restored))


@task(trigger_rule="all_done")
def write_report() -> str:
    """Write the report from the ledger; fail if a task failed."""
    from pulsar_fleet.airflow.operators.approval import read_approval
    from pulsar_fleet.report.migration import store_migration_report

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    report = store_migration_report(run, failed, read_approval(run))
    finish_run(context, failed)
    return report


@task(multiple_outputs=True)
def plan_next_run(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """The configuration of the run for the next wave; skipped after the last wave, or if `next_waves` is off."""
    if checked["next"] is None:
        raise AirflowSkipException("This was the last wave.")
    if not params["next_waves"]:
        raise AirflowSkipException(
            f"The setting 'next_waves' is off: start wave {checked['next']} by hand with continues and wave."
        )
    run = current_run(get_current_context())
    first = params["continues"] or run.id
    started = first.partition("/")[2]
    return {
        "run_id": f"{started}__wave-{checked['next']}",
        "conf": {**params, "continues": first, "wave": checked["next"]},
    }


async def _plan_transfers(params: dict[str, Any], run: Run, moves: Moves) -> str:
    from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged, plan_transfers

    async with sides_of(params).open() as (blue, _green):
        kept = await plan_transfers(blue, run, moves, IndividuallyAcknowledged(params["individually_acknowledged"]))
    return str(run.artefacts.read_json(kept)["text"])
