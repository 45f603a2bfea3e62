"""A migration in one run: the steps that depend on its settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.original_settings import OriginalSettings
from pulsar_fleet.migration.procedure.common import Findings, Procedure
from pulsar_fleet.migration.request import MigrationRequest, Request
from pulsar_fleet.migration.scope import parse_scope, resolve
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged, plan_transfers
from pulsar_fleet.migration.waves.change_windows import Calendar
from pulsar_fleet.migration.waves.planner import Limits
from pulsar_fleet.migration.waves.steps import (
    SelectedWave,
    already_moved,
    begun_wave,
    find_moves,
    read_plan,
    select_wave,
    wave_moves,
    wave_of,
)
from pulsar_fleet.preflight.waivers import parse_waivers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration(Procedure):
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
            raise InvalidRequest(
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
        )

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
        return await self._restore_settings(delete_topics=self.request.delete_inactive_topics_on_blue)


def following_wave(run: Run, conf: Mapping[str, Any]) -> tuple[str, JsonObject] | None:
    """The id of the run for the next wave of the plan, and the settings that differ from those of this run.

    None after the last wave.
    """
    request = MigrationRequest.of(conf)
    first, number = request.continues or run.id, request.wave + 1
    if number > len(read_plan(replace(run, id=first)).waves):
        return None
    return f"{first}__wave-{number}", {"continues": first, "wave": number}
