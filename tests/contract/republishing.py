"""Storing an entry once more, byte by byte, as a replicator does that sends again after it lost its connection."""

from __future__ import annotations

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.reading import wire_frames as wire
from pulsar_fleet.reading.wire_address import BrokerAddress
from pulsar_fleet.reading.wire_connection import Frame, WireConnection
from pulsar_fleet.reading.wire_frames import Kind, number, text

_PRODUCER, _SEND, _SEND_RECEIPT, _PRODUCER_SUCCESS = 5, 6, 7, 17


def store_again(connection: ClusterConnection, topic: str, at: Position, messages: int) -> None:
    """Read the entry at `at`, which holds `messages`, and publish the same bytes behind the topic's end."""
    address = BrokerAddress.parse(connection.require_service_url())
    broker = WireConnection(address, connection)
    try:
        # Brokers answer for a topic only after somebody asked where it is.
        broker.ask(1, wire.lookup(1, topic, authoritative=False), about=topic)
        broker.ask(2, wire.subscribe(2, 1, topic, "store-again", at), about=topic)
        broker.send(wire.flow(1, 1))
        found = _next(broker, Kind.MESSAGE)
        content = bytes(broker.content(found))
        if content[:2] == b"\x0e\x02":  # what this broker put in front when it stored it
            content = content[6 + int.from_bytes(content[2:6], "big") :]
        broker.send(_command(_PRODUCER, text(1, topic), number(2, 1), number(3, 3), text(4, "again")))
        _next(broker, _PRODUCER_SUCCESS)
        broker.send(_command(_SEND, number(1, 1), number(2, 0), number(3, messages), content=content))
        _next(broker, _SEND_RECEIPT)
    finally:
        broker.close()


def _next(broker: WireConnection, kind: int) -> Frame:
    while True:
        found = broker.next_frame(10)
        assert found, f"the broker did not answer with {kind}"
        assert found.kind != Kind.ERROR, broker.command(found).text(3)
        if found.kind == kind:
            return found


def _command(kind: int, *fields: bytes, content: bytes = b"") -> bytes:
    command = number(1, kind) + text(kind, b"".join(fields))
    size = 4 + len(command) + len(content)
    return size.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + content
