"""`pulsar-fleet sync-metadata`: synchronise metadata between clusters over an event topic, once or continuously."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach_all
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import Yes
from pulsar_fleet.cli.runs import approve_deletions, recorded_run
from pulsar_fleet.cli.settings import with_settings
from pulsar_fleet.cli.terminal import ExitState, Terminal, require_consent, usage_errors
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.policy_sync.events.follower import follow_all
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.results import SyncSummary, Tally
from pulsar_fleet.policy_sync.events.steps import synchronise
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_fleet.report.metadata import headline, lines
from pulsar_fleet.settings.metadata import SYNC_METADATA


@with_settings(SYNC_METADATA.declared, arguments={"clusters": "Admin URLs or Airflow connection ids."})
def sync_metadata(
    terminal: Terminal,
    conf: JsonObject,
    follow: Annotated[
        bool, typer.Option("--follow", help="Run until stopped; of several followers one is active.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Publish the changes of each cluster and apply those of the others. Exits with 5 if some were refused."""
    conf["selection"] = list(parse_selection(conf["selection"]).texts())
    with usage_errors():
        request = Request.of(conf)
    sides = [named_cluster(name, Side.TARGET if at else Side.SOURCE) for at, name in enumerate(conf["clusters"])]
    require_consent("clusters", yes=yes)
    if not yes:
        terminal.require_answer(f"Write on {', '.join(side.name for side in sides)}?", "synchronisation")
    with recorded_run(terminal, "sync-metadata", "sync_metadata", conf) as run:
        if follow:
            document, state = run_interruptibly(_follow(terminal, sides, request, run))
        else:
            document, state = _once(terminal, sides, request, run, ask=not yes)
    terminal.finish({"run": run.id, **document}, state)


def _once(
    terminal: Terminal, sides: Sequence[ClusterConnection], request: Request, run: Run, *, ask: bool
) -> tuple[JsonObject, ExitState]:
    result = _synchronise(terminal, sides, request, run)
    if request.propagate_deletes is PropagateDeletes.APPROVE:
        tallies = result.clusters.items()
        waiting = {name: tally.pending_deletions for name, tally in tallies if tally.pending_deletions}
        if allow := approve_deletions(terminal, run, waiting, request.allow, ask=ask):
            result = _synchronise(terminal, sides, replace(request, allow=request.allow | allow), run)
    return result.to_json(), _state(result.clusters, result.behind)


def _synchronise(terminal: Terminal, sides: Sequence[ClusterConnection], request: Request, run: Run) -> SyncSummary:
    async def once() -> SyncSummary:
        return await synchronise(await reach_all(sides), request, run)

    with terminal.status(f"Synchronising {', '.join(side.name for side in sides)}"):
        result = run_interruptibly(once())
    waiting = filter(None, (tally.pending_deletions for tally in result.clusters.values()))
    terminal.say("\n".join([headline(result), *lines(result)]), *(deletions.command for deletions in waiting))
    return result


async def _follow(
    terminal: Terminal, sides: Sequence[ClusterConnection], request: Request, run: Run
) -> tuple[JsonObject, ExitState]:
    # A service logs line by line.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pulsar_fleet").setLevel(logging.INFO)
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    tallies = await follow_all(await reach_all(sides), request, run, stopped=stopped, say=terminal.note)
    behind = {name: tally.behind_since for name, tally in tallies.items() if tally.behind_since}
    document = {"clusters": {name: tally.to_json() for name, tally in tallies.items()}, "behind": behind}
    return document, _state(tallies, behind)


def _state(tallies: Mapping[str, Tally], behind: Mapping[str, str]) -> ExitState:
    refused = any(tally.refused or tally.not_deleted for tally in tallies.values())
    return ExitState.PARTLY if refused or behind else ExitState.DONE
