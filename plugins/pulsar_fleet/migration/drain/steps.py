"""Monitor the namespaces of a run after their cutover and remediate incidents; the state is stored with the run."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import BROKERS, DRAIN_STATE
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import unterminated
from pulsar_fleet.migration.drain.monitor import DrainMonitor, DrainStatus
from pulsar_fleet.migration.drain.remediate import RemedyContext, attempts_of, is_exhausted, may_attempt, remediate
from pulsar_fleet.migration.drain.state import DrainState, Incident, IncidentKind, Remedy
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.migration.preflight.broker_changes import BrokerVersions
from pulsar_fleet.migration.preflight.redirect_probe import redirect_of
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.lease import renew_while_waiting
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.subscriptions.checkpoint import departed_consumers, stored_clients, with_clients
from pulsar_fleet.migration.unread_brokers import accepted_as_unread

log = logging.getLogger(__name__)

_POLL_RETRY_SECONDS = 4.0
"""A broker that does not answer for longer is reported as unreachable, not waited for."""


async def poll_drain(sides: Sides, run: Run, moves: Moves) -> DrainStatus:
    """Poll once and store the state; nothing is changed on the clusters."""
    await renew_while_waiting(sides, run, moves)
    async with _monitor(sides, run, moves, probing=False) as monitor:
        return await _poll(monitor, run)


async def monitor_drain(sides: Sides, run: Run, moves: Moves) -> DrainStatus:
    """Poll once, and remediate what may be remediated.

    A remedy during which the process died is detected, and attempted, again by the next call.
    """
    await renew_while_waiting(sides, run, moves)
    async with _monitor(sides, run, moves, probing=True) as monitor:
        status = await _poll(monitor, run)
        recovered: set[str] = set()
        for incident in status.remediable:
            # One recovery loads all of a namespace, whichever of its bundles is named; a fenced topic needs its own.
            recovers = incident.remedy is Remedy.RELOAD
            if recovers and incident.namespace in recovered and incident.kind is not IncidentKind.FENCED:
                continue
            # A remedy retries for longer than a poll does.
            async with sides.open() as (blue, green):
                remediated = await _remediate(monitor, blue, green, incident, run)
            if remediated and recovers:
                recovered.add(incident.namespace)
        if status.is_done:
            _record_end(monitor, run, moves)
        return status


@asynccontextmanager
async def _monitor(sides: Sides, run: Run, moves: Moves, *, probing: bool) -> AsyncIterator[DrainMonitor]:
    reference = run.artefacts.find(run.id, DRAIN_STATE)
    state = DrainState.from_json(run.artefacts.read_json(reference)) if reference else DrainState()
    connected, brokers = stored_clients(run, moves), run.stored(BROKERS)
    async with (
        AdminClient(sides.blue, retry_seconds=_POLL_RETRY_SECONDS) as blue,
        AdminClient(sides.green, retry_seconds=_POLL_RETRY_SECONDS) as green,
    ):
        moving = [move for move in moves.moves if move.strategy.redirects]
        left = await unterminated(blue, green, run, moving)
        try:
            yield DrainMonitor(
                blue=blue,
                green=green,
                names={**sides.names, **moves.names},
                moves=[with_clients(move, connected) for move in moving],
                connected=connected,
                departed={str(move.namespace): departed_consumers(run, move, connected) for move in moves.moves},
                redirect=redirect_of(sides, run),
                state=state,
                probing=probing,
                accepted_as_unread=accepted_as_unread(run),
                unterminated=left,
                versions=BrokerVersions.from_json(brokers).blue if brokers else (),
            )
        finally:
            run.artefacts.write_json(run.id, DRAIN_STATE, state.to_json())


async def _poll(monitor: DrainMonitor, run: Run) -> DrainStatus:
    now = time.time()
    status = await monitor.poll(now)
    attempts = attempts_of(run)
    for incident in status.incidents:
        if is_exhausted(incident, attempts):
            record = monitor.state.namespaces[incident.namespace].incidents[incident.id]
            record["sentence"] = (
                f"{incident.sentence} Its remedy was attempted and did not help; by hand: {incident.remedy}."
            )
    remediable = tuple(incident for incident in status.incidents if may_attempt(incident, attempts, now))
    return replace(status, remediable=remediable)


async def _remediate(
    monitor: DrainMonitor, blue: AdminClient, green: AdminClient, incident: Incident, run: Run
) -> bool:
    move = next(move for move in monitor.moves if str(move.namespace) == incident.namespace)
    context = RemedyContext(blue=blue, green=green, move=move, redirect=monitor.redirect, before=_before(run), run=run)
    result = await remediate(incident, context)
    namespace = monitor.state.namespaces[incident.namespace]
    namespace.incidents[incident.id]["remediated"] = (
        result.text if result else "The remedy failed; the ledger has the reason."
    )
    if result is not None:
        namespace.blue.restart(move.partitions, time.time())
        namespace.green.restart((), time.time())
        namespace.fenced.clear()
    return result is not None


def _record_end(monitor: DrainMonitor, run: Run, moves: Moves) -> None:
    for name, namespace in monitor.state.namespaces.items():
        details = {"forecast_error": namespace.forecast_error, "incidents": len(namespace.incidents)}
        run.ledger.enter_phase(run.id, name, Phase.DRAINED, details)
    for move in moves.moves:
        if not move.strategy.redirects:
            # Its applications had left blue before its topics were terminated.
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.DRAINED)


def _before(run: Run) -> OriginalSettings:
    before = find_original_settings(run)
    if before is None:
        raise PreconditionFailed(f"Run {run.id!r} has not frozen the namespaces: there is nothing to monitor.")
    return before
