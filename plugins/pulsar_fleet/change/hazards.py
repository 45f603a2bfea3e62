"""What a planned call can destroy, and the guard that no call passes by (pure)."""

from __future__ import annotations

import re
from enum import StrEnum

from pulsar_fleet.cluster.call import Call
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies import Loses


class Hazard(StrEnum):
    """What is needed to go back, in rising order."""

    NONE = "none"
    """It adds something; nothing that was there changes."""
    REVERSIBLE = "reversible"
    """Setting the value before brings the state before."""
    IRREVERSIBLE = "irreversible"
    """It cannot be undone, or the broker discards messages because of it."""
    DESTRUCTIVE = "destructive"
    """It deletes topics, namespaces or backlogs at once."""

    @property
    def needs_permission(self) -> bool:
        """Whether the operator has to allow exactly this change."""
        return self in (Hazard.IRREVERSIBLE, Hazard.DESTRUCTIVE)


_ORDER = tuple(Hazard)
# Deleting these paths deletes what they name; deeper paths below a namespace or a topic are single settings.
_DELETES = re.compile(
    r"^/(tenants/[^/]+|clusters/[^/]+|namespaces/[^/]+(/[^/]+){1,2}|(non-)?persistent/[^/]+/[^/]+/[^/]+"
    r"(/partitions|/truncate|/subscription/[^/]+)?|schemas/.+)$"
)
_NAMESPACE_SETTING = re.compile(r"^/namespaces/[^/]+/[^/]+/(?!0x)[^/]+$")
_EMPTIES = re.compile(r"/(skip_all|skip/\d+|clearBacklog(/.+)?|unsubscribe/.+|terminate(/partitions)?|trim|migration)$")
_TOPIC_REPLICATION = re.compile(r"^/(?:non-)?persistent/[^/]+/[^/]+/[^/]+/replication$")
_NAMESPACE_LIST = re.compile(r"^/namespaces/[^/]+/[^/]+/(replication|allowedClusters)$")
_NAMESPACE = re.compile(r"^/namespaces/[^/]+/[^/]+$")
_TENANT = re.compile(r"^/tenants/[^/]+$")


def hazard_of_setting(loses: Loses | None, before: Json, after: Json) -> Hazard:
    """The hazard of changing a policy that is there: irreversible when the broker discards messages because of it."""
    return Hazard.IRREVERSIBLE if loses is not None and loses(before, after) else Hazard.REVERSIBLE


def hazard_of_call(call: Call) -> Hazard:
    """The least hazard that a call has by itself, whatever the plan says of it."""
    if call.method == "DELETE" and _DELETES.match(call.path) and not _NAMESPACE_SETTING.match(call.path):
        return Hazard.DESTRUCTIVE
    if _EMPTIES.search(call.path):
        return Hazard.DESTRUCTIVE
    if call.method == "POST" and call.path.endswith("/partitions"):
        return Hazard.IRREVERSIBLE
    return Hazard.NONE


def worst(*hazards: Hazard) -> Hazard:
    """The highest of some hazards."""
    return max(hazards, key=_ORDER.index, default=Hazard.NONE)


def guard_cluster_lists(call: Call, own: str) -> None:
    """Refuse a cluster list without the name of the cluster that is asked to store it.

    The broker answers 200 to such a list and deletes all topics of the namespace within a second. There is no way
    around this function: every call passes it right before it is sent, with the name that the brokers themselves gave.
    """
    for field, names in _lists(call):
        if own not in names:
            raise Refused(
                f"{call.text()} would set {field} to {sorted(names)!r} on {own!r}, without {own!r} itself: "
                f"{own} would delete all its topics there. Nothing was sent; add {own!r} to the list.",
                cluster=own,
            )
    if _TOPIC_REPLICATION.match(call.path) and dict(call.params).get("isGlobal") == "true":
        raise Refused(
            f"{call.text()}: a global cluster list of a topic deletes the topic on every cluster that it leaves out. "
            "Set the list of the namespace instead.",
            cluster=own,
        )


def _lists(call: Call) -> list[tuple[str, list[str]]]:
    """The cluster lists that a call stores, by field; an absent or empty one counts where it would take effect."""
    if call.method not in ("PUT", "POST"):
        return []
    body = call.body
    if _NAMESPACE_LIST.match(call.path):
        return [(call.path.rpartition("/")[2], list(body or ()))]
    if _TOPIC_REPLICATION.match(call.path):
        return [("replication", list(body or ()))]
    if _TENANT.match(call.path):
        return [("allowedClusters", list((body or {}).get("allowedClusters") or ()))]
    if _NAMESPACE.match(call.path) and call.method == "PUT" and body:
        found = [("replication_clusters", list(body.get("replication_clusters") or ()))]
        if body.get("allowed_clusters"):
            found.append(("allowed_clusters", list(body["allowed_clusters"])))
        return found
    return []
