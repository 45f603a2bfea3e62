"""Write what a cluster holds as the files that can be its authority (client)."""

from __future__ import annotations

from pathlib import Path

from pulsar_fleet.agreement.observing import look
from pulsar_fleet.agreement.views import items_of
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.reconciliation.files import export
from pulsar_fleet.records.fingerprint_key import open_seal


async def export_cluster(
    connection: ClusterConnection, selection: Selection, folder: Path, *, topics: bool = True
) -> JsonObject:
    """Write or update the files of what is selected; again for the same state changes no byte.

    Secrets stand there as fingerprints, which only this installation can compare; they are never written back from a
    file alone.

    :returns: `{"cluster", "written", "unchanged", "stale", "calls"}`.
    :raises Refused: something could not be read, so its file would be wrong.
    """
    async with AdminClient(connection) as admin:
        seen = await look(admin, selection, open_seal(), topics=topics)
    if seen.unread:
        raise Refused(
            f"{seen.snapshot.cluster} did not let everything be read, first {min(seen.unread)}: no file was written."
        )
    own = seen.snapshot.cluster
    found = export(items_of(seen.snapshot, seen.snapshot.known_clusters), folder)
    return {
        "cluster": own,
        "written": list(found.written),
        "unchanged": found.unchanged,
        "stale": list(found.stale),
        "calls": seen.calls,
    }
