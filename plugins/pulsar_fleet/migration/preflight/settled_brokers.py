"""Read brokers and clients once more before a cut-over: one may have joined or restarted since the gates."""

from __future__ import annotations

import asyncio
import logging
import time

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.text import with_names
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import BROKERS, FINDINGS
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.preflight.broker_changes import BrokerVersions, absences, new_blockers, upgrades
from pulsar_fleet.migration.preflight.gates.clients import stopping_clients
from pulsar_fleet.migration.unread_brokers import not_reported, reported_findings
from pulsar_fleet.preflight.findings import refusal_text
from pulsar_fleet.snapshot.cluster_reader import read_brokers
from pulsar_fleet.snapshot.model import Snapshot

_LATE_STATE = (
    "They connected after the gates; no topic was terminated, and no client was redirected. Then clear cut_over or use "
    "--resume."
)


def require_following_clients(run: Run, moves: Moves, namespace: str, connected: ConnectedClients) -> None:
    """Refuse the cut-over of a namespace to which a client has connected that a redirect would stop.

    Findings that the gates reported have a waiver. A run that evaluated no gates is not checked.

    :param connected: the clients of the namespace now.
    :raises PreconditionFailed: names each of these clients with its version and address.
    """
    if run.stored(FINDINGS) is None:
        return
    clients = (client for group in connected.values() for client in group)
    if late := not_reported(stopping_clients(namespace, clients), reported_findings(run)):
        raise PreconditionFailed(with_names(refusal_text(late, _LATE_STATE), moves.names))


log = logging.getLogger(__name__)

SETTLE_SECONDS = 120.0
_POLL_SECONDS = 2.0
_STATE = "No topic was terminated, and no client was redirected."


async def require_settled_brokers(
    blue: AdminClient, green: AdminClient, run: Run, moves: Moves, *, seconds: float = SETTLE_SECONDS
) -> None:
    """Wait until every broker of the gates answers and all run one version; then check what the brokers run and set.

    Clients that are redirected while a broker of green restarts find it closed, and retry ever more seldom. After
    `seconds`, brokers that do not answer count as removed. A run of an earlier release, which recorded no brokers, is
    not checked. Calls: one for each cluster and two for each broker, in each poll.

    :raises PreconditionFailed: a rolling upgrade is not finished after `seconds`, or a broker now has a blocker.
    """
    document = run.stored(BROKERS)
    if document is None:
        return
    before, end = BrokerVersions.from_json(document), time.monotonic() + seconds
    while True:
        is_last = time.monotonic() > end
        try:
            snapshots = await asyncio.gather(_read(blue, moves.blue), _read(green, moves.green))
        except Unavailable as error:
            if is_last:
                raise
            upgrading, absent = [], [str(error)]
        else:
            now = BrokerVersions.of(*(snapshot.brokers for snapshot in snapshots))
            upgrading, absent = upgrades(before, now), absences(before, now)
            if is_last or not (upgrading or absent):
                break
        log.info("The cut-over waits for the brokers: %s", "; ".join([*upgrading, *absent]))
        await asyncio.sleep(_POLL_SECONDS)
    if upgrading:
        raise PreconditionFailed(f"{'. '.join(upgrading)}. {_STATE} Finish it, then clear cut_over or use --resume.")
    for sentence in absent:
        log.warning("%s: the cut-over goes on without the others", sentence)
    redirects = any(move.strategy.redirects for move in moves.moves)
    if findings := new_blockers(*snapshots, reported_findings(run), redirects=redirects):
        raise PreconditionFailed(refusal_text(findings, _STATE))


async def _read(admin: AdminClient, cluster: str) -> Snapshot:
    brokers = await read_brokers(admin, open_redactor(), PartialReads())
    return Snapshot(cluster=cluster, began="", ended="", key_id="", brokers=tuple(brokers))
