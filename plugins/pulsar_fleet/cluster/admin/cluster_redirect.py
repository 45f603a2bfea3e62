"""Where a cluster redirects its clients to (PIP-188), and whether it redirects those of every topic."""

from __future__ import annotations

from http import HTTPStatus

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import JsonObject


async def stored_redirect(admin: AdminClient, cluster: str) -> JsonObject | None:
    """Where the cluster redirects to; None if nothing was ever stored (the broker answers 404 then).

    Pulsar 3.0 has only the call that writes it (405) and shows it in the cluster's data.
    """
    try:
        return dict(await admin.get(f"/clusters/{cluster}/migrate"))
    except NotFound:
        return None
    except InvalidRequest as error:
        if error.status != HTTPStatus.METHOD_NOT_ALLOWED:
            raise
    data = await admin.get(f"/clusters/{cluster}")
    keys = ("migrated", "migratedClusterUrl")
    return {key: data[key] for key in keys} if data.get("migratedClusterUrl") else None


async def redirects_every_topic(admin: AdminClient) -> bool:
    """Whether a broker of Pulsar 3.0 redirects the clients of its whole cluster, which its data shows; two calls.

    Its flag terminates the brokers' topics too, and its clients include the broker itself: a policy that is set on a
    topic here is stored on the other cluster, and so is what we publish to record runs (observed, 3.0.7).
    """
    data = await admin.get(f"/clusters/{await admin.cluster_name()}")
    return bool(data.get("migrated"))
