"""The Fleet page, reports, evidence and the check of the audit chain, as routes of Airflow's server.

Every route needs the permission to see plugins. They read the ledger and the artefact store, never a cluster; only the
form of a prepared run starts something, with the permission to start runs of its DAG.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from html import escape

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.middleware.base import RequestResponseEndpoint

from pulsar_fleet.airflow.web import start
from pulsar_fleet.airflow.web.pages import pages, stored_report
from pulsar_fleet.airflow.web.visitor import visitor_of
from pulsar_fleet.clients.store import followed_groups
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, NotFound
from pulsar_fleet.evidence.collect import collect
from pulsar_fleet.evidence.page import evidence_page
from pulsar_fleet.evidence.verify import audit_ledger
from pulsar_fleet.fleet.actions import Situation
from pulsar_fleet.fleet.layout import frame_script_source
from pulsar_fleet.fleet.matrix import MatrixView, matrix_page, read_cells, read_differing_names, read_namespace_names
from pulsar_fleet.fleet.migration import MigrationView, migration_page, read_migration
from pulsar_fleet.fleet.page import View, fleet_page, linked_runs
from pulsar_fleet.fleet.prepared_run import refused_runs
from pulsar_fleet.fleet.records import read_clusters, read_fleet, read_namespaces, read_returns, read_watched
from pulsar_fleet.fleet.replicators import ReplicatorsView, replicators_page
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.cluster_notes import read_notes
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.page import PAGE

_POLICY = (
    f"default-src 'none'; script-src {frame_script_source()}; style-src 'unsafe-inline'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)

app = FastAPI(
    title="Pulsar Fleet",
    dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
    # The generated pages of an API would be public.
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)


app.include_router(start.router)


@app.middleware("http")
async def add_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Only their own script runs in these pages, nothing is loaded from elsewhere, and no proxy keeps them."""
    answer = await call_next(request)
    answer.headers["Content-Security-Policy"] = _POLICY
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-Content-Type-Options"] = "nosniff"
    return answer


@app.exception_handler(FleetError)
async def show_error(_: Request, error: Exception) -> HTMLResponse:
    """One sentence instead of a stack trace."""
    state = 404 if isinstance(error, NotFound) else 400 if isinstance(error, InvalidRequest) else 503
    return HTMLResponse(_text_page("Pulsar Fleet", str(error)), state)


@app.get("/")
def fleet(
    session: SessionDep, user: GetUserDep, name: str = "", phase: str = "", page: int = 1, live: bool = False
) -> HTMLResponse:
    """The Fleet page."""
    links, view = pages(), View(name=name, phase=phase, number=page, live=live)
    ledger, artefacts = Ledger.open(), Artefacts.open()
    state = read_fleet(ledger)
    refused = refused_runs(list(state.last_runs.values()), ledger, artefacts)
    visitor, groups = visitor_of(session, user), followed_groups(ledger)
    now = Situation(
        state=state,
        notes=read_notes(artefacts),
        visitor=visitor,
        refused=refused,
        groups=groups,
        returns=read_returns(ledger, artefacts, groups),
    )
    records = read_namespaces(ledger, [row.namespace for row in view.select(state.namespaces).rows])
    reports = artefacts.runs_with(PAGE, linked_runs(now, links, view))
    return HTMLResponse(fleet_page(replace(now, reports=reports), records, links, view))


@app.get("/matrix")
def matrix(name: str = "", differences: bool = False, page: int = 1, live: bool = False) -> HTMLResponse:
    """Every namespace on every cluster, as reconciliation and metadata events last read it."""
    ledger, view = Ledger.open(), MatrixView(name=name, differences=differences, number=page, live=live)
    names = read_differing_names(ledger) if differences else read_namespace_names(ledger)
    cells = read_cells(ledger, view.select(names).rows)
    return HTMLResponse(matrix_page(read_clusters(ledger), names, cells, datetime.now(UTC), pages(), view))


@app.get("/replicators")
def replicators(page: int = 1, live: bool = False) -> HTMLResponse:
    """Every link of clusters as `watch_replication` last read it."""
    artefacts = Artefacts.open()
    watched = read_watched(Ledger.open(), artefacts)
    reports = artefacts.runs_with(PAGE, [fleet.run_id for fleet in watched])
    view = ReplicatorsView(number=page, live=live)
    return HTMLResponse(replicators_page(watched, datetime.now(UTC), pages(), view, reports))


@app.get("/migration")
def migration(session: SessionDep, user: GetUserDep, run: str, page: int = 1, live: bool = False) -> HTMLResponse:
    """A migration as it is recorded, while it runs and afterwards."""
    records, view = read_migration(Run(run, Ledger.open(), Artefacts.open())), MigrationView(number=page, live=live)
    return HTMLResponse(migration_page(records, pages(), view, visitor_of(session, user)))


@app.get("/report")
def report(run: str) -> HTMLResponse:
    """The stored report of a run."""
    reference = stored_report(run)
    if reference is None:
        raise NotFound(f"The run {run!r} has stored no report yet.")
    return HTMLResponse(Artefacts.open().read(reference).decode())


@app.get("/evidence")
def evidence(run: str) -> HTMLResponse:
    """The evidence of a run, made now."""
    return HTMLResponse(evidence_page(collect(Run(run, Ledger.open(), Artefacts.open()))))


@app.get("/audit")
def audit() -> HTMLResponse:
    """Whether a record of the ledger, or a report, was altered, added or removed past this package."""
    result, left_out = audit_ledger(Ledger.open())
    lines = [result.text(), *filter(None, [left_out]), f"Entries: {result.entries:,}. Last: {result.head}"]
    return HTMLResponse(_text_page("Audit chain", "\n".join(lines)))


def _text_page(title: str, text: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f"<body><main><h1>{escape(title)}</h1><pre>{escape(text)}</pre></main></body></html>"
    )
