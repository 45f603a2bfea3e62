"""Values that a cluster lacks, and nobody knows whether they were removed or lost with a deletion: told to no one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.participant import Participant, field_values
from pulsar_fleet.policy_sync.events.versions import EXISTS, ResourceVersions, StoredVersions, Version
from pulsar_fleet.policy_sync.guards import read_identity
from pulsar_fleet.policy_sync.merge.fields import ROLES
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN, digest
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.merge.view import Identity, Item, View, tenant_and_namespace

log = logging.getLogger(__name__)

Withheld = Mapping[Item, frozenset[str]]
"""Resource → its fields that are lacking and not treated as removed."""


async def withheld_fields(
    participant: Participant, observed: ClusterScan, view: View, before: StoredVersions, items: Iterable[Item]
) -> Withheld:
    """The fields that are lacking since a scan, unless something proves that the resource is still the same one.

    Calls: none without such fields; those of `read_identity` in the first scan that finds them.
    """
    lacking = {
        item: names
        for item in items
        if (stored := before.of(item)) and (names := lacking_fields(item, stored, field_values(view, item)))
    }
    withheld = await asyncio.gather(
        *(_withheld(participant, observed, before, item, names) for item, names in lacking.items())
    )
    return {item: names for item, names in zip(lacking, withheld, strict=True) if names}


def lacking_fields(item: Item, stored: ResourceVersions, values: Mapping[str, Json]) -> frozenset[str]:
    """The fields of a resource that exists which had a value at the last scan and have none now (pure).

    A field that we are about to unset ourselves is none of them.
    """
    kind, exists = item[0], stored.fields.get(EXISTS)
    if kind is not Resource.TOPIC_POLICY and (EXISTS not in values or (exists is not None and not exists.digest)):
        return frozenset()
    empty = {name: digest(None) for name in stored.fields if name not in values}
    if kind is Resource.TENANT and values.get(ROLES) == []:
        empty[ROLES] = digest([])
    return frozenset(
        name
        for name, text in empty.items()
        if name in stored.fields
        and stored.fields[name].digest not in ("", text)
        and (name not in stored.expected or stored.expected[name].digest != text)
    )


async def _withheld(
    participant: Participant, observed: ClusterScan, before: StoredVersions, item: Item, names: frozenset[str]
) -> frozenset[str]:
    stored = before.of(item)
    known = names & frozenset(stored.withheld if stored else ())
    new = names - known
    if not new or await _is_same(participant, observed, before, item, new):
        return known
    log.warning(
        "%s: %s %s lacks %s, and nothing proves that it was not deleted and created again. This is published to no "
        "cluster: run `pulsar-fleet reconcile`, which lists the values and asks.",
        participant.own,
        item[0].value,
        item[1],
        ", ".join(sorted(new)),
    )
    return names


async def _is_same(
    participant: Participant, observed: ClusterScan, before: StoredVersions, item: Item, names: frozenset[str]
) -> bool:
    if item[0] is Resource.TOPIC_POLICY:
        events = observed.events.get(tenant_and_namespace(item)[1])
        if events is not None and events.unsets(item[1], names):
            return True
    since = None if item in participant.unscanned else participant.scan_began or before.scan_began
    stored = before.of(item) or ResourceVersions()
    # Every scan that found an edit here would have withheld what was lacking then.
    seen = max(since or 0, *(_found(entry.version, participant.own) for entry in stored.fields.values()))
    at = seen / 1000 - participant.clock.host.ahead if seen else UNKNOWN
    return await read_identity(participant.admin, item, at, observed.clock) is Identity.SAME


def _found(version: Version, own: str) -> int:
    """When an edit was found on this cluster, in ms since 1970; 0 if that is unknown, or the value came by an event."""
    return version.update_time if version.source_cluster == own and version.bounds else 0
