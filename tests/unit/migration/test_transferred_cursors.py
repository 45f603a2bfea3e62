"""Whether transferred cursors are where the cut-over stated."""

from __future__ import annotations

import pytest

from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor
from pulsar_fleet.migration.subscriptions.verify import CursorComparison, wrong_cursors

TOPIC = "persistent://acme/orders/events"
NAME = (TOPIC, "billing")


def transferred(redelivered: int, unread: int = 9) -> TransferredCursor:
    return TransferredCursor(topic=TOPIC, subscription="billing", unread=unread, carried=0, redelivered=redelivered)


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
        (3, CursorComparison(redelivered=5, skipped=0), "5 would be redelivered, stated were 3"),
        (3, CursorComparison(redelivered=2, skipped=0), "2 would be redelivered, stated were 3"),
        (3, CursorComparison(redelivered=2, skipped=0, by_entries=False), "2 would be redelivered, stated were 3"),
        (1, CursorComparison(redelivered=5, skipped=0, by_entries=False), ""),
        (0, CursorComparison(redelivered=5, skipped=0, by_entries=False), "5 would be redelivered, stated were 0"),
        (0, CursorComparison(redelivered=0, skipped=4), "4 would be skipped"),
        (3, CursorComparison(redelivered=3, skipped=1), "1 would be skipped"),
        (
            3,
            CursorComparison(redelivered=3, skipped=0, settings=("property 'team' differs",)),
            "property 'team' differs",
        ),
        (3, CursorComparison(redelivered=0, skipped=9, reason="green does not answer"), "green does not answer"),
    ],
)
def test_only_a_cursor_that_nobody_stated_or_repeated_is_wrong(
    stated: int, comparison: CursorComparison, wrong: str
) -> None:
    texts, moved = wrong_cursors([transferred(stated)], {NAME: comparison}, ())
    assert moved == ()
    assert texts == ((f"'billing' of {TOPIC}: {wrong}",) if wrong else ())


def test_a_subscription_that_blue_removed_must_have_no_backlog() -> None:
    assert wrong_cursors([transferred(0, unread=0)], {}, ()) == ((), ())
    missing = f"'billing' of {TOPIC}: it does not exist on both clusters"
    assert wrong_cursors([transferred(0, unread=1)], {}, ()) == ((missing,), ())


def test_a_subscription_that_is_consumed_already_is_named_and_not_judged() -> None:
    skipping = CursorComparison(redelivered=0, skipped=9)
    assert wrong_cursors([transferred(3)], {NAME: skipping}, {NAME}) == ((), (f"'billing' of {TOPIC}",))
