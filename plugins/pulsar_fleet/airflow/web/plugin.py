"""The plugin that adds the Fleet page to Airflow's navigation, links to tasks, and the metrics."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from pulsar_fleet.airflow.web import metrics
from pulsar_fleet.airflow.web.app import app
from pulsar_fleet.airflow.web.pages import PREFIX
from pulsar_fleet.airflow.web.task_links import FleetLink, ReportLink


class PulsarFleetPlugin(AirflowPlugin):
    """The Fleet page, and the links to it."""

    name = "pulsar_fleet"
    fastapi_apps = [  # noqa: RUF012 Airflow declares it so
        {"app": app, "url_prefix": PREFIX, "name": "Pulsar Fleet"},
        {"app": metrics.app, "url_prefix": metrics.PREFIX, "name": "Pulsar Fleet metrics"},
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
