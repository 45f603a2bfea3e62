"""What is advised about partitions that were not terminated."""

from __future__ import annotations

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.cutover.termination import unterminated_text
from pulsar_fleet.migration.model import Move, PartitionClients, Strategy

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
PARTITIONS = TOPIC.partitions(2)
MOVE = Move(
    TOPIC.namespace,
    Strategy.REDIRECT,
    "",
    {TOPIC: 2},
    {partition: PartitionClients(0, {}, {}) for partition in PARTITIONS},
)


def test_the_flag_may_be_cleared_while_no_partition_is_terminated() -> None:
    assert "Clear it to keep the namespace on blue" in unterminated_text(MOVE, PARTITIONS, 7)


def test_the_flag_stays_when_one_partition_is_terminated() -> None:
    text = unterminated_text(MOVE, PARTITIONS[:1], 7)
    assert text.startswith("1 of 2 partitions of acme/orders were not terminated within 7 s")
    assert "Leave it" in text
    assert "Clear" not in text
