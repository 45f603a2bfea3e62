"""What a subscription has received of the messages of some producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsar_sandbox.workload.live import Identity


class Received:
    """The messages of some producers that one subscription has received, each once."""

    def __init__(self, producers: Iterable[str]) -> None:
        self._producers = frozenset(producers)
        self._messages: set[Identity] = set()
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def oldest_missing(self, acked: Iterable[Sequence[tuple[Identity, int]]]) -> int | None:
        """When the oldest message was acknowledged to its producer that has not arrived here; None if all have.

        :param acked: for each producer, its messages with that time, in the order of the acknowledgements.
        """
        oldest = []
        for number, messages in enumerate(acked):
            place = self._places.get(number, 0)
            while place < len(messages) and messages[place][0] in self._messages:
                place += 1
            self._places[number] = place
            if place < len(messages):
                oldest.append(messages[place][1])
        return min(oldest, default=None)

    def add(self, message: Identity) -> None:
        """Count the message, unless it was counted before or is of another producer."""
        if message[0] in self._producers:
            self._messages.add(message)
