"""The tasks of `fail_back_namespaces`: interlocks, blue reopened, then a migration from green to blue.

Blue and green are the same clusters as in the migration. The steps of the failback migrate from green to blue, so they
get the clusters in reverse order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_fleet.airflow.conf import expectations_of, moves_of, original_settings_of, sides_of, strategy_of, waivers_of
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.migration.clusters import Sides

PROCEDURE = "fail_back_namespaces"


@task
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse an invalid configuration: unknown keys, unknown connections or namespaces, one cluster twice."""
    from pulsar_fleet.airflow.conf import parse_namespaces, refuse_unknown_settings, require_two_clusters

    context = get_current_context()
    refuse_unknown_settings(context["dag_run"].conf, context["dag"].params)
    waivers_of(params)
    names = parse_namespaces(params["namespaces"])
    clusters = asyncio.run(require_two_clusters(params["green"], params["blue"], names))
    run = current_run(context)
    run.ledger.start_run(run.id, PROCEDURE, dict(params))
    return {**clusters, "namespaces": [str(name) for name in names]}


@task
def check_failback(params: dict[str, Any], request: JsonObject) -> str:
    """Evaluate every interlock and every gate; a blocker stops the run. Nothing has been changed."""
    from pulsar_fleet.migration.failback.steps import check_failback as check_gates
    from pulsar_fleet.preflight.findings import count_line

    run, names = current_run(get_current_context()), _names(request)
    checking = check_gates(
        sides_of(params),
        run,
        names,
        strategy_of(params),
        allow_removal=params["allow_removal"],
        expected=expectations_of(params, is_failback=True),
        waivers=waivers_of(params),
    )
    return count_line(asyncio.run(checking))


@task
def reopen_blue(params: dict[str, Any], request: JsonObject) -> JsonObject:
    """Clear blue's migration flags and recreate its terminated topics; applications that restart now stay on blue."""
    from pulsar_fleet.migration.failback.steps import reopen

    if params["dry_run"]:
        raise AirflowSkipException("Dry run: every interlock passed. Nothing has been changed.")
    return asyncio.run(reopen(sides_of(params), current_run(get_current_context()), _names(request)))


@task(multiple_outputs=True)
def check_gates(params: dict[str, Any], request: JsonObject) -> JsonObject:
    """Evaluate every gate again, now that blue is reopened, and choose the strategy of each namespace."""
    from pulsar_fleet.migration.steps import check_gates
    from pulsar_fleet.preflight.findings import count_line

    run = current_run(get_current_context())
    checking = check_gates(
        _back(params),
        run,
        _names(request),
        strategy_of(params),
        expected=expectations_of(params, is_failback=True),
        waivers=waivers_of(params),
    )
    moves, findings = asyncio.run(checking)
    return {"moves": moves.to_json(), "findings": count_line(findings)}


@task
def prepare_blue(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Create on blue what green's clients need and blue lacks."""
    from pulsar_fleet.migration.prepare.target import prepare

    return asyncio.run(prepare(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def freeze_green(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Turn off what could unload or delete a topic on green; stores the original settings."""
    from pulsar_fleet.migration.steps import freeze_blue

    run = current_run(get_current_context())
    return asyncio.run(freeze_blue(_back(params), run, moves_of(checked["moves"]))).to_json()


@task
def start_replication(params: dict[str, Any], checked: JsonObject) -> int:
    """Replicate stored messages from green to blue, where the strategy of the namespace requires it."""
    from pulsar_fleet.migration.steps import start_replication

    return asyncio.run(start_replication(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def verify_copy(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare the copied messages, and store the proof that the cut-over requires."""
    from pulsar_fleet.migration.steps import verify_copy

    return asyncio.run(verify_copy(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def cut_over(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """Quiesce the producers, transfer the cursors, redirect the clients to blue. The point of no return."""
    from pulsar_fleet.migration.steps import cut_over

    cutting_over = cut_over(
        _back(params),
        current_run(get_current_context()),
        moves_of(checked["moves"]),
        original_settings_of(before),
        quiesce_seconds=float(params["quiesce_seconds"]),
        proof_max_age_minutes=float(params["proof_max_age_minutes"]),
    )
    return asyncio.run(cutting_over).to_json()


@task
def verify_subscriptions(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare the cursors of subscriptions without consumers on both clusters, right after the cut-over."""
    from pulsar_fleet.migration.steps import verify_subscriptions

    return asyncio.run(
        verify_subscriptions(_back(params), current_run(get_current_context()), moves_of(checked["moves"]))
    )


@task
def verify_messages(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare green's messages with blue's copy; fail unless they are equal."""
    from pulsar_fleet.migration.steps import verify_messages

    return asyncio.run(verify_messages(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def clean_up_green(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """End replication, remove from green what continues on blue, and list the leftovers on green."""
    from pulsar_fleet.migration.steps import clean_up_blue

    run = current_run(get_current_context())
    return asyncio.run(clean_up_blue(_back(params), run, moves_of(checked["moves"]), original_settings_of(before)))


@task(trigger_rule="all_done")
def restore_green(params: dict[str, Any], request: JsonObject) -> list[str]:
    """Restore the settings of green, and close blue again for namespaces that were not cut over."""
    from pulsar_fleet.migration.failback.steps import abort_failback
    from pulsar_fleet.migration.prepare.freeze import find_original_settings
    from pulsar_fleet.migration.steps import restore_blue

    run = current_run(get_current_context())
    done = [*asyncio.run(abort_failback(sides_of(params), run, _names(request)))] if request else []
    before = find_original_settings(run)
    if before is not None:
        done += asyncio.run(restore_blue(_back(params), run, before, delete_topics=False))
    return done


@task(trigger_rule="all_done")
def write_report() -> str:
    """Write the report from the ledger; fail if a task failed."""
    from pulsar_fleet.report.migration import store_migration_report

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    report = store_migration_report(run, failed)
    finish_run(context, failed)
    return report


def _back(params: dict[str, Any]) -> Sides:
    """The clusters in the order of the steps of a migration: the one to leave comes first."""
    from pulsar_fleet.migration.clusters import Sides

    sides = sides_of(params)
    return Sides(sides.green, sides.blue)


def _names(request: JsonObject) -> list[NamespaceName]:
    from pulsar_fleet.cluster.names import NamespaceName

    return [NamespaceName.parse(text) for text in request["namespaces"]]
