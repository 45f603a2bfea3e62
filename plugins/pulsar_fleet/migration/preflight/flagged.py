"""Namespaces that are flagged already and do not move with a run: read without loading a topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import REDIRECT
from pulsar_fleet.migration.model import Phase
from pulsar_fleet.migration.stats.facts import FlaggedNamespace
from pulsar_fleet.snapshot.inventory import read_clients
from pulsar_fleet.snapshot.model import BrokerState
from pulsar_fleet.snapshot.resources import is_terminated, read_partition_counts
from pulsar_fleet.snapshot.tenants import list_namespaces

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GreenTargets:
    """Green's brokers, and the addresses that lead to them."""

    brokers: tuple[BrokerState, ...]
    addresses: frozenset[str]


async def flagged_names(admin: AdminClient) -> tuple[NamespaceName, ...] | None:
    """Every flagged namespace of a cluster, one call for each tenant and namespace; None if not all could be read."""
    try:
        listed = await list_namespaces(admin, await admin.tenants())
        names = sorted(name for namespaces in listed.values() for name in namespaces or ())
        documents = await asyncio.gather(*(admin.namespace(name) for name in names))
    except FleetError:
        return None
    return tuple(name for name, document in zip(names, documents, strict=True) if (document or {}).get("migrated"))


async def read_flagged(
    blue: AdminClient, green: AdminClient, run: Run, moving: Collection[NamespaceName], targets: GreenTargets
) -> tuple[FlaggedNamespace, ...] | None:
    """What is known of each flagged namespace on blue that does not move; None if not all could be read.

    Calls, in addition to those of `flagged_names`: for each of them its lists of topics on both clusters, and one for
    each topic up to the first that is terminated; one for each of green's brokers.
    """
    flagged = await flagged_names(blue)
    if flagged is None:
        return None
    names = [name for name in flagged if name not in moving]
    clients = await read_clients(green, targets.brokers, PartialReads()) if names else []
    in_use = {state.namespace for state in clients}
    return tuple(await asyncio.gather(*(_read(blue, green, run, name, in_use, targets.addresses) for name in names)))


async def _read(
    blue: AdminClient,
    green: AdminClient,
    run: Run,
    name: NamespaceName,
    in_use: Collection[str],
    addresses: frozenset[str],
) -> FlaggedNamespace:
    moved_by = run.ledger.last_run_in(str(name), Phase.CUT_OVER) or ""
    document = Run(moved_by, run.ledger, run.artefacts).stored(REDIRECT) if moved_by else None
    terminated, lacking = None, tuple[str, ...]()
    try:
        topics = await read_partition_counts(blue, name)
        terminated = await _any_terminated(blue, topics)
        lacking = await _lacking(green, name, topics)
    except FleetError as error:
        log.warning("%s is flagged, and its topics could not be read: %s", name, error)
    return FlaggedNamespace(
        name=str(name),
        terminated=terminated,
        lacking=lacking,
        moved_by=moved_by,
        is_on_green=bool(verified_addresses(document or {}) & addresses) or str(name) in in_use,
    )


def verified_addresses(redirect: JsonObject) -> frozenset[str]:
    """The addresses in a stored `redirect.json` that a cluster really has: no guesses for services that it lacks."""
    placeholders = redirect.get("placeholders") or ()
    document = redirect.get("document") or {}
    own = (str(url) for key, url in document.items() if key not in placeholders)
    return frozenset((*own, *redirect.get("advertised", ())))


async def _any_terminated(blue: AdminClient, topics: Collection[TopicName]) -> bool:
    for topic in topics:
        if is_terminated(await blue.internal_info(topic)):
            return True
    return False


async def _lacking(green: AdminClient, name: NamespaceName, topics: Collection[TopicName]) -> tuple[str, ...]:
    if await green.namespace(name) is None:
        return (f"namespace {name}",)
    existing = await read_partition_counts(green, name)
    return tuple(str(topic) for topic in topics if topic not in existing)
