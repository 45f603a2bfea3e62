"""What becomes at a switch of entries that a subscription acknowledged one by one (pure)."""

from __future__ import annotations

from enum import StrEnum

from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor

CARRIED_AT_MOST = 100_000
"""Single acknowledgments that are repeated on green for one subscription of a partition, at about 20,000 a second."""


class Singles(StrEnum):
    """What becomes of messages that were acknowledged one by one, behind one that is not acknowledged."""

    CARRY = "carry"
    """They are acknowledged on green too."""

    REDELIVER = "redeliver"
    """They come again; their number is told before the switch and after it."""


def carries(singles: Singles, subscription: SubscriptionCursor) -> bool:
    """Whether its single acknowledgments are repeated on green; else their entries come again."""
    return singles is Singles.CARRY and len(subscription.alone) <= CARRIED_AT_MOST
