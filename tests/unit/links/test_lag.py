"""When green has caught up with writers that do not stop, and when what they had under way is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.links.lag import ReplicationRate
from pulsar_fleet.migration.cutover import namespace_cutover
from pulsar_fleet.migration.cutover.namespace_cutover import PendingWrites, is_quiesced

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


def writes(added: int, pending: int) -> dict[str, Any]:
    return {
        "entriesAddedCounter": added,
        "pendingAddEntriesCount": pending,
        "lastConfirmedEntry": f"7:{added - 1}",
    }


@pytest.mark.parametrize(
    ("seconds", "ends", "waiting", "reads"),
    [(60, {"a": "7:4", "b": "7:9", "c": "7:0"}, [], ["abc", "abc", "bc", "b"]), (0, {}, ["a", "b", "c"], ["abc"])],
    ids=["until each was quiesced once", "until the time is over"],
)
async def test_each_partition_is_waited_for_until_nothing_of_it_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch, seconds: float, ends: dict[str, str], waiting: list[str], reads: list[str]
) -> None:
    topics = {name: TopicName(NamespaceName("acme", "orders"), name) for name in "abc"}
    answers = {
        "a": [writes(5, 0), writes(5, 0)],
        "b": [writes(9, 2), writes(10, 0), writes(10, 1), writes(10, 0)],
        "c": [writes(1, 1), writes(1, 1), writes(1, 0)],
    }
    read: list[str] = []

    async def answered(admin: object, partitions: Sequence[TopicName]) -> dict[TopicName, dict[str, Any]]:
        read.append("".join(topic.local for topic in partitions))
        return {topic: answers[topic.local][len(read) - 1] for topic in partitions}

    monkeypatch.setattr(namespace_cutover, "required_internal_stats", answered)
    monkeypatch.setattr(namespace_cutover, "_POLL_SECONDS", 0.0)
    result = await namespace_cutover.wait_quiesced(cast(AdminClient, None), tuple(topics.values()), seconds)
    assert {topic.local: str(position) for topic, position in result.ends.items()} == ends
    assert ([topic.local for topic in result.waiting], read) == (waiting, reads)


async def test_a_throttle_that_producers_publish_past_is_stored_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, stored = TopicName(NamespaceName("acme", "orders"), "a"), [0, 0]

    async def answered(admin: object, partitions: Sequence[TopicName]) -> dict[TopicName, dict[str, Any]]:
        # Until the throttle is stored a second time another entry comes before each look.
        stored[1] += stored[0] < 2
        return {topic: writes(stored[1], 0)}

    async def again() -> None:
        stored[0] += 1

    monkeypatch.setattr(namespace_cutover, "required_internal_stats", answered)
    monkeypatch.setattr(namespace_cutover, "_POLL_SECONDS", 0.0)
    past = await namespace_cutover.wait_quiesced(cast(AdminClient, None), (topic,), 0.01, again)
    assert (stored[0], "1 partition stored " in past.text()) == (0, True)
    monkeypatch.setattr(namespace_cutover, "_AGAIN_SECONDS", (0.01, 0.02))
    result = await namespace_cutover.wait_quiesced(cast(AdminClient, None), (topic,), 60, again)
    assert (stored[0], result.waiting) == (2, {})
