"""A procedure has the same steps and settings on the terminal as on Airflow: a name in a message leads to both."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.cli import all_commands
from pulsar_fleet.procedures.abort import ABORT
from pulsar_fleet.procedures.failback import FAILBACK
from pulsar_fleet.procedures.migration import MIGRATION
from pulsar_fleet.procedures.procedure import Procedure


@pytest.mark.parametrize("procedure", [MIGRATION, FAILBACK, ABORT], ids=["migrate", "fail-back", "abort"])
def test_every_step_on_the_terminal_is_a_task_of_the_dag(dag_bag: Any, procedure: Procedure) -> None:
    assert set(procedure.steps()) == {task.task_id for task in dag_bag.dags[procedure.name].tasks}


WHOLE = {
    "onboard_cluster": "onboard",
    "replicate_namespaces": "replicate",
    "serve_read_only": "serve-read-only",
    "verify_clusters": "verify",
    "verify_replication": "verify-replication",
    "verify_read_only": "verify-read-only",
    "migrate_namespaces": "migrate",
    "fail_back_namespaces": "fail-back",
    "abort_migration": "abort",
}
# Of Airflow: who answers and when, and from which size a Spark job reads. A command asks at once and reads by itself.
ONLY_IN_FORMS = {"approval_hours", "auto_approve", "spark_above_entries", "compare_in_spark"}
ONLY_IN_COMMANDS = {"as_json", "output", "resume", "yes"}
SHORT = {"select": "selection", "allow": "allow_changes"}


@pytest.mark.parametrize("dag_id", WHOLE)
def test_a_command_has_the_settings_of_the_form_with_the_same_defaults(dag_bag: Any, dag_id: str) -> None:
    options = {
        SHORT.get(str(option.name), option.name): option.default for option in all_commands()[WHOLE[dag_id]].params
    }
    form = dag_bag.dags[dag_id].params
    params = {name: form.get_param(name).value for name in form}

    assert set(params) - set(options) - ONLY_IN_FORMS == set()
    assert set(options) - set(params) - ONLY_IN_COMMANDS == set()
    # The clusters have no default on the terminal, `auto` and an empty list are not written.
    given = {name: value for name, value in options.items() if name in params and value is not None}
    assert {name: params[name] for name in given if params[name] or given[name]} == {
        name: value for name, value in given.items() if params[name] or value
    }
