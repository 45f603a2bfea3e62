"""The plugin that adds the Fleet page to Airflow's navigation, links to tasks, and the metrics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink

from pulsar_fleet.airflow.operators.approval import PlanApprovalOperator
from pulsar_fleet.airflow.operators.procedure import ProcedureTask
from pulsar_fleet.airflow.sensors.step import StepSensor
from pulsar_fleet.airflow.web import clients, metrics
from pulsar_fleet.airflow.web.app import app
from pulsar_fleet.airflow.web.pages import PREFIX, pages, stored_report
from pulsar_fleet.cluster.errors import FleetError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


log = logging.getLogger(__name__)


def _operators() -> list[type[BaseOperator]]:
    """The classes of the procedures' tasks; those of Spark need its extra."""
    classes: list[type[BaseOperator]] = [
        PlanApprovalOperator,
        ProcedureTask,
        StepSensor,
    ]
    try:
        from pulsar_fleet.airflow.operators import spark
    except ImportError:
        return classes
    return [*classes, spark.SparkStepOperator]


OPERATORS = _operators()


class ReportLink(BaseOperatorLink):
    """The report of the task's run; no link before the run has stored one, or while the store cannot be read."""

    name = "Report"
    operators = OPERATORS

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Read the artefact store; called when a person opens the task."""
        run_id = f"{ti_key.dag_id}/{ti_key.run_id}"
        try:
            return pages().report(run_id) if stored_report(run_id) else ""
        except FleetError as error:
            # An error here would hide the other links of the task.
            log.warning("The report of %s: %s", run_id, error)
            return ""


class FleetLink(BaseOperatorLink):
    """The Fleet page."""

    name = "Fleet"
    operators = OPERATORS

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Reads nothing."""
        return pages().fleet()


class PulsarFleetPlugin(AirflowPlugin):
    """The Fleet page, and the links to it."""

    name = "pulsar_fleet"
    fastapi_apps = [  # noqa: RUF012 Airflow declares it so
        {"app": app, "url_prefix": PREFIX, "name": "Pulsar Fleet"},
        {"app": metrics.app, "url_prefix": metrics.PREFIX, "name": "Pulsar Fleet metrics"},
        {"app": clients.app, "url_prefix": clients.PREFIX, "name": "Pulsar Fleet clients"},
    ]
    external_views = [  # noqa: RUF012 Airflow declares it so
        {
            "name": "Fleet",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "url_route": "fleet",
            "nav_top_level": True,
        }
    ]
    operator_extra_links = [ReportLink(), FleetLink()]  # noqa: RUF012 Airflow declares it so
