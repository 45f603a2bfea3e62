"""What the person who looks at the pages may do, by Airflow's permissions."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

from pulsar_fleet.airflow.web.approvals import waiting_approvals
from pulsar_fleet.airflow.web.pages import base_path
from pulsar_fleet.fleet.actions import Visitor

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session


def visitor_of(session: Session, user: BaseUser) -> Visitor:
    """The questions that the person may see, and what the person may start; each DAG is asked for once."""
    visible = get_auth_manager().get_authorized_dag_ids(user=user)

    @cache
    def may_answer(dag_id: str) -> bool:
        return allowed(user, "PUT", dag_id, DagAccessEntity.HITL_DETAIL)

    @cache
    def may_start(dag_id: str) -> bool:
        return dag_id in visible and allowed(user, "POST", dag_id, DagAccessEntity.RUN)

    return Visitor(approvals=waiting_approvals(session, visible, base_path(), may_answer), may_start=may_start)


def allowed(user: BaseUser, method: ResourceMethod, dag_id: str, entity: DagAccessEntity | None = None) -> bool:
    """Whether Airflow's auth manager lets the person do it to a DAG."""
    details = DagDetails(id=dag_id)
    return get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user)
