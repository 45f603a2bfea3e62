"""When green has caught up with writers that do not stop, and when what they had under way is stored."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.cluster.names import Position
from pulsar_fleet.links.lag import ReplicationRate
from pulsar_fleet.migration.cutover.quiesce import PendingWrites, is_quiesced

END = Position(7, 0)


def held(added: int, confirmed: int, *, first: int = 0, cursor: str = "pulsar.repl.green") -> dict[str, Any]:
    """`internalStats` of a topic of one ledger, `confirmed` of whose entries are on green.

    :param first: entries of ledgers that were removed meanwhile.
    """
    return {
        "lastConfirmedEntry": f"7:{added - first - 1}",
        "ledgers": [{"ledgerId": 7, "entries": 0}],
        "cursors": {
            cursor: {
                "markDeletePosition": f"7:{confirmed - first - 1}",
                "messagesConsumedCounter": confirmed,
                "individuallyDeletedMessages": "[]",
            },
        },
    }


@pytest.mark.parametrize(
    ("before", "now", "near"),
    [
        (held(100, 100), held(100, 100), True),
        (held(1000, 950), held(1250, 1190), True),
        (held(1000, 960), held(1010, 961), False),
        (held(5000, 1000), held(5250, 1200), False),
        (held(1000, 900), held(1250, 900), False),
        (held(1000, 950), held(1250, 1190, first=1100), True),
        (held(10, 10, cursor="pulsar.repl.far"), held(10, 10, cursor="pulsar.repl.far"), False),
    ],
    ids=[
        "nothing is left",
        "60 entries are a quarter of a second of a busy topic",
        "49 entries are most of a minute of a slow link",
        "it falls behind",
        "it stands still",
        "ledgers were removed meanwhile",
        "nothing is replicated to green",
    ],
)
def test_what_a_link_sends_within_two_seconds_is_near_whatever_its_number(
    before: dict[str, Any], now: dict[str, Any], *, near: bool
) -> None:
    assert ReplicationRate.between(before, now, "green", 1.0).is_near is near


@pytest.mark.parametrize(
    ("now", "quiesced"),
    [
        (PendingWrites(added=100, pending=0, last=END), True),
        (PendingWrites(added=101, pending=0, last=END), False),
        (PendingWrites(added=112, pending=0, last=END), False),
        (PendingWrites(added=100, pending=1, last=END), False),
        (PendingWrites(added=3, pending=0, last=END), False),
    ],
    ids=[
        "nothing came",
        "one message came",
        "producers write on",
        "one is on its way",
        "it was loaded again",
    ],
)
def test_a_partition_is_quiesced_when_nothing_is_pending_and_nothing_came(
    now: PendingWrites, *, quiesced: bool
) -> None:
    assert is_quiesced(PendingWrites(added=100, pending=0, last=END), now) is quiesced
