"""Lookups of the broker that serves a topic, and a connection to each of these brokers."""

from __future__ import annotations

from urllib.parse import urlsplit

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, Unavailable
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.connection import BrokerAddress, ConnectionLost, WireConnection, service_addresses

MOST_REDIRECTS = 20


class Brokers:
    """Connections to the brokers of one cluster, opened when they are first needed. Not thread-safe."""

    def __init__(self, connection: ClusterConnection, *, timeout_seconds: float) -> None:
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._service = service_addresses(connection.require_service_url())
        self._open: dict[tuple[BrokerAddress, str | None], WireConnection] = {}

    def close(self) -> None:
        """Close all connections; a later lookup opens them again."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def serving(self, topic: str) -> WireConnection:
        """A connection to the broker that serves `topic`.

        :raises FleetError: by the broker's answer; `Unavailable` after too many redirects.
        """
        broker, authoritative = self._any_broker(), False
        for _ in range(MOST_REDIRECTS):
            request = broker.next_id()
            frame = wire.lookup(
                request, topic, authoritative=authoritative, listener_name=self._connection.listener_name
            )
            answer = broker.ask(request, frame, about=topic).lookup_response
            if answer.response == api.CommandLookupTopicResponse.FAILED:
                raise broker.refusal(answer.error, answer.message, topic)
            url = self._broker_url(answer)
            broker = self._to(url, through_service=answer.proxy_through_service_url)
            authoritative = answer.authoritative
            if answer.response == api.CommandLookupTopicResponse.CONNECT:
                return broker
        raise Unavailable(
            f"{self._connection.name} redirected the lookup of {topic} {MOST_REDIRECTS} times without an answer.",
            cluster=self._connection.name,
        )

    def _broker_url(self, answer: api.CommandLookupTopicResponse) -> str:
        secure = self._service[0].tls
        plain_url, tls_url = answer.broker_service_url, answer.broker_service_url_tls
        url, other_url = (tls_url, plain_url) if secure else (plain_url, tls_url)
        if not url:
            scheme = "pulsar://" if secure else "pulsar+ssl://"
            raise InvalidRequest(
                f"A broker of {self._connection.name} has only the address {other_url.decode(errors='replace')!r}: "
                f"give the connection a service URL that begins with {scheme}."
            )
        return url.decode(errors="replace")

    def _to(self, url: str, *, through_service: bool) -> WireConnection:
        address = BrokerAddress.parse(url)
        if through_service and address not in self._service:
            return self._any_broker(url)
        return self._connected(address, None)

    def _any_broker(self, target_url: str | None = None) -> WireConnection:
        """The first address of the service URL that answers."""
        failure: ConnectionLost | None = None
        for address in self._service:
            try:
                return self._connected(address, target_url and urlsplit(target_url).netloc)
            except ConnectionLost as error:
                failure = error
        assert failure is not None
        raise failure

    def _connected(self, address: BrokerAddress, broker_url: str | None) -> WireConnection:
        if (address, broker_url) not in self._open:
            self._open[address, broker_url] = WireConnection(
                address, self._connection, broker_url=broker_url, timeout_seconds=self._timeout_seconds
            )
        return self._open[address, broker_url]
