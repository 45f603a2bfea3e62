"""The questions of runs that wait for an answer, as Airflow has them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

import sqlalchemy as sa
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance

from pulsar_fleet.fleet.actions import Approval

if TYPE_CHECKING:
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
