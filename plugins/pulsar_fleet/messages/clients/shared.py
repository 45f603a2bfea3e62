"""What all clients share: one client for each connection in a process, and its errors by who must act."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, NotFound, PermissionDenied, Unavailable
from pulsar_fleet.cluster.message_client import open_asyncio_client

if TYPE_CHECKING:
    from pulsar.asyncio import Client


@dataclass(slots=True)
class _Shared:
    client: Client
    users: int = 0


_shared: dict[ClusterConnection, _Shared] = {}


@asynccontextmanager
async def shared_client(connection: ClusterConnection) -> AsyncIterator[Client]:
    """The client of a connection; it is closed when its last user leaves.

    :raises FleetError: see `open_client`.
    """
    if connection.oauth2 and connection not in _shared:
        # The issuer may take seconds to answer, and every trigger of the process would wait for it.
        await asyncio.to_thread(connection.read_token)
    shared = _shared.get(connection) or _shared.setdefault(connection, _Shared(open_asyncio_client(connection)))
    shared.users += 1
    try:
        yield shared.client
    finally:
        shared.users -= 1
        if not shared.users:
            del _shared[connection]
            await shared.client.close()


_BY_RESULT: dict[str, tuple[type[FleetError], str]] = {
    "AuthenticationError": (PermissionDenied, "Correct the credentials of the connection."),
    "AuthorizationError": (PermissionDenied, "Let the role of the connection produce to or consume from the topic."),
    "TopicNotFound": (NotFound, "Create the topic, or correct its name."),
    "SubscriptionNotFound": (NotFound, "Create the subscription, or correct its name."),
    "InvalidTopicName": (InvalidRequest, "Write it as persistent://tenant/namespace/topic."),
    "InvalidConfiguration": (InvalidRequest, "Correct the settings."),
    "InvalidUrl": (InvalidRequest, "Correct the broker service URL of the connection."),
    "IncompatibleSchema": (InvalidRequest, "The topic has a schema that does not accept bytes: use another topic."),
    "MessageTooBig": (InvalidRequest, "Publish a smaller message, or let the broker accept larger ones."),
    "NotAllowedError": (
        InvalidRequest,
        "A policy of the topic refuses it: see its subscriptionTypesEnabled, maxSubscriptionsPerTopic and "
        "encryptionRequired.",
    ),
    "TopicTerminated": (Conflict, "The topic is terminated: use the topic that replaced it."),
    "ConsumerBusy": (Conflict, "The subscription has a consumer of another type: use its type, or another name."),
    "ProducerFenced": (Conflict, "Another producer has this name or exclusive access: end it first."),
}
"""What a retry cannot cure; every other result of the client may pass."""


_MAY_PASS = Unavailable, "If it happens again, see the log of the broker."


def failure(connection: ClusterConnection, doing: str, error: Exception) -> FleetError:
    """The error to raise instead of the client's.

    :param doing: what was done, with the topic: `consume from 'persistent://…'`.
    """
    result = _result_name(error)
    kind, advice = _BY_RESULT.get(result, _MAY_PASS)
    return kind(f"{connection.name} answered {result} to {doing!r}. {advice}", cluster=connection.name)


@contextmanager
def explained(connection: ClusterConnection, doing: str) -> Iterator[None]:
    """Raise a `FleetError` instead of the client's exceptions."""
    import pulsar
    from pulsar.asyncio import PulsarException

    try:
        yield
    except (pulsar.PulsarException, PulsarException) as error:
        raise failure(connection, doing, error) from error


def _result_name(error: Exception) -> str:
    # The asyncio client has one exception with a result; the other client has a class for each result.
    result = getattr(error, "error", None)
    return str(result().name) if callable(result) and hasattr(result(), "name") else type(error).__name__
