"""The cluster lists that calls store: without the serving cluster's own name, they delete its topics (pure)."""

from __future__ import annotations

import re

from pulsar_fleet.cluster.call import Call

_TOPIC_REPLICATION = re.compile(r"^/(?:non-)?persistent/[^/]+/[^/]+/[^/]+/replication$")
_NAMESPACE_LIST = re.compile(r"^/namespaces/[^/]+/[^/]+/(replication|allowedClusters)$")
_NAMESPACE = re.compile(r"^/namespaces/[^/]+/[^/]+$")
_TENANT = re.compile(r"^/tenants/[^/]+$")


def cluster_lists(call: Call) -> list[tuple[str, list[str]]]:
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


def is_global_topic_list(call: Call) -> bool:
    """Whether the call stores a topic's cluster list for all clusters at once."""
    return bool(_TOPIC_REPLICATION.match(call.path)) and dict(call.params).get("isGlobal") == "true"
