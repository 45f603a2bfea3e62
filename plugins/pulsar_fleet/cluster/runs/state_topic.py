"""What runs have recorded on a cluster: the last message of a topic, changed by one exclusive producer at a time.

The admin API has no compare-and-set; an exclusive producer (PIP-68) gives one. A second one is refused while the first
is connected, and a producer that lost its place cannot publish (observed: both at once, also after an unload).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.admin.verbs import ADMIN
from pulsar_fleet.cluster.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unavailable,
)
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.leases import ClusterRuns
from pulsar_fleet.cluster.runs.overrides import never_deleting

log = logging.getLogger(__name__)

NAMESPACE = NamespaceName("pulsar", "fleet")
TOPIC = TopicName(NAMESPACE, "runs")

_RETENTION_MB = 10
_WAIT_SECONDS = 20.0
_TIMEOUT_SECONDS = 10

Change = Callable[[ClusterRuns], Awaitable[ClusterRuns]]


async def read_runs(admin: AdminClient) -> ClusterRuns:
    """What runs have recorded; empty on a cluster where none has. Changes nothing."""
    path = f"{ADMIN}/{TOPIC.path}/examinemessage"
    try:
        answer = await admin.http.call("GET", path, params={"initialPosition": "latest", "messagePosition": 1})
    except NotFound:
        return ClusterRuns()
    except InvalidRequest:
        # A topic without a message, or one of another cluster with the same configuration store (both observed);
        # whatever else is refused stays an error.
        try:
            last = await admin.get(f"/{TOPIC.path}/lastMessageId")
        except NotFound:
            return ClusterRuns()
        if last["entryId"] < 0:
            return ClusterRuns()
        raise
    return ClusterRuns.from_bytes(answer.content)


async def update_runs(admin: AdminClient, change: Change) -> ClusterRuns:
    """Change what is recorded; nobody else changes it meanwhile. Returns the new record.

    :param change: receives the record and returns the new one; an error that it raises leaves the record as it is.
    A cluster that redirects every topic keeps its record as it was: what is published to it arrives on the other one.

    :raises Unavailable: the cluster did not answer, or others changed the record for 20 s.
    """
    if await redirects_every_topic(admin):
        return await change(await read_runs(admin))
    await _create_topic(admin)
    loop = asyncio.get_running_loop()
    end = loop.time() + _WAIT_SECONDS
    while (recorder := await asyncio.to_thread(_Recorder.open, admin)) is None:
        if loop.time() > end:
            raise Unavailable(
                f"{admin.connection.name}: other processes wrote to {TOPIC} for {_WAIT_SECONDS:.0f} s. Run again.",
                cluster=admin.connection.name,
            )
        await asyncio.sleep(0.2)
    try:
        before = await read_runs(admin)
        after = await change(before)
        if after != before:
            await asyncio.to_thread(recorder.store, after)
        return after
    finally:
        await asyncio.to_thread(recorder.close)


async def _create_topic(admin: AdminClient) -> None:
    own = await admin.cluster_name()
    stored = await admin.namespace(NAMESPACE)
    if stored is None:
        policies: JsonObject = {
            "replication_clusters": [own],
            # The last message is in the newest ledger, which the size never removes.
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": _RETENTION_MB},
            "inactive_topic_policies": never_deleting(None),
        }
        try:
            await admin.put_namespace(NAMESPACE, policies)
        except Conflict:
            log.debug("%s was created by another run", NAMESPACE)
    elif own not in (allowed := stored.get("allowed_clusters") or stored["replication_clusters"]):
        # Made by another cluster with the same configuration store. As an allowed cluster this one has a topic of its
        # own; in the list of clusters both would get the records of both (observed on 4.2.4).
        if "allowed_clusters" not in stored:
            raise PreconditionFailed(
                f"{own} shares a configuration store with {', '.join(allowed)}, which has made {NAMESPACE} for itself, "
                f"and its brokers cannot allow {own} a topic of its own there: they have no allowed clusters of "
                "namespaces, which Pulsar 4.0 has. Nothing was changed. Upgrade the brokers.",
                cluster=admin.connection.name,
            )
        await admin.post(f"/namespaces/{NAMESPACE.path}/allowedClusters", sorted({*allowed, own}))
    if TOPIC not in await admin.topics(NAMESPACE):
        try:
            await admin.create_topic(TOPIC)
        except Conflict:
            log.debug("%s was created by another run", TOPIC)


class _Recorder:
    """The exclusive producer."""

    def __init__(self, admin: AdminClient) -> None:
        import pulsar

        self._admin = admin
        self._client = open_client(admin.connection, _TIMEOUT_SECONDS)
        try:
            self._producer = self._client.create_producer(
                str(TOPIC),
                access_mode=pulsar.ProducerAccessMode.Exclusive,
                send_timeout_millis=_TIMEOUT_SECONDS * 1000,
            )
        except BaseException:
            self._client.close()
            raise

    @classmethod
    def open(cls, admin: AdminClient) -> _Recorder | None:
        """None while another process has it."""
        import pulsar

        try:
            return cls(admin)
        except (pulsar.ProducerFenced, pulsar.ProducerBusy):
            return None
        except pulsar.PulsarException as error:
            raise _error(admin, error) from error

    def store(self, runs: ClusterRuns) -> None:
        """Publish the record."""
        import pulsar

        try:
            self._producer.send(runs.to_bytes())
        except pulsar.PulsarException as error:
            raise _error(self._admin, error) from error

    def close(self) -> None:
        """Let others in."""
        self._client.close()


def _error(admin: AdminClient, error: Exception) -> Exception:
    import pulsar

    denied = isinstance(error, pulsar.AuthorizationError | pulsar.AuthenticationError)
    kind = PermissionDenied if denied else Unavailable
    return kind(
        f"{admin.connection.name}: what runs have recorded in {TOPIC} cannot be changed: {error}.",
        cluster=admin.connection.name,
    )
