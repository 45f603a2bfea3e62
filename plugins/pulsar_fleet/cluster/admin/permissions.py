"""What our role may see and set on a cluster: found out before anything is read or planned, by calls without effect."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.cluster.errors import Conflict, InvalidRequest, NotAllowed, NotFound, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection

TENANT = "tenant "
NAMESPACES = "namespaces of "


@dataclass(frozen=True, slots=True)
class Right:
    """What our role may do with one kind of resource; None where the broker did not tell.

    :param resource: an `Area`, `tenant x`, or `namespaces of x` (their topics, schemas and subscriptions included).
    """

    resource: str
    may_read: bool | None
    may_write: bool | None

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(**found)


async def find_rights(admin: AdminClient, selection: Selection) -> tuple[Right, ...]:
    """Ask for each kind of resource; writes are tried on names that do not exist, so that nothing can change.

    A role that has the right is told that there is no such thing (404, 412), another one that it may not (401, 403).

    :param selection: its tenants are asked for one by one.
    :raises Unauthenticated: the token itself is not accepted.
    """
    own, nobody = await admin.cluster_name(), f"pulsar-fleet-probe-{uuid.uuid4().hex[:12]}"
    probes = [*_cluster_probes(own, nobody), *_tenant_probes(sorted(selection.named_tenants or ()), nobody)]
    return tuple(await asyncio.gather(*(_right(admin, *probe) for probe in probes)))


def rights_markdown(cluster: str, rights: Sequence[Right]) -> str:
    """A table: what the role may see and set; empty when it may do everything, or nothing was asked."""
    if all(right.may_read is not False and right.may_write is not False for right in rights):
        return ""
    rows = [f"| {one.resource} | {_WORDS[one.may_read]} | {_WORDS[one.may_write]} |" for one in rights]
    return "\n".join([f"| on {cluster} | may read | may set |", "| --- | --- | --- |", *rows])


_WORDS = {True: "yes", False: "**no**", None: "not known"}

_Probe = tuple[str, Call, Call | None]


def _cluster_probes(own: str, nobody: str) -> list[_Probe]:
    cluster = f"/clusters/{quote(own, safe='')}"
    affinity = f"/namespaces/{nobody}/{nobody}/persistence/bookieAffinity"
    no_tenant = {"adminRoles": [], "allowedClusters": [own]}
    return [
        (Area.TENANTS, bare("GET", "/tenants"), with_body("POST", f"/tenants/{nobody}", no_tenant)),
        (Area.CLUSTERS, bare("GET", cluster), with_body("POST", f"/clusters/{nobody}", {"serviceUrl": "http://none"})),
        (
            Area.BROKERS,
            bare("GET", "/brokers/configuration/values"),
            bare("DELETE", f"/brokers/configuration/{nobody}"),
        ),
        # The broker answers 500 to deleting a group that is not there; reading and writing ask for one right anyway.
        (Area.RESOURCE_GROUPS, bare("GET", "/resourcegroups"), bare("GET", "/resourcegroups")),
        (Area.BOOKIE_AFFINITY, bare("GET", affinity), bare("DELETE", affinity)),
        (
            Area.ISOLATION,
            bare("GET", f"{cluster}/failureDomains"),
            bare("DELETE", f"{cluster}/failureDomains/{nobody}"),
        ),
        (Area.CLIENTS, bare("GET", "/broker-stats/load-report"), None),
    ]


def _tenant_probes(tenants: Sequence[str], nobody: str) -> list[_Probe]:
    found: list[_Probe] = []
    for name in tenants:
        tenant = quote(name, safe="")
        # Reading and updating a tenant ask for the same role; an update would be one.
        found.append((TENANT + name, bare("GET", f"/tenants/{tenant}"), bare("GET", f"/tenants/{tenant}")))
        unset = bare("DELETE", f"/namespaces/{tenant}/{nobody}/retention")
        found.append((NAMESPACES + name, bare("GET", f"/namespaces/{tenant}"), unset))
    return found


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
