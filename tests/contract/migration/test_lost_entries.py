"""What blue confirms to producers behind a termination that meets the roll-over of a ledger (apache/pulsar 26680)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pulsar
import pytest
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.messages.positions import terminated_at
from pulsar_fleet.migration.model import Move, Moves, Strategy
from pulsar_fleet.migration.proof.steps import lost_entries, require_none_lost

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.migration]

TINY = {"managedLedgerMaxEntriesPerLedger": "5", "managedLedgerMinLedgerRolloverTimeMinutes": "0"}
ROUNDS = 8
TOPICS = 12


@dataclass
class Confirmed:
    """The positions that the broker confirmed to a producer."""

    positions: list[tuple[int, int]] = field(default_factory=list)

    def behind(self, ledger: int, entry: int) -> list[tuple[int, int]]:
        return [position for position in self.positions if position > (ledger, entry)]


@contextmanager
def publishing(client: pulsar.Client, topics: list[TopicName]) -> Iterator[dict[TopicName, Confirmed]]:
    """Some 300 messages a second to each topic, without waiting for a confirmation."""
    ended, confirmed = threading.Event(), {topic: Confirmed() for topic in topics}

    def publish(topic: TopicName) -> None:
        producer = client.create_producer(str(topic), batching_enabled=False, send_timeout_millis=5000)

        def note(result: pulsar.Result, position: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                confirmed[topic].positions.append((position.ledger_id(), position.entry_id()))

        while not ended.is_set():
            producer.send_async(b"content", note)
            time.sleep(0.003)

    threads = [threading.Thread(target=publish, args=(topic,), daemon=True) for topic in topics]
    for thread in threads:
        thread.start()
    try:
        yield confirmed
    finally:
        ended.set()


async def terminated_under_way(admin: AdminClient, connection: ClusterConnection, number: int) -> set[TopicName]:
    """Terminate topics under traffic by hand; those of which producers got confirmations behind the end."""
    namespace = NamespaceName("tiny", f"round-{number}")
    await admin.put_namespace(namespace, {"replication_clusters": ["blue"]})
    topics = [TopicName(namespace, f"topic-{index}") for index in range(TOPICS)]
    for topic in topics:
        await admin.create_topic(topic)
        await admin.create_subscription(topic, "archive")
    client = open_client(connection)
    with publishing(client, topics) as confirmed:
        await asyncio.sleep(3)
        for topic in topics:
            # Where the broker never answers, the topic is not terminated and loses nothing.
            await asyncio.wait([asyncio.create_task(admin.post(f"/{topic.path}/terminate"))], timeout=5)
        await asyncio.sleep(2)
    infos = {topic: await admin.internal_info(topic) for topic in topics}
    ends = {topic: end for topic, info in infos.items() if (end := terminated_at(info))}
    return {topic for topic, end in ends.items() if confirmed[topic].behind(end.ledger, end.entry)}


@pytest.mark.timeout(900)
async def test_what_is_confirmed_behind_a_termination_is_named(tmp_path: Path, start_clusters: StartClusters) -> None:
    with start_clusters(tmp_path / "tiny", clusters=("blue",), settings={"blue": TINY}) as sandbox:
        blue = sandbox["blue"]
        connection = ClusterConnection(name="blue", admin_url=blue.admin_url, service_url=blue.service_url)
        async with AdminClient(connection) as admin:
            await admin.put("/tenants/tiny", {"adminRoles": [], "allowedClusters": ["blue"]})
            for number in range(ROUNDS):
                if lost := await terminated_under_way(admin, connection, number):
                    break
            named = "\n".join(await lost_entries(admin, moves_of(lost)))
            assert lost, "no termination met a roll-over: the test proves nothing"
            assert {topic for topic in lost if f"{topic}: " in named} == lost
            with pytest.raises(PreconditionFailed, match=r"(?s)no consumer gets them.*entries behind \d+:4"):
                require_none_lost(named.splitlines(), moves_of(lost))


def moves_of(topics: set[TopicName]) -> Moves:
    names = {topic.namespace for topic in topics}
    return Moves(
        "blue",
        "green",
        tuple(Move(name, Strategy.REDIRECT, "by hand", dict.fromkeys(topics, 0), partitions={}) for name in names),
    )
