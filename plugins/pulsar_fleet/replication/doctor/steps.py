"""The steps of the doctor: examine, and execute a remedy; each is safe to run again at any point."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from pulsar_fleet.cluster.connection import ClusterConnection, require_two
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import open_fleet
from pulsar_fleet.replication.doctor.causes.catalogue import UNEXPLAINED
from pulsar_fleet.replication.doctor.changes import store_remedy
from pulsar_fleet.replication.doctor.diagnosis import diagnose
from pulsar_fleet.replication.doctor.facts import renewed, require_clusters
from pulsar_fleet.replication.doctor.model import Examination
from pulsar_fleet.replication.doctor.reading.fleet import read_fleet
from pulsar_fleet.replication.doctor.remedies import RemedyResult, chosen_calls, send_remedies
from pulsar_fleet.replication.doctor.request import Request

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
_REPEAT_SECONDS = 5.0


async def examine(connections: Sequence[ClusterConnection], request: Request) -> Examination:
    """Read all clusters and diagnose every replicator of the selected namespaces; nothing is changed.

    Loads the topics of namespaces that replicate. Calls: see `read_fleet`. A second call reads everything again.

    A namespace with a replicator that does not work and no cause is read again for up to `connect_seconds`: brokers try
    to connect at most once a minute, and the first try can time out after 30 s (observed, 4.2.4).

    :raises InvalidRequest: fewer than two clusters, two connections lead to one, or no cluster has a name of
        `receive_only`.
    :raises PermissionDenied: a cluster denies access.
    :raises Unavailable: no cluster answers.
    """
    require_two([connection.name for connection in connections])
    began = time.monotonic()
    async with open_fleet(connections, PATIENCE_SECONDS) as fleet:
        facts = await read_fleet(fleet, connections, request)
        require_clusters(facts, request.receive_only)
        examination, read = diagnose(facts, request), time.monotonic()
        while (names := _unexplained(examination)) and time.monotonic() - read < request.connect_seconds:
            await asyncio.sleep(_REPEAT_SECONDS)
            selection = Selection(namespaces=names)
            facts = renewed(facts, await read_fleet(fleet, connections, replace(request, selection=selection)))
            examination = diagnose(facts, request)
    examination = replace(examination, seconds=round(time.monotonic() - began, 2), read_at=round(time.time(), 1))
    log.info("%s replicators examined in %s s", sum(examination.counts.values()), examination.seconds)
    return examination


def _unexplained(examination: Examination) -> frozenset[NamespaceName]:
    """The namespaces with a replicator that does not work without a cause: it may be about to connect."""
    rows = (row for row in examination.replicators if row.state.is_fault)
    unexplained = (row for row in rows if all(cause.endswith(UNEXPLAINED) for cause in row.causes))
    return frozenset(TopicName.parse(row.topic).namespace for row in unexplained)


async def heal(
    connections: Sequence[ClusterConnection], before: Examination, request: Request, run: Run
) -> RemedyResult:
    """Send the calls of the remedies that the request names, and examine again; the records have both readings.

    Only calls that can harm nothing are sent, see `send_remedies`. A second call sends what is still wrong then.

    :param before: the result of `examine`.
    :raises PreconditionFailed: a guard refuses a call; nothing was sent.
    """
    calls = chosen_calls(before, request.remedies)
    async with open_fleet(connections, PATIENCE_SECONDS) as fleet:
        sent = await send_remedies(fleet.clusters, calls)
    result = RemedyResult(sent=sent, before=before, after=await examine(connections, request))
    store_remedy(run, result)
    return result
