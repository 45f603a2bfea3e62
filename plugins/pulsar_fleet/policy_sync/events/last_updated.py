"""Write into a namespace's own properties who wrote it last, and when, as PIP-136 has it (client).

Tenants have no properties, and those of a topic cannot be written without loading it, so neither is stamped. A stamp is
about the policies and is none of them: nowhere is it compared, carried or taken for a change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import STAMP
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.participant import Site
from pulsar_fleet.policy_sync.events.versions import BEFORE_EVERYTHING, Known
from pulsar_fleet.policy_sync.merge.scan import Observed
from pulsar_fleet.policy_sync.merge.view import Item

log = logging.getLogger(__name__)


async def write_stamps(site: Site, observed: Observed, known: Mapping[Item, Known]) -> int:
    """Stamp the namespaces of a look whose stamp is not what is known of them; returns how many were written.

    A call for each of these and none for the others: what a look showed is what the stamp of the look before is read
    back by. What was never written since the clusters came together has no time, and gets no stamp.
    """
    if not site.request.stamp:
        return 0
    stale = stale_stamps({one.name: one.policies for one in observed.snapshot.namespaces}, known)
    return sum(await asyncio.gather(*(_write(site, name, stamp) for name, stamp in stale.items())))


def stale_stamps(documents: Mapping[str, Mapping[str, Json]], known: Mapping[Item, Known]) -> dict[str, dict[str, str]]:
    """Namespace → the properties that it should have, of those that have others."""
    found: dict[str, dict[str, str]] = {}
    for (kind, name), one in known.items():
        newest = one.newest
        if kind is not Resource.NAMESPACE or name not in documents or newest is None:
            continue
        wanted = dict(zip(STAMP, (newest.source_cluster, str(newest.update_time)), strict=True))
        held = documents[name].get("properties") or {}
        if newest.update_time != BEFORE_EVERYTHING and any(held.get(key) != value for key, value in wanted.items()):
            found[name] = wanted
    return found


async def _write(site: Site, name: str, stamp: dict[str, str]) -> bool:
    try:
        # The setter merges, so that the namespace's other properties stay whoever writes them meanwhile.
        await site.admin.put(f"/namespaces/{NamespaceName.parse(name).path}/properties", stamp)
    except (NotFound, InvalidRequest) as error:
        log.warning("%s: namespace %s is not stamped: %s", site.own, name, error)
        return False
    return True
