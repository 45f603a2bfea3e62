"""What readers of a compacted topic get, and whether the log still has it."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position
from pulsar_fleet.migration.facts import CompactedView, compacted_view

LOG: JsonObject = {
    "ledgers": [{"ledgerId": 7, "entries": 20}, {"ledgerId": 9, "entries": 0}],
    "currentLedgerEntries": 4,
    "lastConfirmedEntry": "9:3",
}
COMPACTED: JsonObject = {"ledgerId": 8, "entries": 10, "size": 500}
NONE: JsonObject = {"ledgerId": -1, "entries": -1, "size": -1}
WHOLE, TRIMMED = CompactedView(10, True), CompactedView(10, False)
EMPTY: JsonObject = {
    "ledgers": [{"ledgerId": 12, "entries": 0}],
    "currentLedgerEntries": 0,
    "lastConfirmedEntry": "12:-1",
}


@pytest.mark.parametrize(
    ("stats", "first", "compacting", "expected"),
    [
        pytest.param({**LOG, "compactedLedger": COMPACTED}, Position(7, 0), False, WHOLE, id="first entry"),
        pytest.param({**LOG, "compactedLedger": COMPACTED}, Position(7, 5), False, WHOLE, id="later entry"),
        pytest.param({**LOG, "compactedLedger": COMPACTED}, Position(5, 9), False, TRIMMED, id="older"),
        pytest.param({**EMPTY, "compactedLedger": COMPACTED}, Position(7, 5), False, TRIMMED, id="no log"),
        pytest.param({**LOG, "compactedLedger": NONE}, None, False, None, id="never compacted"),
        pytest.param({**LOG, "compactedLedger": NONE}, None, True, CompactedView(24, True), id="to be compacted"),
        pytest.param({**EMPTY, "compactedLedger": NONE}, None, True, None, id="empty"),
    ],
)
def test_a_value_is_in_the_log_unless_it_is_older(
    stats: JsonObject, first: Position | None, compacting: bool, expected: CompactedView | None
) -> None:
    assert compacted_view(stats, first, compacting=compacting) == expected
