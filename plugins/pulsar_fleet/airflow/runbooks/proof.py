"""The proof at the end of a migration: the verification's own reading, run on what was moved."""

from __future__ import annotations

from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.migration.moves import Moves
from pulsar_fleet.migration.phases import Phase, Strategy
from pulsar_fleet.migration.steps import Sides
from pulsar_fleet.records.run import Run
from pulsar_fleet.verification.request import Mapping
from pulsar_fleet.verification.steps import freeze_bounds, record, verify_in_process
from pulsar_fleet.verification.text import verification_text
from pulsar_fleet.verification.verdict import Verdict

DRAINED = "drained"


async def prove(sides: Sides, run: Run, moves: Moves) -> JsonObject:
    """Compare what was replicated, message by message; where nothing was, record that everything was read on blue.

    :raises Refused: the messages are not equal, or it cannot be told; the message names the first differences.
    """
    copied = [move.namespace for move in moves.moves if move.strategy is Strategy.REPLICATE]
    for move in moves.moves:
        if move.strategy is Strategy.REDIRECT:
            run.ledger.record_verdict(
                run.id,
                str(move.namespace),
                verdict=DRAINED,
                messages=0,
                summary="every subscription read all that blue held; nothing was stored on both sides to compare",
                artefact=None,
            )
    messages = 0
    if copied:
        async with sides.open() as (blue, green):
            request = await freeze_bounds(blue, green, copied, mapping=Mapping.REPLICATED)
            found = await verify_in_process(blue, green, request)
        record(run, found)
        messages = found.messages
        if found.verdict is not Verdict.EQUAL:
            raise Refused(f"The copy on green is not proven equal.\n{verification_text(found)}")
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.VERIFIED)
    return {"verdict": Verdict.EQUAL.value if copied else DRAINED, "messages": messages}
