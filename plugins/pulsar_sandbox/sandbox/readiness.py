"""Check over the admin port whether a broker is ready."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

ANSWER_SECONDS = 5.0


def _client(admin_url: str, token: str | None) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"{admin_url}/admin/v2/", headers=headers, timeout=ANSWER_SECONDS, trust_env=False)


def is_healthy(admin_url: str, token: str | None) -> bool:
    """Tell whether the broker takes and gives out a message of its own."""
    with _client(admin_url, token) as admin:
        try:
            return admin.get("brokers/health").text == "ok"
        except httpx.TransportError:
            return False


def is_furnished(admin_url: str, token: str | None) -> bool:
    """Tell whether the namespaces exist that a new cluster is given; a standalone creates them after it is healthy."""
    with _client(admin_url, token) as admin:
        try:
            return "pulsar/system" in admin.get("namespaces/pulsar").text
        except httpx.TransportError:
            return False


def furnish(admin_url: str, token: str | None, name: str, cluster: Mapping[str, str]) -> None:
    """Create what a standalone creates by itself: its own cluster document, and `public/default` and `pulsar/system`.

    A second call changes nothing: what exists is answered with 409.
    """
    rights = {"adminRoles": ["admin"] if token else [], "allowedClusters": [name]}
    with _client(admin_url, token) as admin:
        admin.put(f"clusters/{name}", json=dict(cluster))
        for tenant, namespace in (("public", "public/default"), ("pulsar", "pulsar/system")):
            admin.put(f"tenants/{tenant}", json=rights)
            admin.put(f"namespaces/{namespace}", json={"replication_clusters": [name]})
