"""What only readers of a compacted topic get is moved, or the run is refused before anything changes."""

from __future__ import annotations

import asyncio

import pulsar
import pytest
from tests.support.moved_namespace import MovedNamespace, empty_log

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.prepare.compaction import compact

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

KEYS = 10


async def test_values_that_are_left_in_the_log_are_moved_whole(moved: MovedNamespace, green: ClusterConnection) -> None:
    table = await make_table(moved)
    before = await asyncio.to_thread(read_table, moved.sides.blue, table)
    assert len(before) == KEYS + 1
    moves = await moved.until_cut_over(None)
    assert (moves.moves[0].strategy, moves.moves[0].compacted) == (Strategy.REPLICATE, (table,))
    await moved.cut_over(moves)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    await empty_log(moved.green, table)
    assert await asyncio.to_thread(read_table, green, table) == before


@pytest.mark.parametrize("strategy", [None, Strategy.REDIRECT, Strategy.REPOINT], ids=str)
async def test_values_that_the_log_has_lost_are_refused(moved: MovedNamespace, strategy: Strategy | None) -> None:
    table = await make_table(moved)
    await empty_log(moved.blue, table)
    before = await asyncio.to_thread(read_table, moved.sides.blue, table)
    expected = "compacted-values-stay" if strategy is Strategy.REDIRECT else "compacted-values-trimmed"
    with pytest.raises(PreconditionFailed, match=f"(?s){expected}.*set a retention") as refused:
        await steps.check_gates(moved.sides, moved.run, [moved.namespace], strategy)
    assert str(table) in str(refused.value)
    assert len(before) == KEYS + 1


async def test_values_that_are_written_again_are_moved(moved: MovedNamespace) -> None:
    """What the refusal says, in its order."""
    table = await make_table(moved)
    await empty_log(moved.blue, table)
    retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    await moved.blue.post(f"/namespaces/{moved.namespace.path}/retention", retention)
    values = await asyncio.to_thread(read_table, moved.sides.blue, table)
    written = [(key, int(value)) for key, value in values.items()]
    await asyncio.to_thread(write, moved.client, table, written)
    await compact(moved.blue, [table])
    await steps.check_gates(moved.sides, moved.run, [moved.namespace], Strategy.REPLICATE)


async def test_a_topic_that_is_compacted_by_itself_later_is_copied(moved: MovedNamespace) -> None:
    """Its values are in the log only, where nothing but the open ledger holds them."""
    table = moved.topic("table")
    await moved.blue.create_topic(table)
    await moved.blue.post(f"/{table.path}/compactionThreshold", 1_000_000)
    await asyncio.to_thread(write_table, moved.client, table)
    reference, _ = await steps.check_gates(moved.sides, moved.run, [moved.namespace], None)
    move = Moves.from_json(moved.run.artefacts.read_json(reference)).moves[0]
    assert move.strategy is Strategy.REPLICATE
    assert move.reason == f"{table} has 30 values for readers of the compacted topic"


async def make_table(moved: MovedNamespace) -> TopicName:
    """A topic without any subscription: ten keys three times, compacted, and one more key behind that."""
    table = moved.topic("table")
    await moved.blue.create_topic(table)
    await asyncio.to_thread(write_table, moved.client, table)
    await compact(moved.blue, [table])
    await asyncio.to_thread(write, moved.client, table, [("later", 0)])
    return table


def write_table(client: pulsar.Client, table: TopicName) -> None:
    write(client, table, [(f"k{number % KEYS}", number) for number in range(3 * KEYS)])


def write(client: pulsar.Client, table: TopicName, values: list[tuple[str, int]]) -> None:
    producer = client.create_producer(str(table), batching_enabled=False)
    for key, number in values:
        producer.send(b"%d" % number, partition_key=key)
    producer.close()


def read_table(cluster: ClusterConnection, table: TopicName) -> dict[str, bytes]:
    client = open_client(cluster)
    values: dict[str, bytes] = {}
    try:
        reader = client.create_reader(str(table), pulsar.MessageId.earliest, is_read_compacted=True)
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=5000)
            values[message.partition_key()] = message.data()
    finally:
        client.close()
    return values
