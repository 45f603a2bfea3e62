"""Read the brokers of both clusters once more before a cut-over: one may have joined or restarted since the gates."""

from __future__ import annotations

import asyncio
import logging
import time

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import BROKERS
from pulsar_fleet.migration.gate_findings import reported_findings
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.preflight.broker_changes import BrokerVersions, absences, new_blockers, upgrades
from pulsar_fleet.preflight.findings import refusal_text
from pulsar_fleet.snapshot.cluster_reader import read_brokers
from pulsar_fleet.snapshot.model import Snapshot

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
