"""The metrics as a route of Airflow's server, behind a token of its own: Prometheus has no login of Airflow."""

from __future__ import annotations

from fastapi.responses import Response

from pulsar_fleet.airflow.web.tokens import app_behind_token
from pulsar_fleet.clients.store import followed_groups
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.fleet.metrics import CONTENT_TYPE, metrics_text
from pulsar_fleet.fleet.records import moved_groups, read_fleet, read_oldest, read_returns
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger

PREFIX = "/pulsar-fleet-metrics"
TOKEN_VARIABLE = "PULSAR_FLEET_METRICS_TOKEN_FILE"  # noqa: S105 the name of a variable

app = app_behind_token("Pulsar Fleet metrics", TOKEN_VARIABLE)


@app.get("/metrics")
def metrics() -> Response:
    """Every metric, read from the ledger now."""
    ledger = Ledger.open()
    groups = followed_groups(ledger)
    try:
        returns = read_returns(ledger, Artefacts.open(), groups)
    except FleetError:
        # The other alerts do not need the artefacts.
        returns = {}
    moved = moved_groups(groups, returns)
    return Response(metrics_text(read_fleet(ledger), read_oldest(ledger), moved), media_type=CONTENT_TYPE)
