"""`pulsar-fleet stop`: take a migration back as long as none of its topics is closed."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach_two, require_cluster
from pulsar_fleet.cli.commands.onboard import AsJson
from pulsar_fleet.cli.terminal import ExitState, Terminal, Usage, is_watched
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.migration.abort import Undone, undo_before_switch
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.waves.steps import known_moves

_ABOUT = "Take back replication, overrides, and what it created and nobody uses?"


def stop(
    run: Annotated[str, typer.Argument(help="Id of the migration's run: migrate_namespaces/run_id.")],
    blue: Annotated[str | None, typer.Option(help="The cluster that was left; else as the run named it.")] = None,
    green: Annotated[str | None, typer.Option(help="The cluster that was moved to; else as the run named it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where nobody can be asked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take back a migration before its first topic is closed; after that it is refused. Let its run end first."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        if not yes and not is_watched():
            raise PreconditionFailed(
                "This changes two clusters, and nobody can be asked here: say --yes. Nothing was changed."
            )
        records = Run.open(run)
        moves = _moves(records)
        known = records.ledger.run(run)
        conf = known.conf if known else {}
        sides = asyncio.run(_sides(blue or conf.get("blue"), green or conf.get("green"), moves, run))
        if not yes and not terminal.confirmed(f"{len(moves.moves)} namespaces. {_ABOUT}"):
            terminal.finish({"run": run}, ExitState.REFUSED)
        undone = asyncio.run(undo_before_switch(sides, records, moves))
        records.ledger.finish_run(run, "undone")
        terminal.say(_text(undone))
        terminal.finish({"run": run, **undone.to_json()}, ExitState.PARTLY if undone.kept else ExitState.DONE)


def _moves(run: Run) -> Moves:
    moves = known_moves(run)
    if moves is None:
        raise NotFound(f"There is no migration {run.id!r} with a plan in the records: nothing was changed by it.")
    return moves


async def _sides(blue: str | None, green: str | None, moves: Moves, run: str) -> Sides:
    if not (blue and green):
        raise Usage(f"The run {run!r} did not record its clusters: say them with --blue and --green.")
    first, second = await reach_two(named_cluster(blue, Side.SOURCE), named_cluster(green, Side.TARGET))
    require_cluster(first, moves.blue, f"The run {run!r}")
    require_cluster(second, moves.green, f"The run {run!r}")
    return Sides(first.connection, second.connection)


def _text(undone: Undone) -> str:
    parts = {
        "flags cleared": undone.flags,
        "replication ended": undone.replication,
        "overrides put back": undone.overrides,
        "taken back on green": undone.removed,
        "left there": undone.kept,
    }
    return "\n".join(f"{name}: {', '.join(found) if found else 'none'}" for name, found in parts.items())
