"""What migration and failback have in common: the steps that depend on their settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import without_moved
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import DagParsing, Expectations
from pulsar_fleet.migration.prepare.dead_runs import restore_kept_policies
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.lease import release, renew_while_waiting
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings
from pulsar_fleet.migration.proof.reader import Job, ProofReader
from pulsar_fleet.migration.request import Request
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged
from pulsar_fleet.migration.waves.steps import (
    find_moves,
)
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.waivers import Waiver, parse_waivers

Findings = tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure(ABC):
    """What migration and failback have in common.

    :param clusters: blue and green, as the request names them.
    :param dag_parsing: None outside Airflow.
    """

    REQUEST: ClassVar[type[Request]]
    request: Request
    clusters: Sides
    run: Run
    dag_parsing: DagParsing | None = None

    @classmethod
    def of(cls, conf: Mapping[str, Any], clusters: Sides, run: Run, dag_parsing: DagParsing | None = None) -> Self:
        """The procedure of a run's configuration."""
        return cls(request=cls.REQUEST.of(conf), clusters=clusters, run=run, dag_parsing=dag_parsing)

    @property
    def sides(self) -> Sides:
        """The clusters in the order of the steps: the cluster that the namespaces leave comes first."""
        return self.clusters

    @property
    def strategy(self) -> Strategy | None:
        """The strategy for all namespaces; None chooses for each."""
        return None if self.request.strategy == "auto" else Strategy(self.request.strategy)

    @property
    def waivers(self) -> list[Waiver]:
        """The accepted risks."""
        return parse_waivers(self.request.waivers)

    @property
    def moves(self) -> Moves:
        """What moves in this run; `NotFound` before the gates passed."""
        moves = find_moves(self.run)
        if moves is None:
            raise NotFound(f"The records of {self.run.id!r} have no list of what moves: start a new run.")
        return moves

    @property
    def original(self) -> OriginalSettings:
        """The settings of the old cluster before the freeze; `NotFound` before it."""
        original = find_original_settings(self.run)
        if original is None:
            raise NotFound(f"The records of {self.run.id!r} have no original settings: start a new run.")
        return original

    @property
    @abstractmethod
    def expected(self) -> Expectations:
        """The settings that the gates depend on."""

    async def recheck_gates(self, moves: Moves) -> Findings:
        """Evaluate every gate again, now that the new cluster is prepared; a new blocker stops the run.

        Namespaces that an earlier attempt cut over are left out.
        """
        async with self.sides.open() as (old, _new):
            moves = await without_moved(old, moves)
        if not moves.moves:
            return ()
        return await steps.recheck_gates(self.sides, self.run, moves, expected=self.expected, waivers=self.waivers)

    async def verify_copy(self, moves: Moves, job: Job | None = None) -> JsonObject:
        """Compare what was replicated, and store the baseline that the cut-over checks.

        :param job: reads a large proof; without one this process does.
        """
        return await steps.verify_copy(self.sides, self.run, moves, reader=self._reader(job))

    async def verify_messages(self, moves: Moves, job: Job | None = None) -> JsonObject:
        """At the end: compare what was replicated; a redirected namespace must have drained.

        :param job: reads a large proof; without one this process does.
        """
        return await steps.verify_messages(self.sides, self.run, moves, reader=self._reader(job))

    def _reader(self, job: Job | None) -> ProofReader:
        request = self.request
        limit = request.max_bytes_per_second
        return ProofReader(job=job, job_above=request.spark_above_entries, max_bytes_per_second=limit)

    async def cut_over(
        self, moves: Moves, original: OriginalSettings, *, stopping: Callable[[], bool] = lambda: False
    ) -> Reference:
        """Quiesce the producers, transfer the cursors, redirect the clients. The point of no return.

        :param stopping: asked after each namespace: whether a person wants to stop.
        """
        return await steps.cut_over(
            self.sides,
            self.run,
            moves,
            original,
            quiesce_seconds=float(self.request.quiesce_seconds),
            individually_acknowledged=self._individually_acknowledged,
            proof_max_age_minutes=float(self.request.proof_max_age_minutes),
            stopping=stopping,
        )

    @property
    def _individually_acknowledged(self) -> IndividuallyAcknowledged:
        return IndividuallyAcknowledged.CARRY

    async def clean_up(self, moves: Moves, original: OriginalSettings) -> JsonObject:
        """End replication, and remove from the old cluster what continues on the new one."""
        return await steps.clean_up_blue(
            self.sides, self.run, moves, original, unload=self.request.unload_terminated_topics
        )

    async def keep_lease(self) -> None:
        """Renew the lease of the run's namespaces, for a caller that waits."""
        if moves := find_moves(self.run):
            await renew_while_waiting(self.sides, self.run, moves)

    async def restore(self) -> tuple[str, ...] | None:
        """Restore every setting that the run changed on the old cluster; None if it changed none."""
        return await self._restore_settings(delete_topics=False)

    async def _restore_settings(self, *, delete_topics: bool) -> tuple[str, ...] | None:
        """Restore the old cluster, and on the new one what an earlier move in the other direction kept there.

        Then other runs may change the namespaces; a restoration that fails keeps the lease until it expires.
        """
        restored, original = None, find_original_settings(self.run)
        if original is not None:
            restored = await steps.restore_blue(self.sides, self.run, original, delete_topics=delete_topics)
            async with self.sides.open() as (_old, new):
                names = [str(name) for name in original.namespaces]
                restored += await restore_kept_policies(new, names)
        elif self.run.ledger.phases(self.run.id):
            await release(self.sides, self.run)
        return restored
