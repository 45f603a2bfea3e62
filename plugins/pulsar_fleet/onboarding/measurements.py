"""Measure what the checks need and a snapshot does not hold; nothing is changed by it."""

from __future__ import annotations

from dataclasses import asdict

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import Clock, measure_clock
from pulsar_fleet.cluster.admin.permissions import Right
from pulsar_fleet.cluster.admin.reachability import addresses, unreachable
from pulsar_fleet.cluster.errors import NotAllowed, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.preflight.context import Measured
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.tenants import list_namespaces


async def measure(admin: AdminClient, snapshot: Snapshot, rights: tuple[Right, ...]) -> Measured:
    """The clock, what is there in all, and which addresses of peers can be reached from here.

    :param rights: what `find_rights` found before anything was read.
    """
    try:
        tenants = len(await admin.tenants())
    except NotAllowed:
        tenants = None
    names = [one.name for one in snapshot.tenants]
    namespaces = await list_namespaces(admin, names, unknown=(NotFound, NotAllowed))
    peers = [url for one in snapshot.clusters if one.name != snapshot.cluster for url in addresses(one.data)]
    return Measured(
        clock=await measure_clock(admin),
        rights=rights,
        tenants=tenants,
        namespaces={name: len(listed) for name, listed in namespaces.items() if listed is not None},
        unreachable=await unreachable(peers),
    )


def measured_to_json(measured: Measured) -> JsonObject:
    """As a JSON object."""
    return asdict(measured)


def measured_from_json(found: JsonObject) -> Measured:
    """Read what `measured_to_json` wrote."""
    return Measured(
        clock=Clock(**found["clock"]) if found["clock"] else None,
        rights=tuple(Right.from_json(one) for one in found["rights"]),
        tenants=found["tenants"],
        namespaces=found["namespaces"],
        unreachable=found["unreachable"],
    )
