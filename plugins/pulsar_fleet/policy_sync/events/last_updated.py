"""Write into a namespace's own properties when and where it was last written, as PIP-136 does (client).

Tenants have no properties, and the properties of a topic cannot be written without loading it, so neither has them.
These properties are not policies: they are never compared, carried or treated as a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import PROVENANCE_PROPERTIES
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.participant import Participant
from pulsar_fleet.policy_sync.events.versions import BEFORE_EVERYTHING, ResourceVersions
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.merge.view import Item

log = logging.getLogger(__name__)


async def update_properties(
    participant: Participant, observed: ClusterScan, versions: Mapping[Item, ResourceVersions]
) -> int:
    """Write the provenance properties of scanned namespaces in which they are stale; returns how many were written.

    One call per stale namespace and none for the others: the scan has read the properties. A value that was never
    written since the clusters were connected has no time, and its namespace gets no properties.
    """
    if not participant.request.write_provenance:
        return 0
    documents = {state.name: state.policies for state in observed.snapshot.namespaces}
    stale = stale_properties(documents, versions)
    return sum(await asyncio.gather(*(_write(participant, name, properties) for name, properties in stale.items())))


def stale_properties(
    documents: Mapping[str, Mapping[str, Json]], versions: Mapping[Item, ResourceVersions]
) -> dict[str, dict[str, str]]:
    """Namespace → its correct provenance properties, only for namespaces with other ones."""
    stale: dict[str, dict[str, str]] = {}
    for (kind, name), resource in versions.items():
        newest = resource.newest
        if kind is not Resource.NAMESPACE or name not in documents or newest is None:
            continue
        correct = dict(zip(PROVENANCE_PROPERTIES, (newest.source_cluster, str(newest.update_time)), strict=True))
        current = documents[name].get("properties") or {}
        has_time = newest.update_time > BEFORE_EVERYTHING
        if has_time and any(current.get(key) != value for key, value in correct.items()):
            stale[name] = correct
    return stale


async def _write(participant: Participant, name: str, properties: dict[str, str]) -> bool:
    try:
        # The setter merges, so concurrent writes of other properties are not lost.
        await participant.admin.put(f"/namespaces/{NamespaceName.parse(name).path}/properties", properties)
    except (NotFound, InvalidRequest) as error:
        log.warning("%s: the provenance of namespace %s is not written: %s", participant.own, name, error)
        return False
    return True
