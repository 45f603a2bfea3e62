"""Where an entry lies (pure): apart from the admin client, because Spark executors need it without HTTP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where an entry lies in a topic: ledger and entry; `entry` is -1 before the first of a ledger."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read the broker's `ledger:entry`."""
        ledger, entry = text.split(":")[:2]
        return cls(int(ledger), int(entry))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"
