"""Whether transferred cursors are where the cut-over stated."""

from __future__ import annotations

import pytest

from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor
from pulsar_fleet.migration.subscriptions.verify import CursorComparison, wrong_cursors

TOPIC = "persistent://acme/orders/events"


@pytest.mark.parametrize(
    ("stated", "comparison", "wrong"),
    [
        (0, CursorComparison(redelivered=0, skipped=0), ""),
        (3, CursorComparison(redelivered=3, skipped=0), ""),
        (3, CursorComparison(redelivered=5, skipped=0, by_entries=False), ""),
        (0, CursorComparison(redelivered=5, skipped=0), "5 would be redelivered, stated were 0"),
        (0, CursorComparison(redelivered=5, skipped=0, repeated=5, by_entries=False), ""),
        (2, CursorComparison(redelivered=7, skipped=0, repeated=5, by_entries=False), ""),
        (
            0,
            CursorComparison(redelivered=7, skipped=0, repeated=5, by_entries=False),
            "2 would be redelivered, stated were 0",
        ),
        (0, CursorComparison(redelivered=0, skipped=4), "4 would be skipped"),
    ],
)
def test_only_a_cursor_that_nobody_stated_or_repeated_is_wrong(
    stated: int, comparison: CursorComparison, wrong: str
) -> None:
    cursor = TransferredCursor(topic=TOPIC, subscription="billing", unread=9, carried=0, redelivered=stated)
    texts, moved = wrong_cursors([cursor], {(TOPIC, "billing"): comparison}, ())
    assert moved == ()
    assert texts == ((f"'billing' of {TOPIC}: {wrong}",) if wrong else ())
