"""What the pulsar client's message ids tell: where a message lies, and whether it ends its entry (pure)."""

from __future__ import annotations

from typing import Any

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.messages.protocol.frames import read_varint
from pulsar_fleet.messages.ranges import Range

_BATCH_SIZE_FIELD = 6


def position_of(message: Any) -> Position:
    """Where a message lies."""
    found = message.message_id()
    return Position(found.ledger_id(), found.entry_id())


def is_last(message: Any, wanted: Range) -> bool:
    """Whether nothing of the range follows: its last entry, and of a batch the last message."""
    found = message.message_id()
    if Position(found.ledger_id(), found.entry_id()) < wanted.last:
        return False
    return bool(found.batch_index() + 1 >= batch_size(found.serialize()))


def batch_size(serialized_id: bytes) -> int:
    """Number of messages in the entry, 0 without a batch; only the serialized id (a protobuf) tells it in Python."""
    index = 0
    while index < len(serialized_id):
        tag, index = read_varint(serialized_id, index)
        value, index = read_varint(serialized_id, index)
        if tag & 7 == 2:
            index += value
        elif tag >> 3 == _BATCH_SIZE_FIELD:
            return value
    return 0
