"""Which wave a run carries out: each run one, with the plan of the first; the next is another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import MOVES, WAVE_MOVES, WAVE_TEXT, WAVES
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.migration.preflight.gates import EVALUATED
from pulsar_fleet.migration.waves.approval_text import approval_markdown, plan_markdown
from pulsar_fleet.migration.waves.planner import Wave, WavePlan
from pulsar_fleet.preflight.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The wave of a run.

    :param moves: reference of what moves in it; `text` is what a person reads before.
    :param waves: how many the plan has.
    """

    number: int
    waves: int
    headline: str
    moves: Reference
    text: Reference

    def to_json(self) -> JsonObject:
        """As a JSON object, with `next`: the number of the wave that follows, None after the last."""
        return {
            "wave": self.number,
            "waves": self.waves,
            "next": self.number + 1 if self.number < self.waves else None,
            "headline": self.headline,
            "moves": self.moves.to_json(),
            "text": self.text.to_json(),
        }


def read_plan(run: Run) -> WavePlan:
    """The plan that a run made; `NotFound` if it made none."""
    kept = run.artefacts.find(run.id, WAVES)
    if kept is None:
        raise NotFound(f"Run {run.id!r} has no plan of waves: start anew, without 'continues'.")
    return WavePlan.from_json(run.artefacts.read_json(kept))


def wave_of(plan: WavePlan, number: int) -> Wave:
    """One wave by its number, counted from 1; `InvalidRequest` for another."""
    if not 1 <= number <= len(plan.waves):
        raise InvalidRequest(f"The plan has {len(plan.waves)} waves, so there is no wave {number!r}: correct 'wave'.")
    return plan.waves[number - 1]


def wave_moves(run: Run, checked: Reference, *, planned_by: Run, number: int) -> Moves:
    """What moves in one wave.

    :param checked: the moves of all namespaces that this run looked at.
    :param planned_by: the run whose plan it is; this one itself for the first wave.
    """
    found = Moves.from_json(run.artefacts.read_json(checked))
    chosen = set(wave_of(read_plan(planned_by), number).namespaces)
    return replace(found, moves=tuple(move for move in found.moves if move.namespace in chosen))


def known_moves(run: Run) -> Moves | None:
    """What a run moves: its wave, or all that it checked where there are no waves; None before that is known."""
    kept = run.artefacts.find(run.id, WAVE_MOVES) or run.artefacts.find(run.id, MOVES)
    return Moves.from_json(run.artefacts.read_json(kept)) if kept else None


def take_wave(
    run: Run,
    moves: Moves,
    findings: Sequence[Finding],
    *,
    planned_by: Run,
    number: int,
    placements: str = "",
) -> Taken:
    """Keep what this run moves, and the text of its approval. Again gives the same.

    :param moves: as `wave_moves` gives them.
    :param planned_by: the run whose plan it is; this one itself for the first wave.
    :param placements: what the switch will do to the wave's subscriptions, in Markdown.
    """
    plan = read_plan(planned_by)
    wave = wave_of(plan, number)
    text = approval_markdown(
        plan, wave, (moves.blue, moves.green), findings, gates=len(EVALUATED), placements=placements
    )
    if number == 1 and len(plan.waves) > 1:
        text += "\n" + plan_markdown(plan, moves.blue, moves.green)
    headline = f"Wave {number} of {len(plan.waves)}: {len(moves.moves)} namespaces from {moves.blue} to {moves.green}"
    return Taken(
        number=number,
        waves=len(plan.waves),
        headline=headline,
        moves=run.artefacts.write_json(run.id, WAVE_MOVES, moves.to_json()),
        text=run.artefacts.write(run.id, WAVE_TEXT, text.encode()),
    )


async def moved_before(blue: AdminClient, names: Sequence[NamespaceName], ledger: Ledger) -> tuple[NamespaceName, ...]:
    """Those that an earlier run has finished moving, so that the same selection again goes on with the rest.

    Finished by the ledger, and still flagged on blue: the cluster has the last word.
    """
    finished = [name for name in names if ledger.last_phase(str(name)) in (Phase.CLEANED, Phase.FINISHED)]
    policies = [await blue.namespace(name) for name in finished]
    return tuple(name for name, found in zip(finished, policies, strict=True) if (found or {}).get("migrated"))
