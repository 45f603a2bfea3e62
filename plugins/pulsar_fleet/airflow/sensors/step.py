"""A step of a procedure that waits, as a task; by default it waits without a worker slot."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from pulsar_fleet.airflow.run import current_run
from pulsar_fleet.airflow.sensors.run_limit import RunLimitedSensor
from pulsar_fleet.airflow.sensors.waiting import WaitTimedOut
from pulsar_fleet.airflow.triggers.moment import MomentTrigger
from pulsar_fleet.procedures.procedure import NotYet, Session

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.procedures.procedure import Said, Step


class StepSensor(RunLimitedSensor):
    """Run a step again and again until it does not wait any more; on a worker, and in the triggerer between two looks.

    After the minutes of its setting it fails with what is missing and what to do; cleared, it looks once more.

    :param step: a step with a `Wait`.
    :param look: runs the step for a batch.
    :param conclude: what the task does with the result.
    :param batch: None where the procedure has none (templated).
    """

    template_fields: Sequence[str] = ("batch",)

    def __init__(
        self,
        *,
        step: Step,
        look: Callable[[JsonObject], Awaitable[Said]],
        conclude: Callable[[Said, JsonObject], str],
        batch: Any = None,
        **kwargs: Any,
    ) -> None:
        assert step.wait is not None, f"{step.name} has no Wait"
        super().__init__(poke_interval=step.wait.poll_seconds, **kwargs)
        self.setting = step.wait.minutes
        self.batch = batch
        self._step, self._look, self._conclude = step, look, conclude
        self._run: Run | None = None

    def read(self, context: Context) -> tuple[bool, str]:
        """Look once; see `missing`."""
        self._run = current_run(context)
        return super().read(context)

    async def missing(self, params: dict[str, Any], run: Run) -> str:
        """Run the step once."""
        said = await self._look(self.batch or {})
        if isinstance(said, NotYet):
            return said.said
        self._conclude(said, self.batch or {})
        return ""

    def waited_seconds(self, run: Run) -> float:
        """For how long the step has waited, over all tries."""
        from pulsar_fleet.procedures.runner import waited_seconds

        return waited_seconds(self._step, Session({}, run, {}, batch=self.batch or {}))

    def timed_out(self, figures: str) -> WaitTimedOut:
        """The error with what is missing and what to do."""
        from pulsar_fleet.procedures.runner import missed_text

        assert self._run is not None, "it has looked"
        return WaitTimedOut(missed_text(self._step, self._run, float(self.timeout), figures))

    def trigger(self, context: Context, end: float) -> MomentTrigger:
        """Until the next look, or the end of the wait."""
        again = time.time() + float(self.poke_interval)
        return MomentTrigger(moment=min(again, self.end_of_wait(context, end)), end=end)
