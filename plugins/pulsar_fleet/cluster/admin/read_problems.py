"""Notes about resources of a cluster that were not read, and why: they are unknown, not absent (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Problem(StrEnum):
    """Why a resource is not in a snapshot."""

    DELETED = "deleted"
    """It was deleted between listing and reading: no problem."""
    UNREADABLE = "unreadable"
    """It exists and could not be read: the snapshot is incomplete."""
    NOT_OFFERED = "not offered"
    """The cluster does not run the feature, so there are no such resources: no problem."""
    HIDDEN = "hidden"
    """Our role may not read it: it may exist or not, and nothing is concluded from that."""


class Area(StrEnum):
    """Resources that a role may read or set only together; the `resource` of a `Note` about a hidden area."""

    TENANTS = "list of tenants"
    CLUSTERS = "cluster data"
    BROKERS = "broker configuration"
    RESOURCE_GROUPS = "resource groups"
    BOOKIE_AFFINITY = "bookie affinity of namespaces"
    ISOLATION = "isolation policies and failure domains"
    CLIENTS = "connected clients"


@dataclass(frozen=True, slots=True)
class Note:
    """A resource that is not in the snapshot, and why; `resource` is a name, or a kind such as `brokers`."""

    resource: str
    problem: str
    detail: str
