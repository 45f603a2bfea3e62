"""The connection documents as routes of Airflow's server, behind a token: applications have no login of Airflow."""

from __future__ import annotations

import logging

from fastapi import HTTPException, Request
from fastapi.responses import JSONResponse

from pulsar_fleet.airflow.web.tokens import app_behind_token
from pulsar_fleet.clients.document import GROUP
from pulsar_fleet.clients.store import ConnectionDocuments
from pulsar_fleet.cluster.errors import FleetError

log = logging.getLogger(__name__)

PREFIX = "/pulsar-fleet-clients"
TOKEN_VARIABLE = "PULSAR_FLEET_CLIENTS_TOKEN_FILE"  # noqa: S105 the name of a variable

app = app_behind_token("Pulsar Fleet clients", TOKEN_VARIABLE)


@app.get("/{group}")
def document(group: str, request: Request) -> JSONResponse:
    """What the applications of a group follow: the version that was published last, also where somebody has changed
    the file that others read: a client must not go where nobody has sent it. One small file is read."""
    try:
        documents = ConnectionDocuments.open()
        published = documents.published(group) if GROUP.fullmatch(group) else None
    except (FleetError, OSError) as error:
        log.warning("%s", error)
        # A client stays where it is while it gets no document.
        raise HTTPException(503, "The document cannot be read: the log of this server says why.") from error
    if published is None:
        raise HTTPException(404, "There is no such connection document.")
    if request.client:
        documents.note_reader(group, request.client.host)
    headers = {"Cache-Control": "no-store", "ETag": f'"{published.version}"'}
    return JSONResponse(published.document.to_json(), headers=headers)
