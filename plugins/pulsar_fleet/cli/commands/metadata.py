"""`pulsar-fleet sync-metadata`: changes of metadata carried between clusters over an event topic, once or for good."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, parse_selection
from pulsar_fleet.cli.commands.onboard import AsJson, Select
from pulsar_fleet.cli.commands.reconciliation import Topics, reach_all
from pulsar_fleet.cli.runs import new_run_id, recorded
from pulsar_fleet.cli.terminal import ExitState, Terminal, Usage, require_consent
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.policy_sync.events.follower_pool import follow_all
from pulsar_fleet.policy_sync.events.request import EVENT_TOPIC, Request
from pulsar_fleet.policy_sync.events.steps import synchronise
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity
from pulsar_fleet.report.metadata import headline, lines


def sync_metadata(
    clusters: Annotated[list[str], typer.Argument(help="Admin URL or Airflow connection id of each.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on until stopped; of several one works.")] = False,
    select: Select = None,
    event_topic: Annotated[str, typer.Option(help="The topic that all clusters of the fleet share.")] = EVENT_TOPIC,
    tie_break: Annotated[TieBreak, typer.Option(help="Whose value wins at the same time.")] = TieBreak.SMALLER,
    granularity: Annotated[Granularity, typer.Option(help="What wins as a whole.")] = Granularity.FIELD,
    stamp: Annotated[bool, typer.Option("--stamp", help="Write into namespaces who wrote them last.")] = False,
    topics: Topics = True,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Publish everything once, with its true times.")] = False,
    snapshot_minutes: Annotated[float, typer.Option(help="How often a follower does so; 0: never.")] = 60.0,
    poll_seconds: Annotated[float, typer.Option(help="How long a follower waits between two looks.")] = 0.5,
    calls_per_second: Annotated[float, typer.Option(min=0, help="Of a look, on each cluster; 0: no bound.")] = 0.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where nobody can be asked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish what changed on each cluster and apply what the others published. Exits with 5 if a part was refused."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        conf: JsonObject = {
            "selection": list(parse_selection(select or ()).texts()),
            "event_topic": event_topic,
            "tie_break": tie_break.value,
            "granularity": granularity.value,
            "stamp": stamp,
            "topics": topics,
            "snapshot": snapshot,
            "snapshot_minutes": snapshot_minutes,
            "poll_seconds": poll_seconds,
            "calls_per_second": calls_per_second,
            "quiet_seconds": Request().quiet_seconds,
        }
        request = _request(conf)
        sides = [named_cluster(name, Side.TARGET if at else Side.SOURCE) for at, name in enumerate(clusters)]
        require_consent("clusters", yes=yes)
        if not yes and not terminal.confirmed(f"Write on {', '.join(side.name for side in sides)}?"):
            raise PreconditionFailed("You did not agree. Nothing has been changed.")
        with recorded(new_run_id("sync-metadata"), "sync_metadata", {**conf, "clusters": clusters}) as run:
            found = asyncio.run((_follow if follow else _once)(terminal, sides, request, run))
        terminal.finish({"run": run.id, **found}, _state(found))


async def _once(terminal: Terminal, sides: Sequence[ClusterConnection], request: Request, run: Run) -> JsonObject:
    with terminal.working(f"Carrying changes between {', '.join(side.name for side in sides)}"):
        found = await synchronise(await reach_all(sides), request, run)
    terminal.say("\n".join([headline(found), *lines(found)]))
    return found


async def _follow(terminal: Terminal, sides: Sequence[ClusterConnection], request: Request, run: Run) -> JsonObject:
    # A service says what it does line by line.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pulsar_fleet").setLevel(logging.INFO)
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    clusters = await follow_all(await reach_all(sides), request, run, stopped=stopped, say=terminal.note)
    return {
        "clusters": clusters,
        "behind": {name: one["behind_since"] for name, one in clusters.items() if one["behind_since"]},
    }


def _state(found: JsonObject) -> ExitState:
    refused = any(one["refused"] for one in found["clusters"].values())
    return ExitState.PARTLY if refused or found["behind"] else ExitState.DONE


def _request(conf: JsonObject) -> Request:
    try:
        return Request.of(conf)
    except InvalidRequest as error:
        raise Usage(str(error)) from error
