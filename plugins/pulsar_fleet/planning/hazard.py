"""The classes of hazard, and the cluster lists that a call stores (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.admin.call import Call


class Hazard(StrEnum):
    """What it takes to go back, in rising order."""

    NONE = "none"
    """It adds something and changes nothing that exists."""
    REVERSIBLE = "reversible"
    """Setting the previous value restores the previous state."""
    IRREVERSIBLE = "irreversible"
    """It cannot be undone, or the broker discards messages because of it."""
    DESTRUCTIVE = "destructive"
    """It deletes topics, namespaces or backlogs immediately."""

    @property
    def needs_permission(self) -> bool:
        """Whether the operator must allow the change by its id."""
        return self in (Hazard.IRREVERSIBLE, Hazard.DESTRUCTIVE)


_ORDER = tuple(Hazard)


@dataclass(frozen=True, slots=True)
class Risk:
    """A hazard that a rule assigns, and its consequence, as the end of a sentence."""

    hazard: Hazard
    reason: str


def worst(*hazards: Hazard) -> Hazard:
    """The highest hazard; NONE without any."""
    return max(hazards, key=_ORDER.index, default=Hazard.NONE)


_TOPIC_REPLICATION = re.compile(r"^/(?:non-)?persistent/[^/]+/[^/]+/[^/]+/replication$")
_NAMESPACE_LIST = re.compile(r"^/namespaces/[^/]+/[^/]+/(replication|allowedClusters)$")
NAMESPACE_PATH = re.compile(r"^/namespaces/[^/]+/[^/]+$")
_TENANT = re.compile(r"^/tenants/[^/]+$")


def cluster_lists(call: Call) -> list[tuple[str, list[str]]]:
    """The cluster lists that a call stores, by field; an absent or empty list counts where it would take effect."""
    if call.method not in ("PUT", "POST"):
        return []
    body = call.body
    if _NAMESPACE_LIST.match(call.path):
        return [(call.path.rpartition("/")[2], list(body or ()))]
    if _TOPIC_REPLICATION.match(call.path):
        return [("replication", list(body or ()))]
    if _TENANT.match(call.path):
        return [("allowedClusters", list((body or {}).get("allowedClusters") or ()))]
    if NAMESPACE_PATH.match(call.path) and call.method == "PUT" and body:
        lists = [("replication_clusters", list(body.get("replication_clusters") or ()))]
        if body.get("allowed_clusters"):
            lists.append(("allowed_clusters", list(body["allowed_clusters"])))
        return lists
    return []


def is_global_topic_list(call: Call) -> bool:
    """Whether the call stores a topic's cluster list for all clusters."""
    return bool(_TOPIC_REPLICATION.match(call.path)) and dict(call.params).get("isGlobal") == "true"
