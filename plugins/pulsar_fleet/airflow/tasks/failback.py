"""The tasks of `fail_back_namespaces`: interlocks, blue opened again, then a migration from green to blue.

The form names blue and green as the migration did; in the steps of the migration back, green is the side that is left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_fleet.airflow.conf import expected_of, frozen_of, moves_of, sides_of, strategy_of, waivers_of
from pulsar_fleet.airflow.run import current_run, failed_tasks, finish_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.migration.clusters import Sides

PROCEDURE = "fail_back_namespaces"


@task
def read_request(params: dict[str, Any]) -> JsonObject:
    """Refuse a configuration that cannot be meant: unknown keys, connections, one cluster twice, no such namespace."""
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
    """Evaluate every interlock and every gate at once; go on only without a blocker. Nothing has been changed."""
    from pulsar_fleet.migration.failback.steps import check_failback as check
    from pulsar_fleet.preflight.findings import count_line

    run, names = current_run(get_current_context()), _names(request)
    checking = check(
        sides_of(params),
        run,
        names,
        strategy_of(params),
        allow_removal=params["allow_removal"],
        expected=expected_of(params, returns=True),
        waivers=waivers_of(params),
    )
    return count_line(asyncio.run(checking))


@task
def reopen_blue(params: dict[str, Any], request: JsonObject) -> JsonObject:
    """Clear blue's flags and make its closed topics anew; from here on, applications that start anew stay on blue."""
    from pulsar_fleet.migration.failback.steps import reopen

    if params["dry_run"]:
        raise AirflowSkipException("Dry run: every interlock holds, nothing is changed.")
    return asyncio.run(reopen(sides_of(params), current_run(get_current_context()), _names(request)))


@task(multiple_outputs=True)
def check_gates(params: dict[str, Any], request: JsonObject) -> JsonObject:
    """Evaluate every gate of the migration to blue once more, on blue as it is now, and decide how each moves."""
    from pulsar_fleet.migration.preflight.run import check
    from pulsar_fleet.preflight.findings import count_line

    run = current_run(get_current_context())
    checking = check(
        _back(params),
        run,
        _names(request),
        strategy_of(params),
        expected=expected_of(params, returns=True),
        waivers=waivers_of(params),
    )
    moves, findings = asyncio.run(checking)
    return {"moves": moves.to_json(), "findings": count_line(findings)}


@task
def prepare_blue(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Create on blue everything that green's clients will need; only what is missing is created."""
    from pulsar_fleet.migration.prepare.target import prepare

    return asyncio.run(prepare(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def freeze_green(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Stop what could unload or delete a topic on green; remembers how it was."""
    from pulsar_fleet.migration.steps import hold_still

    run = current_run(get_current_context())
    return asyncio.run(hold_still(_back(params), run, moves_of(checked["moves"]))).to_json()


@task
def start_replication(params: dict[str, Any], checked: JsonObject) -> int:
    """Copy what is stored on green to blue, where a namespace's strategy asks for it."""
    from pulsar_fleet.migration.steps import start_replication as start

    return asyncio.run(start(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def verify_copy(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare what was copied, message by message, and keep on what the switch may rely."""
    from pulsar_fleet.migration.proof import verify_copy as prove

    return asyncio.run(prove(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def cut_over(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """Quiet the writers for a moment, place the subscriptions, redirect the clients to blue. No way back from here."""
    from pulsar_fleet.migration.steps import cut_over as switch

    switching = switch(
        _back(params),
        current_run(get_current_context()),
        moves_of(checked["moves"]),
        frozen_of(before),
        quiesce_seconds=float(params["quiesce_seconds"]),
        proof_max_age_minutes=float(params["proof_max_age_minutes"]),
    )
    return asyncio.run(switching).to_json()


@task
def compare_subscriptions(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Right after the switch: do the subscriptions without consumers stand on blue where they stood on green?"""
    from pulsar_fleet.migration.proof import prove_placements

    return asyncio.run(prove_placements(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def verify_equal(params: dict[str, Any], checked: JsonObject) -> JsonObject:
    """Compare what green holds with blue's copy, message by message, and fail unless they are equal."""
    from pulsar_fleet.migration.proof import prove

    return asyncio.run(prove(_back(params), current_run(get_current_context()), moves_of(checked["moves"])))


@task
def clean_up_green(params: dict[str, Any], checked: JsonObject, before: JsonObject) -> JsonObject:
    """End replication and remove from green what continues on blue; say whether anything still lives there."""
    from pulsar_fleet.migration.steps import clean_up

    run = current_run(get_current_context())
    return asyncio.run(clean_up(_back(params), run, moves_of(checked["moves"]), frozen_of(before)))


@task(trigger_rule="all_done")
def restore_green(params: dict[str, Any], request: JsonObject) -> list[str]:
    """Put back what the run overrode on green, and close blue again where the switch was not reached."""
    from pulsar_fleet.migration.failback.steps import close_unreached
    from pulsar_fleet.migration.prepare.freeze import known_before
    from pulsar_fleet.migration.steps import release

    run = current_run(get_current_context())
    done = [*asyncio.run(close_unreached(sides_of(params), run, _names(request)))] if request else []
    before = known_before(run)
    if before is not None:
        done += asyncio.run(release(_back(params), run, before, delete_topics=False))
    return done


@task(trigger_rule="all_done")
def write_report() -> str:
    """Say what happened, in the ledger's words; fail if anything did."""
    from pulsar_fleet.report.migration import keep_migration_report

    context = get_current_context()
    failed = failed_tasks(context)
    run = current_run(context)
    report = keep_migration_report(run, failed)
    finish_run(context, failed)
    return report


def _back(params: dict[str, Any]) -> Sides:
    """The clusters as the steps of a migration name them: what is left comes first."""
    from pulsar_fleet.migration.clusters import Sides

    forth = sides_of(params)
    return Sides(forth.green, forth.blue)


def _names(request: JsonObject) -> list[NamespaceName]:
    from pulsar_fleet.cluster.names import NamespaceName

    return [NamespaceName.parse(text) for text in request["namespaces"]]
