"""The form of a prepared run, and its start: Airflow has no address that opens its own form filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf as airflow_conf
from airflow.exceptions import ParamValidationError
from airflow.models import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.types import DagRunTriggeredByType
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from pulsar_fleet.airflow.web.pages import pages
from pulsar_fleet.airflow.web.visitor import allowed
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.fleet.prepared_run import (
    PREFIX,
    Errand,
    Field,
    PreparedRun,
    StartForm,
    prepare,
    start_page,
    started_page,
)
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session


router = APIRouter()
Entered = Mapping[str, Sequence[str]]


@router.get("/start")
def form(session: SessionDep, user: GetUserDep, errand: Errand, about: str = "") -> HTMLResponse:
    """The form, made from the records."""
    run = prepare(errand, about, Ledger.open(), Artefacts.open(), user.get_name())
    _require_permission(user, run.dag_id)
    return _form(session, user, run)


async def _entered(request: Request) -> Entered:
    """The fields of the form that was sent, from a page of this Airflow: another site must not start a run."""
    origin = urlsplit(request.headers.get("origin", "")).netloc
    own = {request.headers.get("host", ""), urlsplit(airflow_conf.get("api", "base_url", fallback="")).netloc}
    if not origin or origin not in own:
        raise HTTPException(403, "The form was not sent by a page of this Airflow.")
    return parse_qs((await request.body()).decode(), keep_blank_values=True)


@router.post("/start")
def start(session: SessionDep, user: GetUserDep, entered: Annotated[Entered, Depends(_entered)]) -> Response:
    """Start the run as it was entered, in the name of the person; the form again if Airflow does not take it."""
    dag_id, title, consequence = (entered.get(name, [""])[0] for name in ("dag", "title", "consequence"))
    _require_permission(user, dag_id)
    first = tuple(entered.get("first", ()))
    texts = {name.removeprefix(PREFIX): text[0] for name, text in entered.items() if name.startswith(PREFIX)}
    try:
        run_id = _start(session, user, dag_id, texts, unpause="unpause" in entered)
    except (InvalidRequest, ParamValidationError, ValueError) as error:
        run = PreparedRun(dag_id=dag_id, title=title, consequence=consequence, conf={}, first=first)
        return _form(session, user, run, texts=texts, error=str(error))
    return RedirectResponse(f"{pages().base}/started?{urlencode({'run': run_id})}", 303)


@router.get("/started")
def started(run: str) -> HTMLResponse:
    """What follows: the run in Airflow."""
    return HTMLResponse(started_page(run, pages(), datetime.now(UTC)))


def _start(session: Session, user: BaseUser, dag_id: str, texts: Mapping[str, str], *, unpause: bool) -> str:
    fields = {field.name: field for field in _fields(dag_id, session)}
    conf = {name: fields[name].value(text) for name, text in texts.items() if name in fields}
    dag = _dag(dag_id, session)
    run = trigger_dag(
        dag_id=dag_id,
        triggered_by=DagRunTriggeredByType.UI,
        triggering_user_name=user.get_name(),
        conf=conf,
        session=session,
    )
    if unpause and dag.is_paused and allowed(user, "PUT", dag_id):
        dag.set_is_paused(is_paused=False, session=session)
    return f"{dag_id}/{run.run_id if run else ''}"


def _form(
    session: Session, user: BaseUser, run: PreparedRun, *, texts: Mapping[str, str] | None = None, error: str = ""
) -> HTMLResponse:
    fields, dag = _fields(run.dag_id, session), _dag(run.dag_id, session)
    if texts is None:
        # What the records do not say is entered by hand.
        shown = [field for field in fields if field.name in run.conf or field.name in run.first]
        texts = {field.name: field.text(run.conf.get(field.name, field.default)) for field in shown}
    filled = [(field, texts[field.name]) for field in fields if field.name in texts]
    page = StartForm(
        dag_id=run.dag_id,
        title=run.title,
        consequence=run.consequence,
        shown=[row for row in filled if row[0].name in run.first],
        others=[row for row in filled if row[0].name not in run.first],
        is_paused=bool(dag.is_paused),
        may_unpause=allowed(user, "PUT", run.dag_id),
        has_schedule=dag.next_dagrun_create_after is not None,
        error=error,
    )
    return HTMLResponse(start_page(page, pages(), datetime.now(UTC)), 400 if error else 200)


def _fields(dag_id: str, session: Session) -> list[Field]:
    """The settings of a DAG, as Airflow has them."""
    serialized = SerializedDagModel.get_dag(dag_id, session=session)
    if serialized is None:
        raise NotFound(f"Airflow has no DAG {dag_id!r}.")
    rows: list[tuple[str, Any]] = [(name, serialized.params.get_param(name)) for name in serialized.params]
    return [
        Field(
            name=name,
            title=str(param.schema.get("title") or name),
            description=str(param.description or ""),
            schema=dict(param.schema),
            default=param.value,
        )
        for name, param in rows
    ]


def _dag(dag_id: str, session: Session) -> DagModel:
    dag: DagModel | None = DagModel.get_current(dag_id, session=session)
    if dag is None:
        raise NotFound(f"Airflow has no DAG {dag_id!r}.")
    return dag


def _require_permission(user: BaseUser, dag_id: str) -> None:
    if not allowed(user, "POST", dag_id, DagAccessEntity.RUN):
        raise HTTPException(403, f"You may not start runs of {dag_id}.")
