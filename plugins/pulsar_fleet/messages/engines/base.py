"""The interface of an engine, and the `with` statement for engines that hold connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self

from pulsar_fleet.messages.ranges import Range


class Engine(Protocol):
    """Reads stored messages or entries."""

    def read(self, entry_range: Range) -> Iterator[Sequence[Any]]:
        """All messages of the range in order, in lists; for a range of `EngineName.ENTRY` all entries.

        A message is a `StoredMessage`, an entry is a `StoredEntry`.
        """
        ...


class ConnectedEngine(ABC):
    """An engine that holds connections and closes them at the end of a `with` statement."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connections; a second call does nothing."""
