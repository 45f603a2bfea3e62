"""Measure what the checks need and a snapshot does not have; nothing is changed."""

from __future__ import annotations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import measure_clock_skew
from pulsar_fleet.cluster.admin.permissions import Right
from pulsar_fleet.cluster.admin.probes.reachability import addresses, unreachable
from pulsar_fleet.cluster.errors import NotAllowed, NotFound
from pulsar_fleet.preflight.bookies import read_bookies
from pulsar_fleet.preflight.context import Measurements
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.tenants import list_namespaces


async def measure(admin: AdminClient, snapshot: Snapshot, rights: tuple[Right, ...]) -> Measurements:
    """The clock skew, how many tenants, namespaces and bookies exist, which addresses of peers are reachable from here.

    :param rights: the answer of `find_rights`, which is called before anything is read.
    """
    try:
        tenants = len(await admin.tenants())
    except NotAllowed:
        tenants = None
    names = [state.name for state in snapshot.tenants]
    namespaces = await list_namespaces(admin, names, unknown=(NotFound, NotAllowed))
    peers = [url for state in snapshot.clusters if state.name != snapshot.cluster for url in addresses(state.data)]
    return Measurements(
        clock=await measure_clock_skew(admin),
        rights=rights,
        tenants=tenants,
        namespaces={name: len(listed) for name, listed in namespaces.items() if listed is not None},
        unreachable=await unreachable(peers),
        bookies=await read_bookies(admin),
    )
