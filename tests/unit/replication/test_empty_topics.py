"""What counts as a topic that holds nothing; everything unknown does not."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.replication.setup.links import has_stored_nothing


def answer(**fields: Any) -> dict[str, Any]:
    """What a broker says of a topic that was just created, with other fields."""
    created = {
        "entriesAddedCounter": 0,
        "numberOfEntries": 0,
        "lastConfirmedEntry": "7:-1",
        "ledgers": [{"ledgerId": 7}],
        "cursors": {},
    }
    return {key: value for key, value in {**created, **fields}.items() if value is not None}


def cursor(mark_delete: str, consumed: int = 0) -> dict[str, Any]:
    return {
        "pulsar.repl.green": {
            "markDeletePosition": mark_delete,
            "individuallyDeletedMessages": "[]",
            "messagesConsumedCounter": consumed,
        }
    }


@pytest.mark.parametrize("fields", [{}, {"cursors": cursor("7:-1")}])
def test_a_topic_that_was_just_created_has_stored_nothing(fields: dict[str, Any]) -> None:
    assert has_stored_nothing(answer(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"entriesAddedCounter": 1},
        {"numberOfEntries": 1},
        {"lastConfirmedEntry": "7:0"},
        {"lastConfirmedEntry": "6:-1"},
        {"ledgers": [{"ledgerId": 6}, {"ledgerId": 7}]},
        {"ledgers": []},
        {"cursors": cursor("6:3")},
        {"cursors": cursor("7:-1", consumed=2)},
        *(
            {key: None}
            for key in ("entriesAddedCounter", "numberOfEntries", "lastConfirmedEntry", "ledgers", "cursors")
        ),
        {"lastConfirmedEntry": "unknown"},
    ],
)
def test_what_was_used_or_is_not_known_is_not_empty(fields: dict[str, Any]) -> None:
    assert not has_stored_nothing(answer(**fields))
