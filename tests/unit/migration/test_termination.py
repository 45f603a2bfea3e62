"""Who has terminated a partition, and what a person does about one that nobody has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.migration.cutover import termination
from pulsar_fleet.migration.cutover.termination import (
    CheckPeriods,
    Terminations,
    confirm_termination,
    ended_by_owner,
    incomplete_text,
    is_moved,
    wait_producers_left,
    wait_terminated,
    without_moved,
)
from pulsar_fleet.migration.model import Move, Moves, PartitionClients, Strategy

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
PARTITIONS = TOPIC.partitions(2)
FIRST, SECOND = PARTITIONS
MOVE = Move(
    TOPIC.namespace,
    Strategy.REDIRECT,
    "",
    {TOPIC: 2},
    {partition: PartitionClients(0, {}, {}) for partition in PARTITIONS},
)
END = Position(7, 4)
OPEN: JsonObject = {"version": 1}
BY_OWNER: JsonObject = {"terminatedPosition": {"ledgerId": 7, "entryId": 4}}
BY_FLAG: JsonObject = {**BY_OWNER, "properties": {"migrated": "true"}}


@pytest.mark.parametrize(
    ("strategy", "advice"),
    [
        (Strategy.REPLICATE, "Clear it to keep the namespace on east"),
        # What is written on green by now is not on blue: nobody is to stay there.
        (Strategy.COMPLETE_AND_REDIRECT, "The flag is set. Let brokers whose check is on serve them, and run again."),
    ],
)
async def test_a_flag_without_effect_is_cleared_only_where_blue_has_everything(
    monkeypatch: pytest.MonkeyPatch, strategy: Strategy, advice: str
) -> None:
    async def none_terminated(*_: object) -> Terminations:
        return Terminations({FIRST: None})

    monkeypatch.setattr(termination, "wait_terminated", none_terminated)
    blue = cast(AdminClient, SimpleNamespace(connection=SimpleNamespace(name="east")))
    with pytest.raises(PreconditionFailed, match=advice):
        await confirm_termination(blue, replace(MOVE, strategy=strategy), CheckPeriods({"first": 1.0}))


def test_what_its_owner_terminated_is_terminated_and_not_by_the_flag() -> None:
    terminations = Terminations.of({FIRST: BY_OWNER, SECOND: BY_FLAG}, MOVE)
    assert (terminations.waiting, terminations.by_owner, terminations.by_migration) == ((), {FIRST}, (SECOND,))
    assert terminations.ends == {FIRST: END, SECOND: END}


def test_a_property_of_an_open_topic_terminates_nothing() -> None:
    terminations = Terminations.of({FIRST: {"properties": {"migrated": "true"}}, SECOND: OPEN}, MOVE)
    assert terminations.waiting == PARTITIONS
    assert not terminations.by_migration


def test_a_partition_that_does_not_exist_is_not_waited_for() -> None:
    terminations = Terminations.of({FIRST: None, SECOND: OPEN}, MOVE)
    assert terminations.waiting == (SECOND,)


def test_without_a_redirect_only_what_ended_before_the_run_is_its_owners() -> None:
    move = replace(MOVE, strategy=Strategy.REPOINT, ended=(FIRST,))
    terminations = Terminations.of({FIRST: BY_OWNER, SECOND: BY_OWNER}, move)
    assert (terminations.by_owner, terminations.by_migration) == ({FIRST}, (SECOND,))


class Blue:
    """Answers what terminations are read from; a topic without a document does not exist.

    :param last_open: topic → so many times it is read as open before it is terminated.
    """

    def __init__(self, infos: Mapping[TopicName, JsonObject], *, flagged: bool = False, **last_open: int) -> None:
        self.infos = infos
        self.flagged = flagged
        self.last_open = last_open
        self.reads: Counter[str] = Counter()

    async def topics(self, namespace: NamespaceName) -> tuple[TopicName, ...]:
        return tuple(self.infos)

    async def namespace(self, namespace: NamespaceName) -> JsonObject:
        return {"migrated": self.flagged}

    async def internal_info(self, topic: TopicName, *, answered_retry_seconds: float | None = None) -> JsonObject:
        self.reads[topic.local] += 1
        if self.reads[topic.local] <= self.last_open.get(topic.local, 0):
            return OPEN
        if topic in self.infos:
            return self.infos[topic]
        if set(self.infos) == set(topic.partitions(2)):
            return {"partitions": {str(partition): info for partition, info in self.infos.items()}}
        raise Unavailable("blue: 500")


def client(blue: Blue) -> AdminClient:
    return cast(AdminClient, blue)


REPOINT = replace(MOVE, strategy=Strategy.REPOINT)
ENDED = replace(REPOINT, ended=(FIRST,))


@pytest.mark.parametrize(
    ("move", "infos", "flagged", "moved"),
    [
        (MOVE, {FIRST: OPEN, SECOND: OPEN}, True, True),
        (MOVE, {FIRST: BY_FLAG, SECOND: BY_FLAG}, False, False),
        (REPOINT, {FIRST: OPEN, SECOND: OPEN}, True, False),
        (REPOINT, {SECOND: OPEN}, False, False),
        (REPOINT, {FIRST: BY_OWNER, SECOND: OPEN}, False, True),
        (REPOINT, {SECOND: BY_OWNER}, False, True),
        (ENDED, {FIRST: BY_OWNER, SECOND: OPEN}, False, False),
        (ENDED, {FIRST: BY_OWNER, SECOND: BY_OWNER}, False, True),
    ],
    ids=[
        "flagged",
        "terminated but not flagged",
        "open",
        "one does not exist",
        "one terminated",
        "the only one terminated",
        "its owner's is terminated",
        "its owner's and one more",
    ],
)
async def test_a_cutover_has_begun_by_the_flag_or_by_a_termination_of_the_run(
    move: Move, infos: dict[TopicName, JsonObject], flagged: bool, moved: bool
) -> None:
    blue = client(Blue(infos, flagged=flagged))
    assert await is_moved(blue, move) is moved
    moves = Moves("east", "west", (move,))
    assert await without_moved(blue, moves) == (replace(moves, moves=()) if moved else moves)


@pytest.mark.parametrize(
    ("infos", "ended"),
    [
        ({FIRST: BY_OWNER, SECOND: BY_FLAG}, (FIRST,)),
        ({FIRST: OPEN, SECOND: {**OPEN, "properties": {"migrated": "true"}}}, ()),
        ({SECOND: BY_OWNER}, (SECOND,)),
        ({}, ()),
    ],
)
async def test_an_end_without_the_mark_of_a_migration_is_its_owners(
    infos: dict[TopicName, JsonObject], ended: tuple[TopicName, ...]
) -> None:
    assert await ended_by_owner(client(Blue(infos)), TOPIC, PARTITIONS, list(infos)) == ended


PLAIN = tuple(TopicName(TOPIC.namespace, name) for name in "abcd")
FOUR = replace(MOVE, topics=dict.fromkeys(PLAIN, 0))


async def test_every_topic_is_read_until_it_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "_POLL_SECONDS", 0.0)
    blue = Blue(dict.fromkeys(PLAIN, BY_FLAG), a=3, c=1)
    terminations = await wait_terminated(client(blue), FOUR, 60)
    assert (terminations.by_migration, blue.reads) == (PLAIN, {"a": 4, "b": 1, "c": 2, "d": 1})


async def test_after_the_time_what_is_still_open_is_waiting() -> None:
    terminations = await wait_terminated(client(Blue(dict.fromkeys(PLAIN, BY_FLAG), b=9)), FOUR, 0)
    assert (terminations.waiting, len(terminations.by_migration)) == (PLAIN[1:2], 3)


PRODUCING = TopicStats.of(FIRST, {"publishers": [{"producerName": "checkout-2"}]})
LEFT = TopicStats.of(FIRST, {})


@pytest.mark.parametrize(
    ("answers", "reads"),
    [
        ([LEFT], 1),
        ([PRODUCING, PRODUCING, LEFT], 3),
        ([Unavailable("no answer"), LEFT], 2),
        ([NotFound("no such topic")], 1),
        ([Conflict("not served")], 1),
    ],
    ids=["none", "one leaves", "unknown", "no topic", "not served"],
)
async def test_producers_have_left_when_none_is_known_to_be_possible(
    monkeypatch: pytest.MonkeyPatch, answers: list[TopicStats | FleetError], reads: int
) -> None:
    asked: list[Sequence[TopicName]] = []

    async def stats_of(blue: object, topics: Sequence[TopicName], *, precise: bool) -> dict[TopicName, object]:
        asked.append(topics)
        return {FIRST: answers[len(asked) - 1]}

    monkeypatch.setattr(termination, "stats_of", stats_of)
    monkeypatch.setattr(termination, "_POLL_SECONDS", 0.0)
    await wait_producers_left(client(Blue({})), (FIRST,), 60)
    assert asked == [[FIRST]] * reads
    asked.clear()
    await wait_producers_left(client(Blue({})), (FIRST,), -1)
    assert len(asked) == 1, "the time is over"


def test_the_end_of_an_incomplete_namespace_names_cause_and_task() -> None:
    text = incomplete_text(MOVE, {SECOND: "its broker does not check the flag"}, "east")
    assert text.startswith("acme/orders is incomplete: 1 of 2 partitions is not terminated on east.\n")
    assert f"\n  {SECOND}: its broker does not check the flag\n" in text
    assert text.endswith("nothing of it was removed from east. Then clear the task wait_drained.")
