"""`pulsar-fleet forecast-failover|prepare-failover|failover-outcome`: applications that move to another cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import ReachedCluster, named_cluster, parse_selection, reach, require_cluster
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import AsJson, DryRun, Select, Yes
from pulsar_fleet.cli.runs import recorded_run
from pulsar_fleet.cli.terminal import ExitState, Terminal, require_consent, usage_errors
from pulsar_fleet.cluster.connection import ClusterConnection, refuse_same_cluster
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.procedures.client_moves import clusters_of_return, is_exchanged
from pulsar_fleet.procedures.moving_clients import required_movement
from pulsar_fleet.replication.failover import steps
from pulsar_fleet.replication.failover.forecast import Agreement, FailoverOutcome, Forecast
from pulsar_fleet.replication.failover.late import LEFT_BEHIND, LateEntries, LeftBehind, read_late
from pulsar_fleet.replication.failover.report import (
    Addresses,
    forecast_commands,
    forecast_text,
    outcome_commands,
    outcome_text,
    prepared_text,
)

Origin = Annotated[
    str, typer.Argument(metavar="FROM", help="The cluster that applications leave: admin URL or Airflow connection id.")
]
Target = Annotated[
    str, typer.Argument(metavar="TO", help="The cluster that they connect to: admin URL or Airflow connection id.")
]

_MOST_LATE = 20

_STATES = {
    Agreement.AS_PREDICTED: ExitState.DONE,
    Agreement.UNFINISHED: ExitState.INCONCLUSIVE,
    Agreement.UNKNOWN: ExitState.INCONCLUSIVE,
    Agreement.DIFFERENT: ExitState.DIFFERENT,
}


def forecast_failover(origin: Origin, target: Target, select: Select = None, as_json: AsJson = False) -> None:
    """Forecast what is redelivered and lost if applications move to another cluster.

    Changes nothing. Exits with 3 if messages are lost, with 6 if something is unknown.
    """
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        sides, selection = _sides(origin, target), parse_selection(select or ())
        conf: JsonObject = {"origin": origin, "target": target, "selection": list(selection.texts())}
        status = terminal.status(f"Reading {sides[0].name} and {sides[1].name}")
        with recorded_run(terminal, "forecast-failover", "forecast_failover", conf) as run, status:
            first, second = run_interruptibly(_reach_both(*sides))
            forecast = run_interruptibly(steps.forecast_failover(first, second, selection, run))
    addresses = Addresses(origin=origin, target=target, run=run.id)
    terminal.say(forecast_text(forecast, addresses), *forecast_commands(forecast, addresses))
    terminal.finish(_document(run, forecast), _state(forecast))


def prepare_failover(
    origin: Origin,
    target: Target,
    select: Select = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create the replicated subscriptions that the other cluster lacks, where they lose nothing; move no existing one.

    Exits as forecast-failover does, which is its dry run.
    """
    if dry_run:
        return forecast_failover(origin, target, select, as_json)
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        require_consent("a cluster", yes=yes)
        sides, selection = _sides(origin, target), parse_selection(select or ())
        conf: JsonObject = {"origin": origin, "target": target, "selection": list(selection.texts())}
        if not yes and not terminal.confirm(f"Create the subscriptions that {target} lacks?"):
            raise PreconditionFailed("Nothing has been changed.")
        status = terminal.status(f"Preparing {sides[1].name}")
        with recorded_run(terminal, "prepare-failover", "prepare_failover", conf) as run, status:
            first, second = run_interruptibly(_reach_both(*sides))
            prepared, forecast = run_interruptibly(steps.prepare_target(first, second, selection, run))
    addresses = Addresses(origin=origin, target=target, run=run.id)
    text = f"{prepared_text(prepared)}\n\n{forecast_text(forecast, addresses)}"
    terminal.say(text, *forecast_commands(forecast, addresses))
    terminal.finish({**_document(run, forecast), "prepared": prepared.to_json()}, _state(forecast))


def failover_outcome(
    forecast_run: Annotated[str, typer.Argument(metavar="RUN", help="The run of the last forecast before the move.")],
    as_json: AsJson = False,
) -> None:
    """Compare what subscriptions got on the other cluster with a forecast.

    Changes nothing. Exits with 3 if it differs or messages are lost, with 6 if it is unknown or applications have not
    caught up.
    """
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        run = Run.open(forecast_run)
        recorded = run.ledger.run(forecast_run)
        if recorded is None or "origin" not in recorded.conf:
            raise NotFound(f"The ledger has no forecast of a failover with the run {forecast_run!r}.")
        origin, target = recorded.conf["origin"], recorded.conf["target"]
        sides = _sides(origin, target)
        with terminal.status(f"Reading {sides[1].name}"):
            first, second = run_interruptibly(_reach_both(*sides))
            outcome = run_interruptibly(steps.record_outcome(first, second, run))
    addresses = Addresses(origin=origin, target=target, run=run.id)
    terminal.say(outcome_text(outcome, addresses), *outcome_commands(outcome, addresses))
    terminal.finish({"run": run.id, "agreement": outcome.agreement, **outcome.to_json()}, _outcome_state(outcome))


def late_messages(
    run_id: Annotated[
        str, typer.Argument(metavar="RUN", help="The fail-over or return that led clients away from a dead cluster.")
    ],
    as_json: AsJson = False,
) -> None:
    """Name what a cluster had not replicated when clients were led away without it, and which came since.

    Changes nothing. Exits with 3 if messages came late, with 6 if the cluster may have more.
    """
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        run = Run.open(run_id)
        recorded, stored = run.ledger.run(run.id), run.stored(LEFT_BEHIND)
        if recorded is None or not stored:
            raise NotFound(
                f"The run {run_id!r} has led no clients away from a cluster that did not answer. See: pulsar-fleet runs"
            )
        behind, conf, places = LeftBehind.from_json(stored), recorded.conf, [Side.SOURCE, Side.TARGET]
        if not conf.get("origin"):
            # A return names the run that it takes back.
            conf, places = clusters_of_return(conf), places[:: -1 if is_exchanged(conf) else 1]
        origin, target = (
            named_cluster(conf[name], side) for name, side in zip(("origin", "target"), places, strict=True)
        )
        with terminal.status(f"Reading {behind.target}"):
            late = run_interruptibly(_read_late(run, origin, target, behind))
    terminal.say(late.text(_MOST_LATE))
    state = ExitState.DONE if not late.messages else ExitState.DIFFERENT
    terminal.finish({"run": run.id, **late.to_json()}, state if late.is_complete else ExitState.INCONCLUSIVE)


async def _read_late(run: Run, origin: ClusterConnection, target: ClusterConnection, behind: LeftBehind) -> LateEntries:
    reached = await reach(target)
    require_cluster(reached, behind.target, f"The run {run.id}")
    return await read_late(origin, reached.connection, behind, required_movement(run).namespaces)


def _sides(origin: str, target: str) -> tuple[ClusterConnection, ClusterConnection]:
    return named_cluster(origin, Side.SOURCE), named_cluster(target, Side.TARGET)


async def _reach_both(
    origin: ClusterConnection, target: ClusterConnection
) -> tuple[ClusterConnection, ClusterConnection]:
    """Both connections with their broker service URLs; one to a cluster that applications leave may not answer."""
    second = await reach(target)
    try:
        first = await reach(origin)
    except Unavailable:
        first = ReachedCluster(origin.name, origin)
    with usage_errors():
        refuse_same_cluster(origin.name, target.name, (first.name, second.name))
    return first.connection, second.connection


def _document(run: Run, forecast: Forecast) -> JsonObject:
    return {"run": run.id, "redelivered": forecast.redelivered, "lost": forecast.lost, **forecast.to_json()}


def _state(forecast: Forecast) -> ExitState:
    if forecast.lost:
        return ExitState.DIFFERENT
    return ExitState.DONE if forecast.is_complete else ExitState.INCONCLUSIVE


def _outcome_state(outcome: FailoverOutcome) -> ExitState:
    if any(row.lost for row in outcome.rows()):
        return ExitState.DIFFERENT
    return _STATES[outcome.agreement]
