"""What the person who looks at the pages may do, by Airflow's permissions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

import sqlalchemy as sa
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance

from pulsar_fleet.airflow.web.pages import base_path
from pulsar_fleet.fleet.actions import Approval, Visitor

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session


def waiting_approvals(
    session: Session, dag_ids: Collection[str], airflow: str, may_answer: Callable[[str], bool]
) -> list[Approval]:
    """The unanswered questions of these DAGs, the oldest first.

    :param airflow: the path of Airflow itself.
    :param may_answer: whether the visitor may answer questions of a DAG.
    """
    query = (
        sa.select(HITLDetail, TaskInstance)
        .join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        .where(HITLDetail.responded_at.is_(None), TaskInstance.dag_id.in_(dag_ids), TaskInstance.end_date.is_(None))
        .order_by(HITLDetail.created_at)
    )
    now = datetime.now(UTC)
    return [
        Approval(
            subject=f"{detail.subject} ({task.dag_id})",
            link=f"{airflow}/dags/{_part(task.dag_id)}/runs/{_part(task.run_id)}/tasks/{_part(task.task_id)}"
            f"{f'/mapped/{task.map_index}' if task.map_index >= 0 else ''}/required_actions",
            waiting=now - detail.created_at,
            run_id=f"{task.dag_id}/{task.run_id}",
            allowed=may_answer(task.dag_id),
        )
        for detail, task in session.execute(query)
    ]


def _part(name: str) -> str:
    return quote(name, safe="")


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
