"""The decorator of the procedures' tasks: Airflow's `@task` with a class of its own, which links of tasks are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import task_decorator_factory
from airflow.providers.standard.decorators.python import _PythonDecoratedOperator

from pulsar_fleet.airflow.run import retry_what_can_heal

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ProcedureTask", "task"]


class ProcedureTask(_PythonDecoratedOperator):
    """A function as a task of a procedure. Airflow matches links by class, so they are not shown in other DAGs."""

    @retry_what_can_heal
    def execute(self, context: Context) -> Any:
        """Call the function."""
        return super().execute(context)


if TYPE_CHECKING:
    from airflow.sdk import task
else:

    def task(python_callable: Any = None, **kwargs: Any) -> Any:
        """`@task` or `@task(…)`, with the arguments of Airflow's decorator; by default it has one result."""
        # Airflow 3.1 infers it from annotations that are not imported at run time, and warns.
        kwargs.setdefault("multiple_outputs", False)
        return task_decorator_factory(python_callable, decorated_operator_class=ProcedureTask, **kwargs)
