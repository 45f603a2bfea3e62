"""What could not be read of a cluster, and why: an unreadable fact is unknown (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Problem(StrEnum):
    """Why something is not in a snapshot."""

    VANISHED = "vanished"
    """It was listed, and gone when it was read: nothing is wrong."""
    UNREADABLE = "unreadable"
    """It is there and could not be read: the snapshot is incomplete."""
    NOT_OFFERED = "not offered"
    """This cluster does not run what would hold it, so there is none: nothing is wrong."""
    HIDDEN = "hidden"
    """Our role may not read it: whether anything is there is unknown, and nothing is concluded from it."""


class Area(StrEnum):
    """What a role may or may not read and set as a whole; a `Note` about a hidden one has this as its resource."""

    TENANTS = "list of tenants"
    CLUSTERS = "cluster data"
    BROKERS = "broker configuration"
    RESOURCE_GROUPS = "resource groups"
    BOOKIE_AFFINITY = "bookie affinity of namespaces"
    ISOLATION = "isolation policies and failure domains"
    CLIENTS = "connected clients"


@dataclass(frozen=True, slots=True)
class Note:
    """Something that is not in the snapshot, and why; `resource` is a name, or a kind such as `brokers`."""

    resource: str
    problem: str
    detail: str
