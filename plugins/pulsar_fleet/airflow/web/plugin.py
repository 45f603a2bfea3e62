"""The plugin that adds the Fleet page to Airflow's navigation."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from pulsar_fleet.airflow.web.app import PREFIX, app


class PulsarFleetPlugin(AirflowPlugin):
    """The Fleet page."""

    name = "pulsar_fleet"
    fastapi_apps = [{"app": app, "url_prefix": PREFIX, "name": "Pulsar Fleet"}]  # noqa: RUF012 Airflow declares it so
    external_views = [  # noqa: RUF012 Airflow declares it so
        {
            "name": "Fleet",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "url_route": "fleet",
            "nav_top_level": True,
        }
    ]
