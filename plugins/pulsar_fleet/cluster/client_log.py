"""The log of pulsar-client: its errors as ours, and what it says there and nowhere else about chunks it threw away."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pulsar_fleet.cluster.position import Position

log = logging.getLogger(__name__)

_ORPHAN = re.compile(r"Received an? (?:uncached chunk|chunk whose chunk id is invalid).*messageId: \((\d+),\s*(\d+)")
_NOT_A_TOPIC = "a//b"


class _ClientLog(logging.Handler):
    """Passes errors on; notes the chunks of messages whose beginning the client has not read."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines = 0
        self.watching: list[list[Position]] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.lines += 1
        if found := _ORPHAN.search(text):
            for each in self.watching:
                each.append(Position(int(found[1]), int(found[2])))
        elif _NOT_A_TOPIC not in text:
            log.error("pulsar-client: %s", text)


_handler = _ClientLog()
_logger = logging.Logger("pulsar-client", logging.ERROR)
_logger.addHandler(_handler)


def client_logger() -> logging.Logger:
    """The logger that every client of this package gets: pulsar-client keeps the first one of a process for all."""
    return _logger


def is_in_force(client: Any) -> bool:
    """Whether pulsar-client logs here, and not where an earlier client of this process told it to."""
    import pulsar

    before = _handler.lines
    with suppress(pulsar.PulsarException):
        client.create_reader(_NOT_A_TOPIC, pulsar.MessageId.earliest)
    return _handler.lines > before


@contextmanager
def orphaned_chunks() -> Iterator[list[Position]]:
    """The chunks that the client throws away meanwhile; of all readers in this process, as the log names no topic."""
    found: list[Position] = []
    _handler.watching.append(found)
    try:
        yield found
    finally:
        _handler.watching = [each for each in _handler.watching if each is not found]
