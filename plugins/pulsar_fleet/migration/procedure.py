"""A migration or a failback in one run: the steps that depend on its settings, for Airflow and for the terminal."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from pulsar_fleet.clients.document import require_group
from pulsar_fleet.clients.store import ConnectionDocuments
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, parse_namespaces
from pulsar_fleet.cluster.text import command_line, listed
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.abort import touched_namespaces
from pulsar_fleet.migration.artefacts import MOVES
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import without_moved
from pulsar_fleet.migration.failback import steps as failback_steps
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.preflight.view import DagParsing, Expectations
from pulsar_fleet.migration.prepare.dead_runs import restore_kept_policies
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.lease import held, release, renew_while_waiting
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.proof.baseline import require_copied_topics, require_fresh
from pulsar_fleet.migration.proof.reader import Job, ProofReader
from pulsar_fleet.migration.repoint.both_ways import begun_back, may_have_led
from pulsar_fleet.migration.repoint.terminate import CarryLeft
from pulsar_fleet.migration.request import FailbackRequest, MigrationRequest, Request
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.migration.scope import parse_scope, resolve
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged, plan_transfers
from pulsar_fleet.migration.waves.change_windows import Calendar
from pulsar_fleet.migration.waves.planner import Limits
from pulsar_fleet.migration.waves.steps import (
    SelectedWave,
    already_moved,
    begun_namespaces,
    begun_wave,
    find_moves,
    read_plan,
    select_wave,
    wave_moves,
    wave_of,
)
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.waivers import Waiver, parse_waivers
from pulsar_fleet.snapshot.cluster_reader import require_namespaces

log = logging.getLogger(__name__)

Findings = tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Procedure(ABC):
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
        self,
        moves: Moves,
        original: OriginalSettings,
        *,
        stopping: Callable[[], bool] = lambda: False,
        carry_left: CarryLeft | None = None,
    ) -> Reference:
        """Quiesce the producers, transfer the cursors, redirect the clients. The point of no return.

        :param stopping: asked before each namespace: whether a person wants to stop.
        :param carry_left: as of `wave_cutover.cut_over`.
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
            carry_left=carry_left,
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

    async def _restore_settings(self, *, delete_topics: bool, replicates: bool = False) -> tuple[str, ...] | None:
        """Restore the old cluster, and on the new one what an earlier move in the other direction kept there.

        Then other runs may change the namespaces; a restoration that fails keeps the lease until it expires.
        """
        restored, original = None, find_original_settings(self.run)
        if original is not None:
            restored = await steps.restore_blue(
                self.sides, self.run, original, delete_topics=delete_topics, replicates=replicates
            )
            async with self.sides.open() as (_old, new):
                names = [str(name) for name in original.namespaces]
                restored += await restore_kept_policies(new, names)
        elif self.run.ledger.phases(self.run.id):
            await release(self.sides, self.run)
        return restored


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration(_Procedure):
    """A migration from blue to green: one wave of its plan."""

    NAME: ClassVar[str] = "migrate_namespaces"
    REQUEST: ClassVar[type[Request]] = MigrationRequest
    request: MigrationRequest

    @classmethod
    def validate(cls, conf: Mapping[str, Any]) -> None:
        """Refuse an invalid setting with `InvalidRequest`, before any call."""
        request = MigrationRequest.of(conf)
        Calendar.parse(request.change_windows, request.freeze_windows)
        parse_waivers(request.waivers)
        is_moving = request.strategy == Strategy.MOVE_CLIENTS
        if is_moving != bool(request.group) and not (request.group and request.strategy == "auto"):
            raise InvalidRequest(
                f"The group {request.group or ''!r} and the strategy {request.strategy!r} do not belong together: "
                f"{Strategy.MOVE_CLIENTS} moves the clients of one group, and only that; auto does where all of them "
                "follow its document. Set both, or neither."
            )
        if request.group:
            require_group(request.group)
        if request.remove_topics_on_blue and request.group:
            raise InvalidRequest(
                f"'remove_topics_on_blue' is not possible with the group {request.group!r}: applications can return to "
                "these topics. Leave it off."
            )
        if request.remove_topics_on_blue and request.strategy == Strategy.WHOLE_CLUSTER:
            raise InvalidRequest(
                f"'remove_topics_on_blue' is not possible with the strategy {request.strategy!r}: brokers would take "
                "messages for a removed topic again, until its next check. Leave it off."
            )
        if not request.continues:
            parse_scope(request.namespaces)

    @property
    def calendar(self) -> Calendar:
        """When the cut-over is allowed."""
        return Calendar.parse(self.request.change_windows, self.request.freeze_windows)

    @property
    def _individually_acknowledged(self) -> IndividuallyAcknowledged:
        return IndividuallyAcknowledged(self.request.individually_acknowledged)

    @property
    def _planned_by(self) -> Run:
        return replace(self.run, id=self.request.continues) if self.request.continues else self.run

    @property
    def _begun_wave(self) -> SelectedWave | None:
        return begun_wave(self.run, planned_by=self._planned_by, number=self.request.wave)

    async def select_namespaces(self) -> Sequence[NamespaceName]:
        """The namespaces of the continued wave, or of the selection without those that earlier runs moved.

        Once the cut-over has begun, they are those of the run's own wave.
        """
        request, moves = self.request, find_moves(self.run)
        if moves and self._begun_wave:
            return [move.namespace for move in moves.moves]
        if request.continues:
            return wave_of(read_plan(self._planned_by), request.wave).namespaces
        if request.wave != 1:
            raise InvalidRequest(
                f"Wave {request.wave!r} has no plan: set 'continues' to the run that planned it, or 'wave' to 1."
            )
        async with self.sides.open() as (blue, _green):
            names = await resolve(blue, request.namespaces)
            moved = await already_moved(blue, names, self.run.ledger)
        if len(moved) == len(names):
            # No invalid setting, which has an exit state of its own.
            raise NotFound(
                f"Earlier runs have moved all {len(names)} namespaces of the selection: there is nothing to do."
            )
        for name in moved:
            log.info("%s was moved by an earlier run and is left out", name)
        return [name for name in names if name not in moved]

    @property
    def expected(self) -> Expectations:
        """The settings that the gates depend on."""
        minutes, continues = self.request.drain_timeout_minutes, bool(self.request.continues)
        return Expectations(
            drain_minutes=minutes,
            continues=continues,
            dag_parsing=self.dag_parsing,
            unload=self.request.unload_terminated_topics,
            group=self.request.group or "",
        )

    async def require_fresh_copy(self) -> None:
        """Refuse with `PreconditionFailed` a copy whose proof is too old or stale, before clients move."""
        begun, age = begun_back(self.run), float(self.request.proof_max_age_minutes)
        async with self.sides.open() as (blue, green):
            for move in self.moves.moves:
                await require_copied_topics(blue, move, self.run)
                before = begun.get(str(move.namespace))
                relisted = before.topics if before else None
                await require_fresh(blue, green, move, self.run, max_age_minutes=age, relisted=relisted)

    async def check_gates(self, names: Sequence[NamespaceName]) -> tuple[SelectedWave, Findings]:
        """Evaluate every gate, plan the waves and store the approval text of this run's wave. Changes nothing.

        Once the cut-over has begun, the wave is as it was decided, and no gate is evaluated.
        """
        if wave := self._begun_wave:
            log.info("The cut-over of this run has begun: what it moves is decided. %s", wave.headline)
            return wave, ()
        limits = Limits(namespaces=self.request.wave_namespaces, topics=self.request.wave_topics)
        checked, findings = await steps.check_gates(
            self.sides, self.run, names, self.strategy, expected=self.expected, waivers=self.waivers, limits=limits
        )
        planned_by, number = self._planned_by, self.request.wave
        moves = wave_moves(self.run, checked, planned_by=planned_by, number=number)
        async with self.sides.open() as (blue, _green):
            plan = await plan_transfers(blue, self.run, moves, self._individually_acknowledged)
        transfers = str(self.run.artefacts.read_json(plan)["text"])
        wave = select_wave(
            self.run,
            moves,
            findings,
            planned_by=planned_by,
            number=number,
            transfers=transfers,
            bytes_per_second=self.request.max_bytes_per_second,
        )
        return wave, findings

    async def clean_up(self, moves: Moves, original: OriginalSettings) -> JsonObject:
        """As for every procedure; the terminated topics are removed on request."""
        removing = bool(self.request.remove_topics_on_blue)
        return await steps.clean_up_blue(
            self.sides, self.run, moves, original, remove_topics=removing, unload=self.request.unload_terminated_topics
        )

    async def restore(self) -> tuple[str, ...] | None:
        """As for every procedure; deletion of inactive topics is restored on request."""
        if (moves := find_moves(self.run)) and moves.move_clients:
            # Blue goes on. Once applications may be on green, both clusters replicate to each other for good.
            return await self._restore_settings(delete_topics=True, replicates=may_have_led(self.run))
        return await self._restore_settings(delete_topics=self.request.delete_inactive_topics_on_blue)

    @property
    def are_clients_moved(self) -> bool:
        """Whether this run has led its applications to green, and they are there, whoever has led them last.

        :raises PreconditionFailed: they were led elsewhere since. What both clusters have by now is no copy that this
            run could go on with.
        """
        moves = find_moves(self.run)
        if moves is None or not moves.move_clients or not may_have_led(self.run):
            return False
        documents, group = ConnectionDocuments.open(), self.request.group or ""
        published = documents.current(group)
        if published is None:
            return Reached.of(self.run).all(moves, Phase.MOVED)
        own = next((one.version for one in documents.history(group) if one.run == self.run.id), None)
        if own is None or own > published.version:
            # It has died before it had published.
            return False
        if published.cluster != moves.green:
            raise PreconditionFailed(
                f"This run has led the applications to {moves.green}, and they were led elsewhere since: "
                f"{published.text()}. It does nothing more. Where both clusters replicate, move them again with "
                f"move_clients; or undo this run: {command_line('abort', self.run.id)}."
            )
        return True


def wave_run_id(first: str, wave: int) -> str:
    """The id of the run that continues a migration with its next wave.

    :param first: the run that has planned the waves.
    """
    return f"{first}__wave-{wave}"


def following_wave(run: Run, conf: Mapping[str, Any]) -> tuple[str, JsonObject] | None:
    """The id of the run for the next wave of the plan, and the settings that differ from those of this run.

    None after the last wave.
    """
    request = MigrationRequest.of(conf)
    first, number = request.continues or run.id, request.wave + 1
    if number > len(read_plan(replace(run, id=first)).waves):
        return None
    return wave_run_id(first, number), {"continues": first, "wave": number}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failback(_Procedure):
    """A failback: blue is reopened, then the namespaces migrate from green to blue."""

    NAME: ClassVar[str] = "fail_back_namespaces"
    REQUEST: ClassVar[type[Request]] = FailbackRequest
    request: FailbackRequest

    @property
    def sides(self) -> Sides:
        """Green comes first."""
        return self.clusters.reversed()

    @classmethod
    def validate(cls, conf: Mapping[str, Any]) -> None:
        """Refuse an invalid setting with `InvalidRequest`, before any call."""
        request = FailbackRequest.of(conf)
        if request.strategy not in ("auto", Strategy.REDIRECT, Strategy.REPLICATE):
            raise InvalidRequest(
                f"A failback has no strategy {request.strategy!r}: the namespaces go back one by one. Set "
                "'redirect', 'replicate_then_switch' or 'auto'."
            )
        parse_waivers(request.waivers)
        parse_namespaces(request.namespaces)

    @property
    def namespaces(self) -> tuple[NamespaceName, ...]:
        """The namespaces of the request; an invalid name raises `InvalidRequest`."""
        return parse_namespaces(self.request.namespaces)

    @property
    def expected(self) -> Expectations:
        """The settings that the gates depend on."""
        minutes = self.request.drain_timeout_minutes
        return Expectations(
            drain_minutes=minutes,
            is_failback=True,
            dag_parsing=self.dag_parsing,
            unload=self.request.unload_terminated_topics,
        )

    @property
    def begun(self) -> bool:
        """Whether the cut-over of this run has begun; `PreconditionFailed` if it was given up for some namespaces."""
        begun = begun_namespaces(self.run)
        newest = {entry.namespace: entry.phase for entry in self.run.ledger.phases(self.run.id)}
        given_up = [name for name, phase in newest.items() if phase == Phase.ABORTED]
        if begun and given_up:
            raise PreconditionFailed(
                f"This run has cut over {listed(sorted(begun))} and given up {listed(sorted(given_up))}, which "
                f"{self.clusters.blue.name} redirects again. Nothing was changed. Start another failback of these only."
            )
        return bool(begun)

    async def require_namespaces(self) -> None:
        """Refuse a namespace that green does not have."""
        async with self.sides.open() as (green, _blue):
            await require_namespaces(green, self.namespaces)

    async def check_failback(self, *, again: bool = False) -> Findings:
        """Evaluate every check of the failback and every gate; a blocker stops the run. Changes nothing.

        Once the cut-over has begun, nothing is evaluated: the checks would refuse the run's own flags.

        :param again: the waivers were matched before: a blocker that has gone since is no mistake.
        :raises PreconditionFailed: there is a blocker; or this run cut over some namespaces and gave up others.
        """
        if self.begun:
            return ()
        return await failback_steps.check_failback(
            self.clusters,
            self.run,
            self.namespaces,
            self.strategy,
            allow_removal=self.request.allow_removal,
            expected=self.expected,
            waivers=self.waivers,
            again=again,
        )

    async def reopen_blue(self) -> dict[str, JsonObject]:
        """Clear blue's flags and recreate its terminated topics; applications that restart now stay on blue.

        Once the cut-over has begun, blue is open: nothing is done. It checks again first: hours may have passed since a
        person was asked, and what it removes is only on blue where a verification has found a difference since.
        """
        if self.begun:
            return {}
        await self.check_failback(again=True)
        async with held(self.sides, self.run, self.namespaces):
            return await failback_steps.reopen(self.clusters, self.run, self.namespaces)

    async def check_gates(self) -> tuple[Reference, Findings]:
        """Evaluate every gate again, now that blue is reopened, and choose the strategy of each namespace.

        Once the cut-over has begun, what moves is decided.
        """
        if self.begun and (decided := self.run.artefacts.find(self.run.id, MOVES)):
            return decided, ()
        return await steps.check_gates(
            self.sides, self.run, self.namespaces, self.strategy, expected=self.expected, waivers=self.waivers
        )

    async def restore(self) -> tuple[str, ...] | None:
        """Close blue again for the namespaces that were reopened and not cut over, and restore green's settings."""
        closed = await failback_steps.close_reopened(self.clusters, self.run, touched_namespaces(self.run))
        return (*closed, *(await self._restore_settings(delete_topics=False) or ()))


PROCEDURES: Mapping[str, type[Migration] | type[Failback]] = {kind.NAME: kind for kind in (Migration, Failback)}
"""Name of a procedure in the ledger, which is the id of its DAG → its class."""
