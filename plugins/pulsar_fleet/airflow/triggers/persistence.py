"""When is an event of a trigger stored? Airflow 3.1 and 3.2 do not tell, and 3.3 does not tell triggers of tasks."""

from __future__ import annotations

import asyncio

_SENT_SECONDS = 3.0
"""The triggerer sends new events to its supervisor about once a second."""


async def until_persisted() -> None:
    """Wait until the event that was yielded before this call is in Airflow's database.

    A supervisor that cannot write to the database answers no request either. It stores the events of a message before
    it reads the next, so two answers, one after the other, mean that what was sent before them is stored.
    """
    await asyncio.sleep(_SENT_SECONDS)
    for _ in range(2):
        await _supervisor_answers()


async def _supervisor_answers() -> None:
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import GetDRCount

    supervisor = getattr(task_runner, "SUPERVISOR_COMMS", None)
    if supervisor is not None:
        await supervisor.asend(GetDRCount(dag_id=""))
