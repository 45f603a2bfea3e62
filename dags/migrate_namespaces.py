"""### Move namespaces from blue to green while their clients keep running

1. **Check** — every gate is evaluated; one blocker stops the run, and nothing has been changed.
2. **Prepare** — topics, schemas, policies, permissions and subscriptions are created on green; blue is held still;
   what is stored is copied by geo-replication where that is needed.
3. **Switch** — writers are quieted for 2–3 s, clients are redirected. *From here on there is no way back but a second
   migration.*
4. **Prove** — blue's messages are compared with green's copy, as many clients as before are on green, blue is restored.

Blue must stay up until the applications' configuration names green: it redirects those that start anew.
The page `docs/migrate_namespaces.md` says what to do at each stop.
"""

from __future__ import annotations

from airflow.sdk import Param, dag

from pulsar_fleet.airflow.params import connection_param, namespaces_param
from pulsar_fleet.airflow.run import DEFAULT_ARGS
from pulsar_fleet.airflow.runbooks import migration
from pulsar_fleet.airflow.sensors import MigrationSensor
from pulsar_fleet.airflow.triggers import Awaited

PARAMS = {
    "blue": connection_param("pulsar_blue", "Blue", "Connection of the cluster that the namespaces leave."),
    "green": connection_param("pulsar_green", "Green", "Connection of the cluster that they move to."),
    "namespaces": namespaces_param("What to move, one tenant/namespace per line."),
    "strategy": Param(
        "auto",
        type="string",
        enum=["auto", "redirect", "replicate_then_switch"],
        title="Strategy",
        description="auto takes redirect where every subscription drains by itself and nothing is retained, "
        "else replicate_then_switch.",
    ),
    "quiet_seconds": Param(
        1.0,
        type="number",
        minimum=0.5,
        maximum=5,
        title="Quiet before the switch, seconds",
        description="Writers are held to 1 message/s for so long before topics are closed; longer only adds silence.",
    ),
    "acknowledged_singly": Param(
        "carry",
        type="string",
        enum=["carry", "redeliver"],
        title="Messages acknowledged one by one",
        description="With replicate_then_switch, behind a message that is not acknowledged: carry acknowledges them on "
        "green too, redeliver lets them come again; the plan says how many.",
    ),
    "proof_max_age_minutes": Param(
        240,
        type="integer",
        minimum=1,
        maximum=10080,
        title="Age of the proof, minutes",
        description="The switch refuses when what it relies on was proven longer ago, or anything changed since.",
    ),
    "drain_timeout_minutes": Param(
        60,
        type="integer",
        minimum=1,
        maximum=10080,
        title="Time for copying and draining, minutes",
        description="After that long without an end the run fails and says what is missing.",
    ),
    "delete_inactive_topics_on_blue": Param(
        False,
        type="boolean",
        title="Let blue delete inactive topics again",
        description="Leave off while consumers that subscribe by pattern have not been restarted against green: "
        "they lose a topic on green when blue deletes it.",
    ),
    "remove_topics_on_blue": Param(
        False,
        type="boolean",
        title="Remove topics on blue",
        description="At the end, remove the closed topics on blue. Leave off until every application names green: "
        "consumers by pattern lose a topic with it, and nobody comes to a partitioned one through blue any more.",
    ),
    "dry_run": Param(False, type="boolean", title="Dry run", description="Evaluate every gate, change nothing."),
}
WAIT = {
    "blue": "{{ params.blue }}",
    "green": "{{ params.green }}",
    "timeout_minutes": "{{ params.drain_timeout_minutes }}",
}


@dag(
    schedule=None,
    allowed_run_types=["manual", "operator_triggered"],
    max_active_runs=1,
    params=PARAMS,
    default_args=DEFAULT_ARGS,
    doc_md=__doc__,
    tags=["pulsar", "migration"],
)
def migrate_namespaces():
    checked = migration.check_gates(request=migration.read_request())
    prepared = migration.prepare_green(checked=checked)
    before = migration.hold_blue_still(checked=checked)
    replicating = migration.start_replication(checked=checked)
    replicated = MigrationSensor(task_id="wait_replicated", awaited=Awaited.REPLICATED, moves=checked["moves"], **WAIT)
    proven = migration.prove_copy(checked=checked)
    switched = migration.switch_over(checked=checked, before=before)
    compared = migration.compare_subscriptions(checked=checked)
    drained = MigrationSensor(task_id="wait_drained", awaited=Awaited.DRAINED, moves=checked["moves"], **WAIT)
    verified = migration.verify_equal(checked=checked)
    cleaned = migration.clean_up_blue(checked=checked, before=before)

    prepared >> before >> replicating >> replicated >> proven >> switched >> [compared, drained] >> verified >> cleaned
    cleaned >> migration.restore_blue() >> migration.write_report()


migrate_namespaces()
