"""Which broker serves a topic: lookups with redirects, and a connection to each broker that is met."""

from __future__ import annotations

from urllib.parse import urlsplit

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, Unavailable
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol.connection import ConnectionLost, WireConnection
from pulsar_fleet.messages.protocol.endpoint import BrokerAddress, service_addresses

MOST_REDIRECTS = 20
_REDIRECT, _CONNECT, _FAILED = 0, 1, 2


class Brokers:
    """Connections to the brokers of one cluster, opened when they are first needed.

    Not for several threads at once.
    """

    def __init__(self, connection: ClusterConnection, *, timeout_seconds: float) -> None:
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._service = service_addresses(connection.require_service_url())
        self._open: dict[tuple[BrokerAddress, str | None], WireConnection] = {}

    def close(self) -> None:
        """Close all connections; a later look-up opens them again."""
        for each in self._open.values():
            each.close()
        self._open.clear()

    def serving(self, topic: str) -> WireConnection:
        """A connection to the broker that serves `topic`.

        :raises FleetError: as the broker said; `Unavailable` for redirects without end.
        """
        asked, authoritative = self._any_broker(), False
        for _ in range(MOST_REDIRECTS):
            request = asked.next_id()
            frame = wire.lookup(request, topic, authoritative=authoritative)
            answer = asked.ask(request, frame, about=topic)
            if answer.number(3, _FAILED) == _FAILED:
                raise asked.refusal(answer.number(6), answer.text(7), topic)
            named = self._named(answer)
            through_service = bool(answer.number(8))
            asked, authoritative = self._to(named, through_service=through_service), bool(answer.number(5))
            if answer.number(3) == _CONNECT:
                return asked
        raise Unavailable(
            f"{self._connection.name} sent the look-up of {topic} from broker to broker {MOST_REDIRECTS} times.",
            cluster=self._connection.name,
        )

    def _named(self, answer: wire.Command) -> str:
        secure = self._service[0].tls
        url = answer.text(2 if secure else 1)
        if not url:
            offered = "pulsar://" if secure else "pulsar+ssl://"
            raise InvalidRequest(
                f"A broker of {self._connection.name} answers at {answer.text(1 if secure else 2)!r} only: "
                f"give the connection a service URL that begins with {offered}."
            )
        return url

    def _to(self, url: str, *, through_service: bool) -> WireConnection:
        address = BrokerAddress.parse(url)
        if through_service and address not in self._service:
            return self._any_broker(url)
        return self._connected(address, None)

    def _any_broker(self, meant: str | None = None) -> WireConnection:
        """The first address of the service URL that answers."""
        lost: ConnectionLost | None = None
        for address in self._service:
            try:
                return self._connected(address, meant and urlsplit(meant).netloc)
            except ConnectionLost as error:
                lost = error
        assert lost is not None
        raise lost

    def _connected(self, address: BrokerAddress, meant: str | None) -> WireConnection:
        if (address, meant) not in self._open:
            self._open[address, meant] = WireConnection(
                address, self._connection, broker_url=meant, timeout_seconds=self._timeout_seconds
            )
        return self._open[address, meant]
