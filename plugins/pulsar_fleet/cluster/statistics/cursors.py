"""Cursors in the brokers' documents: one value for `internalStats` and `internal-info` (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_plus

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The state of a subscription, or of a system cursor, on a plain topic or partition.

    :param mark_delete: mark-delete position: everything up to and including it is acknowledged.
    :param acknowledged: ranges of individually acknowledged entries after it, in the broker's format
        `[(18:3..18:5],(18:9..18:10]]`; only in `internalStats`.
    :param consumed: entries since the topic was loaded; only in `internalStats`.
    :param replicated: the subscription is replicated; only in `internal-info`.
    """

    mark_delete: Position
    acknowledged: str = "[]"
    consumed: int = field(default=0, compare=False)
    replicated: bool = False

    def confirmed_since(self, earlier: Cursor) -> int:
        """Entries that were consumed since an earlier reading; at least 1 if the mark-delete position moved.

        A cursor that was opened again in between counts from 0.
        """
        return max(self.consumed - earlier.consumed, int(self.mark_delete != earlier.mark_delete))


def cursors_in_stats(internal_stats: JsonObject) -> dict[str, Cursor]:
    """Name → cursor in an `internalStats` answer of a plain topic or partition, with system cursors."""
    return {
        _plain(name): Cursor(
            mark_delete=Position.parse(document["markDeletePosition"]),
            acknowledged=document["individuallyDeletedMessages"],
            consumed=int(document.get("messagesConsumedCounter") or 0),
        )
        for name, document in internal_stats["cursors"].items()
    }


def cursors_in_info(info: JsonObject) -> dict[str, Cursor]:
    """Name → cursor in an `internal-info` answer, or in its part for a partition, with system cursors."""
    return {_plain(name): _of_info(document) for name, document in (info.get("cursors") or {}).items()}


def _of_info(document: JsonObject) -> Cursor:
    position: Mapping[str, int] = document.get("markDelete") or {}
    return Cursor(
        mark_delete=Position(int(position.get("ledgerId", -1)), int(position.get("entryId", -1))),
        replicated=(document.get("properties") or {}).get("pulsar.replicated.subscription") == 1,
    )


def _plain(name: str) -> str:
    # Brokers list the names form-encoded: `a%2Bb` for `a+b`.
    return unquote_plus(name)
