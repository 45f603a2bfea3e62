"""Scalable topics of a cluster (`topic://…`, since Pulsar 5.0), which no other list of a namespace has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Protocol, Self
from urllib.parse import quote, unquote

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotAllowed, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.cluster.versions import HOLDS_SCALABLE_TOPICS

_NO_SUCH_CALL = 405
_DELETED = "Scalable topic not found"
_NAMESPACE = re.compile(r"^/namespaces/([^/]+)/([^/]+)$")


class Brokers(Protocol):
    """The part of the admin client that is used here."""

    http: BrokerHttp
    connection: ClusterConnection

    async def brokers(self) -> tuple[str, ...]:
        """`host:port` of every live broker."""

    async def version(self, broker: str | None = None) -> str:
        """Pulsar version of a broker."""

    async def broker_url(self, broker: str) -> str:
        """The URL at which a broker answers for itself."""


class ScalableTopics:
    """Lists the scalable topics of namespaces.

    While brokers are upgraded, an older one answers 404 although topics exist, so one that has the call is asked.

    :param versions: Pulsar version of each broker by `host:port`; empty if unknown: then whichever answers is asked.
    """

    def __init__(self, admin: Brokers, versions: Mapping[str, str]) -> None:
        self._admin = admin
        offering = sorted(broker for broker, version in versions.items() if HOLDS_SCALABLE_TOPICS.holds(version))
        self._offered = not versions or bool(offering)
        self._broker = offering[0] if 0 < len(offering) < len(versions) else None

    @classmethod
    async def of(cls, admin: Brokers) -> Self:
        """The same after a call for each broker; a role that may not list the brokers asks whichever answers.

        A broker that cannot be reached is judged by the others: a migration may go on without it, by a waiver.
        """
        try:
            brokers = await admin.brokers()
        except NotAllowed:
            return cls(admin, {})
        versions = await asyncio.gather(*(_version(admin, broker) for broker in brokers))
        return cls(admin, {broker: version for broker, version in zip(brokers, versions, strict=True) if version})

    async def names(self, namespace: NamespaceName) -> tuple[str, ...]:
        """Names such as `topic://acme/orders/events`, sorted: one call, and one for each topic.

        No call where every broker is older than 5.0. Any failure but that of a broker without the call is raised: the
        topics are unknown then, not absent.
        """
        if not self._offered:
            return ()
        base = await self._admin.broker_url(self._broker) if self._broker else None
        path = f"/admin/v2/scalable/{namespace.path}"
        try:
            answer = await self._admin.http.call("GET", path, base=base)
        except NotFound:
            return ()
        except InvalidRequest as error:
            if error.status == _NO_SUCH_CALL:
                return ()
            raise
        names = sorted(map(str, self._admin.http.document(answer) or ()))
        exist = await asyncio.gather(*(self._exists(f"{path}/{_local(name)}", base) for name in names))
        return tuple(name for name, exists in zip(names, exist, strict=True) if exists)

    async def _exists(self, path: str, base: str | None) -> bool:
        """Brokers go on listing a topic that was deleted with subscriptions (observed, 5.0.0-M1, not 5.0.1)."""
        try:
            await self._admin.http.call("GET", path, base=base)
        except NotFound as error:
            if _DELETED in str(error):
                return False
            raise
        return True


async def _version(admin: Brokers, broker: str) -> str:
    try:
        return await admin.version(broker)
    except Unavailable:
        return ""


def _local(name: str) -> str:
    """The last part of a name as it stands in a REST path."""
    return quote(name.split("/", 4)[-1], safe="")


def deleted_namespace(call: Call) -> NamespaceName | None:
    """The namespace that a call deletes, if it deletes one."""
    match = _NAMESPACE.match(call.path) if call.method == "DELETE" else None
    return NamespaceName(*map(unquote, match.groups())) if match else None


async def guard_scalable_topics(admin: Brokers, call: Call) -> None:
    """Refuse to delete a namespace that holds scalable topics; any other call costs nothing.

    A broker of 5.0.0-M1 deletes it without force: the topics, with their messages, have no namespace then (observed);
    one of 5.0.1 answers 409.

    :raises PreconditionFailed: the namespace holds some; nothing may be sent.
    """
    namespace = deleted_namespace(call)
    if namespace is None:
        return
    topics = await (await ScalableTopics.of(admin)).names(namespace)
    if topics:
        name, count = admin.connection.name, counted(len(topics), "scalable topic")
        raise PreconditionFailed(
            f"{call.text()} on {name}: the namespace holds {count} ({listed(topics)}), which brokers leave without a "
            "namespace; nothing was sent. Keep the namespace while applications use these topics.",
            cluster=name,
        )
