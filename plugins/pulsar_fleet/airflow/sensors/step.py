"""A step of a procedure that waits, as a task; by default it waits without a worker slot."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pulsar_fleet.airflow.run import current_run, dag_parsing, retry_what_can_heal, run_until_limit
from pulsar_fleet.airflow.sensors.waiting import WaitingSensor, WaitTimedOut
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.procedures.procedure import NotYet, Session

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from pulsar_fleet.airflow.triggers.waiting import Look
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.procedures.procedure import Procedure, Said, Step

log = logging.getLogger(__name__)


class StepSensor(WaitingSensor):
    """Run a step again and again until it does not wait any more, for as many minutes as its setting says; then it
    fails with what is missing and what to do. Cleared, it looks once more, or waits as long again, as its `Wait` says.

    Between two looks of a worker it is in the triggerer, which looks itself where the step allows it.

    :param step: a step with a `Wait`.
    :param conclude: what the task does with the result.
    :param batch: None where the procedure has none (templated).
    :param timeout: seconds until it fails, if the setting is longer.
    """

    template_fields: Sequence[str] = ("batch",)

    def __init__(
        self,
        *,
        procedure: Procedure,
        step: Step,
        conclude: Callable[[Said, JsonObject], str],
        batch: Any = None,
        deferrable: bool = True,
        mode: str = "reschedule",
        poke_interval: timedelta | float | None = None,
        timeout: timedelta | float = timedelta(days=366),
        **kwargs: Any,
    ) -> None:
        assert step.wait is not None, f"{step.name} has no Wait"
        interval = step.wait.poll_seconds if poke_interval is None else poke_interval
        super().__init__(deferrable=deferrable, mode=mode, poke_interval=interval, timeout=timeout, **kwargs)
        self.batch = batch
        self._procedure, self._step, self._wait, self._conclude = procedure, step, step.wait, conclude
        self._longest = float(self.timeout)
        self._run: Run | None = None
        self._kept: dict[str, Any] = {}
        self._seconds = float(self.poke_interval)

    def read(self, context: Context) -> tuple[bool, str]:
        """Run the step once; fails after the minutes of the setting."""
        from pulsar_fleet.procedures.runner import require_planned

        self._run = current_run(context)
        require_planned(self._procedure, self._run)
        conf = dict(context["params"])
        named = read_connections(self._procedure, conf, self.batch, self._step)
        said = run_until_limit(self, self._look(conf, self._run, named))
        if not isinstance(said, NotYet):
            return True, self._conclude(said, self.batch or {})
        self._seconds = float(self.poke_interval) if said.seconds is None else said.seconds
        if self.remaining_seconds(context) <= 0:
            raise self.timed_out(said.said)
        return False, said.said

    @retry_what_can_heal
    def execute(self, context: Context) -> Any:
        """Wait here, or look once and defer."""
        from pulsar_fleet.procedures.runner import require_planned, resume

        require_planned(self._procedure, current_run(context))
        # Cleared in its middle, a run that had ended goes on.
        resume(current_run(context))
        # In a process that tests DAGs the operator is the same in every run.
        self._kept = {}
        self._limit(context)
        return super().execute(context)

    def remaining_seconds(self, context: Context) -> float:
        """Until the minutes of the setting have passed, unless each attempt waits as long again; the first call begins
        to count."""
        from pulsar_fleet.procedures.runner import waited_seconds

        if self._wait.again:
            return math.inf
        session = Session({}, current_run(context), {}, batch=self.batch or {})
        return self._limit(context) - waited_seconds(self._step, session)

    def _limit(self, context: Context) -> float:
        from pulsar_fleet.procedures.runner import wait_seconds

        limit = wait_seconds(self._step, dict(context["params"]))
        self.timeout = min(self._longest, limit)
        return limit

    def timed_out(self, figures: str) -> WaitTimedOut:
        """The error with what is missing and what to do."""
        from pulsar_fleet.procedures.runner import missed_text

        assert self._run is not None, "it has looked"
        return WaitTimedOut(missed_text(self._step, self._run, float(self.timeout), figures))

    def trigger(self, context: Context, end: float) -> BaseTrigger:
        """What looks, or what sleeps until a worker looks again."""
        until = self.end_of_wait(context, end)
        if (look := self._wait.look) is None:
            return MomentTrigger(moment=min(time.time() + self._seconds, until), end=end)
        conf = dict(context["params"])
        arguments = {
            "work": f"{look.__module__}:{look.__qualname__}",
            "connections": self._procedure.connections(conf, self.batch, self._step),
            "conf": conf,
            "run_id": current_run(context).id,
            "batch": self.batch or {},
        }
        return self.look_again(open_look, arguments, end, until=until)

    def end_of_wait(self, context: Context, end: float) -> float:
        """The earlier one of both limits, seconds since the epoch; a task that resumes at once can be marked failed."""
        return time.time() + max(POLL_SECONDS, min(end - time.time(), self.remaining_seconds(context)))

    @retry_what_can_heal
    def resume(self, context: Context, event: JsonObject) -> Any:
        """Look again: the newest figures decide."""
        self._limit(context)
        return self.poke_or_defer(context, float(event["end"]))

    async def _look(self, conf: JsonObject, run: Run, named: Mapping[str, Sequence[ClusterConnection]]) -> Said:
        from pulsar_fleet.procedures.runner import run_step

        async with _session(named, conf, run, self.batch or {}, self._kept) as session:
            return await run_step(self._step, session)


async def open_look(
    work: str, connections: Mapping[str, Sequence[str]], conf: JsonObject, run_id: str, batch: JsonObject
) -> Look:
    """The looks of a trigger: a worker goes on as soon as the step does not wait.

    :param work: of the step, or what only looks, as `module:name`.
    """
    from pulsar_fleet.airflow.hooks.pulsar import aread_connection
    from pulsar_fleet.ledger.run import Run

    run, step = await asyncio.to_thread(Run.open, run_id), resolve_name(work)
    kept = dict[str, Any]()
    named = {setting: [await aread_connection(name) for name in names] for setting, names in connections.items()}

    async def look() -> tuple[bool, str]:
        async with _session(named, conf, run, batch, kept) as session:
            said = await step(session)
        return (False, said.said) if isinstance(said, NotYet) else (True, "")

    return look


def read_connections(
    procedure: Procedure, conf: JsonObject, batch: JsonObject | None = None, step: Step | None = None
) -> dict[str, list[ClusterConnection]]:
    """Setting → the connections that it names, for a worker."""
    from pulsar_fleet.airflow.hooks.pulsar import cluster_connection

    named = procedure.connections(conf, batch, step)
    return {setting: [*map(cluster_connection, names)] for setting, names in named.items()}


@asynccontextmanager
async def _session(
    connections: Mapping[str, Sequence[ClusterConnection]],
    conf: JsonObject,
    run: Run,
    batch: JsonObject,
    kept: dict[str, Any],
) -> AsyncIterator[Session]:
    from pulsar_fleet.procedures.runner import open_session

    of_step: dict[str, Any] = {"batch": batch, "kept": kept, "say": log.info, "dag_parsing": dag_parsing}
    async with open_session(conf, run, connections, **of_step) as session:
        yield session
