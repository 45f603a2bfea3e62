"""What our role may read and set on a cluster, probed by calls without effect before anything is read or planned."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import NAMESPACES_OF, Area
from pulsar_fleet.cluster.errors import Conflict, InvalidRequest, NotAllowed, NotFound, Unavailable
from pulsar_fleet.cluster.selection import Selection

TENANT = "tenant "


@dataclass(frozen=True, slots=True)
class Right:
    """What our role may do with one kind of resource; None where the broker did not answer.

    :param resource: an `Area`, `tenant x`, or `namespaces of x` (their topics, schemas and subscriptions included).
    """

    resource: str
    may_read: bool | None
    may_write: bool | None


async def find_rights(admin: AdminClient, selection: Selection) -> tuple[Right, ...]:
    """Probe each kind of resource; writes use names that do not exist, so that nothing can change.

    The broker answers 404 or 412 to a role that has the right, and 401 or 403 to one that does not.

    :param selection: its tenants are probed too, two resources each.
    :raises Unauthenticated: the cluster does not accept the token.
    """
    own, missing = await admin.cluster_name(), f"pulsar-fleet-probe-{uuid.uuid4().hex[:12]}"
    probes = [*_cluster_probes(own, missing), *_tenant_probes(sorted(selection.named_tenants or ()), missing)]
    return tuple(await asyncio.gather(*(_right(admin, *probe) for probe in probes)))


def rights_markdown(cluster: str, rights: Sequence[Right]) -> str:
    """A table of what the role may read and set; empty when it may do everything, or nothing was probed."""
    if all(right.may_read is not False and right.may_write is not False for right in rights):
        return ""
    rows = [f"| {right.resource} | {_WORDS[right.may_read]} | {_WORDS[right.may_write]} |" for right in rights]
    return "\n".join([f"| on {cluster} | may read | may set |", "| --- | --- | --- |", *rows])


_WORDS = {True: "yes", False: "**no**", None: "unknown"}

_Probe = tuple[str, Call, Call | None]


def _cluster_probes(own: str, missing: str) -> list[_Probe]:
    cluster = f"/clusters/{quote(own, safe='')}"
    affinity = f"/namespaces/{missing}/{missing}/persistence/bookieAffinity"
    no_tenant = {"adminRoles": [], "allowedClusters": [own]}
    return [
        (Area.TENANTS, bare("GET", "/tenants"), with_body("POST", f"/tenants/{missing}", no_tenant)),
        (Area.CLUSTERS, bare("GET", cluster), with_body("POST", f"/clusters/{missing}", {"serviceUrl": "http://none"})),
        (
            Area.BROKERS,
            bare("GET", "/brokers/configuration/values"),
            bare("DELETE", f"/brokers/configuration/{missing}"),
        ),
        # The broker answers 500 to the deletion of a missing group; reading and writing need the same right anyway.
        (Area.RESOURCE_GROUPS, bare("GET", "/resourcegroups"), bare("GET", "/resourcegroups")),
        (Area.BOOKIE_AFFINITY, bare("GET", affinity), bare("DELETE", affinity)),
        (
            Area.ISOLATION,
            bare("GET", f"{cluster}/failureDomains"),
            bare("DELETE", f"{cluster}/failureDomains/{missing}"),
        ),
        (Area.CLIENTS, bare("GET", "/broker-stats/load-report"), None),
    ]


def _tenant_probes(tenants: Sequence[str], missing: str) -> list[_Probe]:
    probes: list[_Probe] = []
    for name in tenants:
        tenant = quote(name, safe="")
        # Reading and updating a tenant need the same right, and an update would change the tenant.
        probes.append((TENANT + name, bare("GET", f"/tenants/{tenant}"), bare("GET", f"/tenants/{tenant}")))
        unset = bare("DELETE", f"/namespaces/{tenant}/{missing}/retention")
        probes.append((NAMESPACES_OF + name, bare("GET", f"/namespaces/{tenant}"), unset))
    return probes


async def _right(admin: AdminClient, resource: str, reading: Call, writing: Call | None) -> Right:
    may_read = await _may(admin, reading)
    may_write = may_read if writing == reading else await _may(admin, writing) if writing else None
    return Right(str(resource), may_read, may_write)


async def _may(admin: AdminClient, call: Call) -> bool | None:
    try:
        await admin.send(call)
    except NotAllowed:
        return False
    except (NotFound, InvalidRequest, Conflict):
        return True
    except Unavailable:
        return None
    return True
