"""`pulsar-fleet abort`: undo a migration before its point of no return."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach_two, require_cluster
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import AsJson, DryRun, Yes
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError, require_consent
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.migration.abort import AbortResult, abort_migration, require_reversible
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.waves.steps import recorded_moves

_QUESTION = "Undo its replication and overrides, and remove the unused resources that it created?"


def abort(
    run: Annotated[str, typer.Argument(help="Id of the migration's run: migrate_namespaces/run_id.")],
    blue: Annotated[str | None, typer.Option(help="The old cluster; default: as recorded by the run.")] = None,
    green: Annotated[str | None, typer.Option(help="The new cluster; default: as recorded by the run.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Abort a migration before its first topic is terminated; later it is refused. Let its run end first."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("two clusters", yes=yes or dry_run)
        records = Run.open(run)
        moves = recorded_moves(records)
        record = records.ledger.run(run)
        conf = record.conf if record else {}
        sides = run_interruptibly(_sides(blue or conf.get("blue"), green or conf.get("green"), moves, run))
        if dry_run:
            _finish_dry_run(terminal, records, sides, moves)
        if not yes and not terminal.confirm(f"{counted(len(moves.moves), 'namespace')}. {_QUESTION}"):
            terminal.finish({"run": run}, ExitState.REFUSED)
        aborted = run_interruptibly(abort_migration(sides, records, moves))
        records.ledger.finish_run(run, "undone")
        terminal.say(_text(aborted))
        terminal.finish({"run": run, **aborted.to_json()}, ExitState.PARTLY if aborted.kept else ExitState.DONE)


def _finish_dry_run(terminal: Terminal, run: Run, sides: Sides, moves: Moves) -> NoReturn:
    """Say whether the abort would be refused, and of what it would undo everything."""
    run_interruptibly(require_reversible(sides, run, moves))
    names = [str(move.namespace) for move in moves.moves]
    terminal.say(f"An abort would undo everything of {listed(names, 20)}. Dry run: nothing has been changed.")
    terminal.finish({"run": run.id, "namespaces": names, "dry_run": True}, ExitState.DONE)


async def _sides(blue: str | None, green: str | None, moves: Moves, run: str) -> Sides:
    if not (blue and green):
        raise UsageError(f"The run {run!r} did not record its clusters: name them with --blue and --green.")
    first, second = await reach_two(named_cluster(blue, Side.SOURCE), named_cluster(green, Side.TARGET))
    require_cluster(first, moves.blue, f"The run {run!r}")
    require_cluster(second, moves.green, f"The run {run!r}")
    return Sides(first.connection, second.connection)


def _text(aborted: AbortResult) -> str:
    parts = {
        "flags cleared": aborted.flags,
        "replication ended": aborted.replication,
        "overrides restored": aborted.overrides,
        "removed on green": aborted.removed,
        "kept on green": aborted.kept,
    }
    return "\n".join(f"{name}: {listed(resources, 20)}" for name, resources in parts.items())
