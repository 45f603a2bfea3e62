"""Storing entries as they are, byte by byte: as a replicator does that sends again, or as many as a bench wants."""

from __future__ import annotations

from contextlib import closing

from tests.support.protobuf_fields import frame, number, text

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.connection import BrokerAddress, Frame, WireConnection

_PRODUCER, _SEND, _SEND_RECEIPT, _PRODUCER_SUCCESS = 5, 6, 7, 17
AHEAD = 100
"""Entries that are sent before the first of them is acknowledged."""


class RawStore:
    """One connection to the only broker of a cluster."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._broker = WireConnection(BrokerAddress.parse(connection.require_service_url()), connection)

    def close(self) -> None:
        """With all its producers."""
        self._broker.close()

    def content(self, topic: str, at: Position) -> bytes:
        """The stored entry at `at`, without what this broker put in front when it stored it."""
        self._locate(topic)
        consumer, request = self._broker.next_id(), self._broker.next_id()
        name = f"raw-{consumer}"
        self._broker.ask(request, wire.subscribe(request, consumer, topic, name, at), about=topic)
        self._broker.send(wire.flow(consumer, 1))
        stored = bytes(self._broker.content(self._next(api.MESSAGE)))
        return stored[6 + int.from_bytes(stored[2:6], "big") :] if stored[:2] == b"\x0e\x02" else stored

    def store(self, topic: str, content: bytes, *, messages: int, times: int = 1) -> None:
        """Publish the entry, which holds so many messages, again and again."""
        self._locate(topic)
        producer, request = self._broker.next_id(), self._broker.next_id()
        named = text(4, f"raw-{producer}")
        self._broker.send(frame(_PRODUCER, text(1, topic), number(2, producer), number(3, request), named))
        self._next(_PRODUCER_SUCCESS)
        for sequence in range(times + AHEAD):
            if sequence < times:
                fields = (number(1, producer), number(2, sequence), number(3, messages))
                self._broker.send(frame(_SEND, *fields, content=content))
            if sequence >= AHEAD:
                self._next(_SEND_RECEIPT)

    def _locate(self, topic: str) -> None:
        # Brokers answer for a topic only after somebody asked where it is.
        request = self._broker.next_id()
        self._broker.ask(request, wire.lookup(request, topic, authoritative=False), about=topic)

    def _next(self, kind: int) -> Frame:
        while True:
            received = self._broker.next_frame(30)
            assert received, f"the broker did not answer with {kind}"
            assert received.kind != api.ERROR, self._broker.command(received).error.message
            if received.kind == kind:
                return received


def store_again(connection: ClusterConnection, topic: str, at: Position, messages: int) -> None:
    """Publish the entry at `at`, which holds so many messages, once more behind the topic's end."""
    with closing(RawStore(connection)) as store:
        store.store(topic, store.content(topic, at), messages=messages)
