"""The metrics as a route of Airflow's server, behind a token of its own: Prometheus has no login of Airflow."""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import Response

from pulsar_fleet.fleet.metrics import CONTENT_TYPE, metrics_text
from pulsar_fleet.fleet.records import read_fleet, read_oldest
from pulsar_fleet.ledger.ledger import Ledger

PREFIX = "/pulsar-fleet-metrics"
TOKEN_VARIABLE = "PULSAR_FLEET_METRICS_TOKEN_FILE"  # noqa: S105 the name of a variable
_SCHEME = "Bearer "


def require_token(authorization: Annotated[str, Header()] = "") -> None:
    """404 unless a token is configured, 401 for another one. The file is read each time, so that it can be replaced."""
    name = os.environ.get(TOKEN_VARIABLE)
    try:
        token = Path(name).read_text().strip() if name else ""
    except OSError as error:
        raise HTTPException(503, f"{TOKEN_VARIABLE} names a file that cannot be read: {error.strerror}.") from error
    if not token:
        raise HTTPException(404)
    given = authorization.removeprefix(_SCHEME) if authorization.startswith(_SCHEME) else ""
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})


app = FastAPI(
    title="Pulsar Fleet metrics",
    dependencies=[Depends(require_token)],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)


@app.get("/metrics")
def metrics() -> Response:
    """Every metric, read from the ledger now."""
    ledger = Ledger.open()
    return Response(metrics_text(read_fleet(ledger), read_oldest(ledger)), media_type=CONTENT_TYPE)
