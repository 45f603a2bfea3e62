"""A migration or a failback on the terminal: the steps of the DAG in its order, each with a line of progress."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from pulsar_fleet.cli.interrupts import Interrupts
from pulsar_fleet.cli.runs import require_approval
from pulsar_fleet.cli.terminal import Terminal
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.drain.steps import monitor_until_drained
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings
from pulsar_fleet.migration.procedure import Procedure
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.procedures.copy_wait import wait_replicated

Result = TypeVar("Result")


class ProcedureRun(ABC):
    """One run; steps that an earlier attempt of the run has done are left out.

    :param yes: approve without a question.
    """

    OLD: ClassVar[str]
    """The cluster that the namespaces leave, in the names of the steps; `NEW` is the other."""
    NEW: ClassVar[str]
    APPROVAL: ClassVar[str] = "approve_wave"
    """The name of the step that asks."""

    def __init__(self, terminal: Terminal, interrupts: Interrupts, procedure: Procedure, *, yes: bool) -> None:
        self.terminal = terminal
        self.interrupts = interrupts
        self.records = procedure.run
        self.yes = yes
        self.done: list[JsonObject] = []
        self.current = ""
        self._procedure = procedure
        self._sides = procedure.sides
        self._update: Callable[[str], None] = terminal.note

    def execute(self) -> bool:
        """Run the steps that are left; returns False after a dry run."""
        if not self.reached.any(Phase.FROZEN) and not self.prepare():
            return False
        moves = self.moves()
        self._copy(moves)
        if not self.reached.all(moves, Phase.CUT_OVER):
            self._cut_over(moves)
        self._verify(moves)
        if not self.reached.all(moves, Phase.CLEANED):
            self.step(f"clean_up_{self.OLD}", self._procedure.clean_up(moves, self._original), _leftovers)
        return True

    @abstractmethod
    def prepare(self) -> bool:
        """Everything before the freeze, with the approval; returns False after a dry run."""

    @abstractmethod
    def wait_for_window(self) -> None:
        """Wait until the cut-over is allowed."""

    @abstractmethod
    def wait_repointed(self, moves: Moves) -> None:
        """Wait until the applications that the old cluster does not redirect have left it."""

    def restore(self) -> None:
        """Restore the settings of the old cluster, whatever happened before."""
        finish = "The original settings are restored first."
        self.step(
            f"restore_{self.OLD}", self._procedure.restore(), lambda done: counted(len(done or ()), "change"), finish
        )

    def step(
        self,
        name: str,
        work: Coroutine[Any, Any, Result],
        text: Callable[[Result], str] = str,
        finish: str = "",
    ) -> Result:
        """Run a step, and print a line with its duration and what it did.

        :param finish: see `Interrupts.run`.
        """
        self.current, began = name, time.monotonic()
        with self.terminal.status(name) as self._update:
            result = self.interrupts.run(work, finish=finish)
        seconds, line = time.monotonic() - began, text(result)
        self.done.append({"step": name, "seconds": round(seconds, 1), "result": line})
        self.terminal.note(f"{name:<22}{seconds:7.1f} s  {line}".rstrip())
        return result

    def ask(self, about: str, text: str, question: str) -> None:
        """Show what will happen, ask, and store the answer; a rejection raises `PreconditionFailed`."""
        self.current = self.APPROVAL
        (self.terminal.say if self.yes else self.terminal.show)(text)
        require_approval(self.terminal, self.records, about, question, yes=self.yes)

    def prepare_new(self, moves: Moves) -> None:
        """Create on the new cluster what the clients need and it lacks."""
        prepared = steps.prepare_green(self._sides, self.records, moves)
        self.step(f"prepare_{self.NEW}", prepared, lambda counts: counted(counts["changes"], "change"))

    def moves(self) -> Moves:
        """What moves in this run."""
        moves = find_moves(self.records)
        if moves is None:
            raise NotFound(f"The records of {self.records.id!r} have no list of what moves: start a new run.")
        return moves

    def progress(self, line: str) -> None:
        """Show how far the current step is."""
        self._update(line)

    @property
    def reached(self) -> Reached:
        """The phases of the namespaces, as the ledger has them now."""
        return Reached.of(self.records)

    @property
    def _original(self) -> OriginalSettings:
        original = find_original_settings(self.records)
        if original is None:
            raise NotFound(f"The records of {self.records.id!r} have no original settings: start a new run.")
        return original

    def _copy(self, moves: Moves) -> None:
        """Freeze the old cluster and copy its messages, for namespaces whose copy was not verified yet."""
        starting = self.reached.before(moves, Phase.REPLICATED)
        if not starting.moves:
            return
        frozen = steps.freeze_blue(self._sides, self.records, starting)
        self.step(f"freeze_{self.OLD}", frozen, lambda _: "the original settings are stored")
        replicating = steps.start_replication(self._sides, self.records, starting)
        self.step(
            "start_replication", replicating, lambda count: f"{count} of {counted(len(starting.moves), 'namespace')}"
        )
        waiting = wait_replicated(
            self._sides,
            self.records,
            starting,
            seconds=self._seconds,
            poll_seconds=POLL_SECONDS,
            progress=self.progress,
        )
        self.step("wait_replicated", waiting, lambda line: f"near its end, {line}")

    def _cut_over(self, moves: Moves) -> None:
        """Cut over one namespace after the other; a signal stops between two of them."""
        self.step("verify_copy", self._procedure.verify_copy(moves), _counts)
        self.wait_for_window()
        self.wait_repointed(moves)
        for move in self.reached.before(moves, Phase.CUT_OVER).moves:
            self._cut_over_namespace(moves, move)
            if self.interrupts.requested:
                raise PreconditionFailed(f"Stopped after the cut-over of {move.namespace}.")

    def _cut_over_namespace(self, moves: Moves, move: Move) -> None:
        cutting_over = self._procedure.cut_over(replace(moves, moves=(move,)), self._original)
        finish = f"The cut-over of {move.namespace} is finished first."
        self.step("cut_over", cutting_over, lambda _: str(move.namespace), finish)

    def _verify(self, moves: Moves) -> None:
        """Verify cursors and messages; the drain is monitored to its end also if a cursor is not as stated."""
        if self.reached.all(moves, Phase.VERIFIED):
            return
        failure: FleetError | None = None
        try:
            self.step("verify_subscriptions", steps.verify_subscriptions(self._sides, self.records, moves), _counts)
        except FleetError as error:
            self.terminal.note(str(error), style="red")
            failure = error
        if not self.reached.all(moves, Phase.DRAINED):
            drain = monitor_until_drained(
                self._sides,
                self.records,
                moves,
                seconds=self._seconds,
                poll_seconds=POLL_SECONDS,
                progress=self.progress,
            )
            self.step("wait_drained", drain, lambda status: status.line())
        if failure:
            self.current = "verify_subscriptions"
            raise failure
        self.step("verify_messages", self._procedure.verify_messages(moves), _counts)

    @property
    def _seconds(self) -> float:
        return self._procedure.request.drain_timeout_minutes * 60


def _counts(document: JsonObject) -> str:
    return ", ".join(f"{name} {value}" for name, value in document.items())


def _leftovers(results: JsonObject) -> str:
    return " ".join(str(result["text"]) for result in results.values())
