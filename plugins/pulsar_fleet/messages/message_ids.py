"""Message ids of the pulsar client: the position of a message, and whether it is the last one of its entry (pure)."""

from __future__ import annotations

from typing import Any

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol.pulsar_api_pb2 import MessageIdData
from pulsar_fleet.messages.ranges import Range


def position_of(message: Any) -> Position:
    """The position of the entry that holds a message."""
    identifier = message.message_id()
    return Position(identifier.ledger_id(), identifier.entry_id())


def is_last(message: Any, entry_range: Range) -> bool:
    """Whether the message is the last one of the range: in its last entry, and the last message of a batch."""
    if position_of(message) < entry_range.last:
        return False
    identifier = message.message_id()
    return bool(identifier.batch_index() + 1 >= batch_size(identifier.serialize()))


def batch_size(serialized_id: bytes) -> int:
    """Number of messages in the entry, 0 without a batch; in Python only the serialized id (a protobuf) has it."""
    return int(MessageIdData.FromString(serialized_id).batch_size)
