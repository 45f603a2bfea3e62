"""Errors of the client library as errors by who must act."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, NotFound, PermissionDenied, Unavailable

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
