"""Ledgers behind the terminated position of a topic, by what 4.2.4 brokers answered."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.messages.positions import entries_in, ledgers_behind

END = {"ledgerId": 1011, "entryId": 4}
FULL = {"ledgerId": 1011, "entries": 5, "size": 170, "isOffloaded": False}
OPEN = {"ledgerId": 1018, "timestamp": 1795720216932, "isOffloaded": False}


@pytest.mark.parametrize(
    ("info", "behind"),
    [
        ({"ledgers": [FULL]}, ()),
        ({"ledgers": [FULL, OPEN]}, ()),
        ({"ledgers": [FULL], "terminatedPosition": END}, ()),
        ({"ledgers": [FULL, OPEN], "terminatedPosition": END}, (1018,)),
        ({"ledgers": [], "terminatedPosition": {"ledgerId": 39, "entryId": -1}}, ()),
    ],
    ids=["open", "open, two ledgers", "terminated", "written to behind its end", "emptied"],
)
def test_ledgers_behind_the_end_are_those_of_a_terminated_topic(info: dict[str, Any], behind: tuple[int, ...]) -> None:
    assert ledgers_behind(info) == behind


@pytest.mark.parametrize(("stored", "current", "counted"), [(5, 0, {1018: 5}), (0, 3, {1018: 3}), (0, 0, {})])
def test_an_open_ledger_is_counted_apart_and_an_empty_one_is_none(
    stored: int, current: int, counted: dict[int, int]
) -> None:
    ledgers = [{"ledgerId": 1011, "entries": 5}, {"ledgerId": 1018, "entries": stored}]
    assert entries_in({"ledgers": ledgers, "currentLedgerEntries": current}, (1018,)) == counted
