"""Who has terminated a partition, and what a person does about one that nobody has."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.migration.cutover.confirmation import incomplete_text
from pulsar_fleet.migration.cutover.termination import Terminations
from pulsar_fleet.migration.model import Move, PartitionClients, Strategy

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


def test_the_end_of_an_incomplete_namespace_names_cause_and_task() -> None:
    text = incomplete_text(MOVE, {SECOND: "its broker does not check the flag"}, "east")
    assert text.startswith("acme/orders is incomplete: 1 of 2 partitions is not terminated on east.\n")
    assert f"\n  {SECOND}: its broker does not check the flag\n" in text
    assert text.endswith("nothing of it was removed from east. Then clear the task wait_drained.")
