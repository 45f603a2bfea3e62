"""Retained messages and subscriptions at every kind of place are carried to green: each continues where it was."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pulsar
import pytest
from tests.contract.migration.test_faults import CutAfter
from tests.support.replication import know_each_other, wait_linked

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.overrides import overrides_in
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats, replicator_cursor
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import begin_replication, copy_from, end_replication, register_cluster
from pulsar_fleet.migration.abort import abort_migration
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Move, Moves, PartitionClients, Strategy
from pulsar_fleet.migration.preflight.copied_policies import read_uncopied
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.proof.steps import verify_messages as prove_messages
from pulsar_fleet.migration.proof.steps import verify_subscriptions
from pulsar_fleet.migration.steps import (
    clean_up_blue,
    cut_over,
    freeze_blue,
    replication_progress,
    restore_blue,
    start_replication,
)
from pulsar_fleet.migration.subscriptions.transfer import CursorTransfer
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.resources import lists_of_topics, read_clusters_in_effect
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import EntryMapping
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process
from pulsar_fleet.verification.subscriptions.steps import compare_subscriptions

pytestmark = pytest.mark.cluster

MESSAGES = int(os.environ.get("PULSAR_FLEET_PLACEMENT_MESSAGES", "3000"))
BATCH = 5
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
NewNamespace = Callable[[], NamespaceName]


@dataclass
class Reader:
    """A subscription as an application leaves it on blue, in entries of the topic.

    :param mark: it has acknowledged so many from the beginning on.
    :param alone: and these, one by one.
    :param reset: to which it was set back afterwards, which forgets the single ones.
    """

    mark: int
    alone: set[int] = field(default_factory=set)
    reset: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    replicated: bool = False

    def unread(self, entries: int) -> set[int]:
        """The entries that it has not acknowledged."""
        if self.reset is not None:
            return set(range(self.reset, entries))
        return set(range(self.mark, entries)) - self.alone


def readers(entries: int) -> dict[str, Reader]:
    """Six subscriptions; the topic's first ledger ends in the middle."""
    half = entries // 2
    alone = {*range(half - 20, half + 7), *range(half + 11, half + 50, 3), half + 70, entries - 1}
    return {
        "earliest": Reader(0),
        "ledger end": Reader(half),
        "end": Reader(entries),
        "holes+é": Reader(entries // 4, alone),
        "reset": Reader(half, {half + 2, half + 4}, reset=entries // 3),
        "labelled": Reader(half + 5, {half + 8}, properties={"team": "billing"}),
    }


@dataclass
class Carried:
    """A namespace that is replicated and switched, and the run that does it."""

    sides: Sides
    run: Run
    moves: Moves
    expected: dict[TopicName, tuple[int, dict[str, Reader]]]

    @property
    def before(self) -> OriginalSettings:
        return OriginalSettings.from_json(self.document("original-settings.json"))

    def document(self, name: str) -> Any:
        reference = self.run.artefacts.find(self.run.id, name)
        assert reference is not None
        return self.run.artefacts.read_json(reference)

    async def replicate(self) -> None:
        await freeze_blue(self.sides, self.run, self.moves)
        await start_replication(self.sides, self.run, self.moves)
        while not (await replication_progress(self.sides, self.run, self.moves))[0]:
            await asyncio.sleep(0.2)

    async def switch(self, individually_acknowledged: IndividuallyAcknowledged) -> list[dict[str, Any]]:
        await cut_over(
            self.sides,
            self.run,
            self.moves,
            self.before,
            quiesce_seconds=0.5,
            individually_acknowledged=individually_acknowledged,
        )
        result = self.document("cut-over.json")[str(self.moves.moves[0].namespace)]
        assert result["duplicates"] == {}
        placed: list[dict[str, Any]] = result["cursors"]
        return placed


async def make(
    blue: ClusterConnection,
    green: ClusterConnection,
    name: NamespaceName,
    folder: Path,
    messages: int,
    topic: str,
    *,
    retention: dict[str, int] | None = FOREVER,
) -> Carried:
    """A topic with retained messages in batches, two ledgers, and its subscriptions."""
    where = TopicName(name, topic)
    for connection in (blue, green):
        async with AdminClient(connection) as admin:
            own = await admin.cluster_name()
            await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
            await admin.put_namespace(name, {"replication_clusters": [own], "retention_policies": retention})
            await admin.create_topic(where)
    entries = messages // BATCH
    placed = readers(entries)
    async with AdminClient(blue) as admin:
        await asyncio.to_thread(write, blue, where, range(messages // 2))
        await admin.put(f"/{where.path}/unload")
        await asyncio.to_thread(write, blue, where, range(messages // 2, messages))
        positions = await asyncio.to_thread(entries_of, blue, where)
        assert len(positions) == entries
        for subscription, reader in placed.items():
            await make_reader(admin, where, subscription, reader, positions)
    move = Move(name, Strategy.REPLICATE, "", {where: 0}, {where: PartitionClients(0, dict.fromkeys(placed, 0), {})})
    run = Run("carried", Ledger.open(f"sqlite:///{folder / 'ledger.db'}"), Artefacts.open(str(folder / "artefacts")))
    return Carried(Sides(blue, green, 5.0), run, Moves("blue", "green", (move,)), {where: (entries, placed)})


def write(connection: ClusterConnection, topic: TopicName, numbers: range) -> None:
    client = open_client(connection)
    producer = client.create_producer(
        str(topic),
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=10_000,
        block_if_queue_full=True,
    )
    for number in numbers:
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 7}")
    producer.flush()
    client.close()


def entries_of(connection: ClusterConnection, topic: TopicName) -> list[pulsar.MessageId]:
    """The ids of all entries, as a reader sees them."""
    client = open_client(connection)
    reader = client.create_reader(str(topic), pulsar.MessageId.earliest)
    positions: dict[tuple[int, int], None] = {}
    while reader.has_message_available():
        position = reader.read_next(10_000).message_id()
        positions[position.ledger_id(), position.entry_id()] = None
    client.close()
    return [pulsar.MessageId(-1, ledger, entry, -1) for ledger, entry in positions]


async def make_reader(
    admin: AdminClient, topic: TopicName, name: str, reader: Reader, positions: list[pulsar.MessageId]
) -> None:
    await admin.create_subscription(topic, name)

    def consume() -> None:
        client = open_client(admin.connection)
        if reader.mark:
            consumer = client.subscribe(str(topic), name, receiver_queue_size=1)
            consumer.acknowledge_cumulative(positions[reader.mark - 1])
            consumer.close()
        consumer = client.subscribe(str(topic), name, consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=1)
        for number in sorted(reader.alone):
            consumer.acknowledge(positions[number])
        consumer.close()
        client.close()

    await asyncio.to_thread(consume)
    path = topic.subscription_path(name)
    if reader.reset is not None:
        at = positions[reader.reset]
        await admin.post(f"{path}/resetcursor", {"ledgerId": at.ledger_id(), "entryId": at.entry_id()})
    if reader.properties:
        await admin.put(f"{path}/properties", reader.properties)


def deliveries(connection: ClusterConnection, topic: TopicName, subscription: str) -> list[int]:
    """Everything that a consumer of it gets, in order of arrival."""
    client = open_client(connection)
    numbers: list[int] = []
    try:
        consumer = client.subscribe(str(topic), subscription)
        while True:
            message = consumer.receive(1000)
            numbers.append(int(message.data()))
            consumer.acknowledge(message)
    except pulsar.Timeout:
        return numbers
    finally:
        client.close()


def messages_in(entries: set[int]) -> Counter[int]:
    return Counter(number for entry in entries for number in range(entry * BATCH, (entry + 1) * BATCH))


async def verify_messages(carried: Carried) -> None:
    """Messages and subscriptions are equal, by the verification."""
    async with carried.sides.open() as (blue, green):
        names = [move.namespace for move in carried.moves.moves]
        request = await freeze_bounds(blue, green, names, mapping=EntryMapping.REPLICATED)
        assert (await verify_in_process(blue, green, request)).verdict is Verdict.EQUAL
        assert (await compare_subscriptions(blue, green, request)).verdict is Verdict.EQUAL


async def test_every_subscription_continues_on_green_where_it_was(
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    on_green: AdminClient,
    tmp_path: Path,
) -> None:
    carried = await make(blue, green, new_namespace(), tmp_path, MESSAGES, "history")
    ((topic, (entries, placed)),) = carried.expected.items()
    await on_green.create_subscription(topic, "ledger end")  # as onboarding leaves it: at the earliest message
    await carried.replicate()
    await on_green.create_subscription(topic, "end", "latest")
    async with CutAfter(green.admin_url, "/resetcursor") as cut:  # a try that dies with a subscription half placed
        dying = replace(carried, sides=Sides(blue, replace(green, admin_url=cut.url), 1.0))
        with pytest.raises(Unavailable):
            await dying.switch(IndividuallyAcknowledged.CARRY)
    stated = {cursor["subscription"]: cursor for cursor in await carried.switch(IndividuallyAcknowledged.CARRY)}
    assert {name: (cursor["unread"], cursor["carried"], cursor["redelivered"]) for name, cursor in stated.items()} == {
        name: (len(reader.unread(entries)), 0 if reader.reset else len(reader.alone), 0)
        for name, reader in placed.items()
    }
    await verify_messages(carried)
    await restore_blue(carried.sides, carried.run, carried.before, delete_topics=True)
    for name, reader in placed.items():
        got = Counter(await asyncio.to_thread(deliveries, green, topic, name))
        assert got == messages_in(reader.unread(entries)), name


@pytest.mark.long
async def test_acknowledgments_that_are_not_carried_are_redelivered_as_stated(
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    on_blue: AdminClient,
    on_green: AdminClient,
    tmp_path: Path,
) -> None:
    carried = await make(blue, green, new_namespace(), tmp_path, 900, "history", retention=None)
    ((topic, (entries, placed)),) = carried.expected.items()
    await carried.replicate()
    await on_green.put(f"/{topic.path}/unload")  # green would remove a closed ledger that nobody has left to read
    cursors = await carried.switch(IndividuallyAcknowledged.REDELIVER)
    (stated,) = [cursor for cursor in cursors if cursor["subscription"] == "holes+é"]
    reader = placed["holes+é"]
    assert (stated["redelivered"], stated["carried"]) == (len(reader.alone), 0)
    await verify_subscriptions(carried.sides, carried.run, carried.moves)
    await restore_blue(carried.sides, carried.run, carried.before, delete_topics=True)
    got = Counter(await asyncio.to_thread(deliveries, green, topic, "holes+é"))
    assert got - messages_in(reader.unread(entries)) == messages_in(reader.alone)

    with pytest.raises(PreconditionFailed, match="nothing is removed"):
        await clean_up_blue(carried.sides, carried.run, carried.moves, carried.before, remove_topics=True)
    remaining = (await on_blue.stats(topic))["subscriptions"].keys()
    assert remaining == placed.keys() - {"end"}  # the broker itself removes one that has read everything
    await prove_messages(carried.sides, carried.run, carried.moves)
    cleaned = await clean_up_blue(carried.sides, carried.run, carried.moves, carried.before, remove_topics=True)
    (counts,) = cleaned.values()
    assert (counts["subscriptions"], counts["topics"], counts["left"]["topics"]) == (len(placed) - 1, 1, 0)
    assert topic not in await on_blue.topics(topic.namespace)
    again = await clean_up_blue(carried.sides, carried.run, carried.moves, carried.before, remove_topics=True)
    assert [counts_again["topics"] for counts_again in again.values()] == [0]


async def test_other_clusters_stay_in_the_list_while_green_is_added_and_removed(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace
) -> None:
    name, others = new_namespace(), (f"far-{uuid4().hex[:6]}", f"new-{uuid4().hex[:6]}")
    await register_cluster(on_blue, "green", on_green.connection)
    for other in others:
        await on_blue.put_cluster(
            other, {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"}
        )
    allowed = ["blue", "green", *others]
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": allowed})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue", others[0]]})

    async def listed() -> list[str]:
        return sorted((await on_blue.namespace(name) or {})["replication_clusters"])

    assert await begin_replication(on_blue, "blue", name, "green")
    assert not await begin_replication(on_blue, "blue", name, "green")
    assert await listed() == sorted(["blue", "green", others[0]])
    await on_blue.post(f"/namespaces/{name.path}/replication", allowed)  # somebody adds one meanwhile
    assert not await end_replication(on_blue, "blue", name, "green", original=["blue", "green"])
    assert await end_replication(on_blue, "blue", name, "green", original=["blue", others[0]])
    assert await listed() == sorted(["blue", *others])
    await on_blue.post(f"/namespaces/{name.path}/replication", ["blue"])
    await on_blue.delete(f"/namespaces/{name.path}")
    await on_blue.delete(f"/tenants/{name.tenant}")
    for other in others:
        await on_blue.delete(f"/clusters/{other}")


async def give_list(admin: AdminClient, topic: TopicName, clusters: list[str], *, shared: bool = False) -> None:
    """The topic has this list of its own, local or global."""
    await admin.post(f"/{topic.path}/replication", clusters, isGlobal=shared)
    async with asyncio.timeout(20):
        while await admin.get(f"/{topic.path}/replication", isGlobal=shared) != clusters:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("shared", [False, True], ids=["local", "global"])
async def test_a_topic_with_a_list_of_its_own_is_copied_until_the_abort(
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    on_blue: AdminClient,
    tmp_path: Path,
    shared: bool,
) -> None:
    far = f"far-{uuid4().hex[:6]}"
    carried = await make(blue, green, new_namespace(), tmp_path, 900, "history")
    ((topic, _),) = carried.expected.items()
    own, tenant = {"adminRoles": [], "allowedClusters": ["blue"]}, f"/tenants/{topic.namespace.tenant}"
    await on_blue.put_cluster(far, {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"})
    await on_blue.post(tenant, own | {"allowedClusters": ["blue", far]})
    # A broker takes a global list only where the namespace is replicated.
    clusters = ["blue", far] if shared else ["blue"]
    await on_blue.post(f"/namespaces/{topic.namespace.path}/replication", clusters)
    await give_list(on_blue, topic, ["blue", far], shared=shared)
    async with asyncio.timeout(30):
        await carried.replicate()
        await carried.replicate()
    assert await read_clusters_in_effect(on_blue, topic) == sorted(["blue", far, "green"])
    assert len(await asyncio.to_thread(entries_of, green, topic)) == 900 // BATCH
    selection = Selection(namespaces=frozenset({topic.namespace}))
    snapshot = await collect(on_blue, selection, redactor=Redactor(b"0123456789abcdef"))
    assert lists_of_topics(snapshot.topic_policies) == {topic: {"blue", far}}
    await abort_migration(carried.sides, carried.run, carried.moves)
    for is_global in (False, True):
        stored = await on_blue.get(f"/{topic.path}/replication", isGlobal=is_global)
        assert sorted(stored or ()) == (["blue", far] if is_global is shared else [])
    namespace = await on_blue.namespace(topic.namespace) or {}
    assert (sorted(namespace["replication_clusters"]), overrides_in(namespace)) == (clusters, None)
    await on_blue.delete(f"/{topic.path}/replication", isGlobal=shared)
    await on_blue.post(f"/namespaces/{topic.namespace.path}/replication", ["blue"])
    await on_blue.post(tenant, own)
    await on_blue.delete(f"/clusters/{far}")


async def test_a_moved_topic_with_a_list_of_its_own_has_it_back_in_the_end(
    blue: ClusterConnection, green: ClusterConnection, new_namespace: NewNamespace, on_blue: AdminClient, tmp_path: Path
) -> None:
    carried = await make(blue, green, new_namespace(), tmp_path, 900, "history")
    ((topic, _),) = carried.expected.items()
    await give_list(on_blue, topic, ["blue"])
    async with asyncio.timeout(30):
        await carried.replicate()
    await carried.switch(IndividuallyAcknowledged.CARRY)
    await verify_messages(carried)
    await verify_subscriptions(carried.sides, carried.run, carried.moves)
    await restore_blue(carried.sides, carried.run, carried.before, delete_topics=False)
    await prove_messages(carried.sides, carried.run, carried.moves)
    assert await read_clusters_in_effect(on_blue, topic) == ["blue", "green"]
    await clean_up_blue(carried.sides, carried.run, carried.moves, carried.before)
    assert await read_clusters_in_effect(on_blue, topic) == ["blue"]


async def test_unread_entries_from_before_a_replication_are_counted(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    """Replication by hand begins with the next message: nothing that was stored before reaches green."""
    name, messages = new_namespace(), 1_000
    await make(on_blue.connection, on_green.connection, name, tmp_path, messages, "late")
    topic, entries = TopicName(name, "late"), messages // BATCH
    unread = {reader: len(place.unread(entries)) for reader, place in readers(entries).items()}
    await know_each_other(on_blue, on_green)
    await on_blue.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "green"]})

    async def uncopied() -> dict[str, int]:
        found, notes = await read_uncopied(on_blue, on_green, [TopicStats.of(topic, await on_blue.stats(topic))])
        assert notes == ()
        return dict(found[topic].unread)

    expected = {reader: count for reader, count in unread.items() if count}
    await on_blue.post(f"/namespaces/{name.path}/replication", ["blue", "green"])
    await wait_linked(on_blue, [topic], "green")
    assert await uncopied() == expected
    await asyncio.to_thread(write, on_blue.connection, topic, range(messages, messages + BATCH))
    async with asyncio.timeout(20):
        while not (await on_green.internal_stats(topic))["numberOfEntries"]:
            await asyncio.sleep(0.1)
    assert await uncopied() == expected
    link = cursors_in_stats(await on_blue.internal_stats(topic))[replicator_cursor("green")]
    await copy_from(on_blue, topic, "green")
    assert cursors_in_stats(await on_blue.internal_stats(topic))[replicator_cursor("green")] == link
    await asyncio.to_thread(deliveries, on_blue.connection, topic, "earliest")
    assert await uncopied() == {reader: count for reader, count in expected.items() if reader != "earliest"}


async def test_a_replicated_subscription_keeps_flag_and_cursor_when_set_twice(
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: NewNamespace,
    on_blue: AdminClient,
    on_green: AdminClient,
    tmp_path: Path,
) -> None:
    carried = await make(blue, green, new_namespace(), tmp_path, 900, "marked")
    ((topic, (entries, placed)),) = carried.expected.items()
    path = topic.subscription_path("holes+é")
    await on_blue.post(f"{path}/replicatedSubscriptionStatus", True)
    await carried.replicate()
    await asyncio.to_thread(write, blue, topic, range(900, 930))  # with markers between, once the flag is known
    clients = carried.moves.moves[0].partitions[topic]
    await CursorTransfer(on_blue, on_green).transfer(topic, clients)
    await on_green.put(f"/{topic.path}/unload")  # what is not written down is lost by that
    before = await on_green.internal_stats(topic)
    await CursorTransfer(on_blue, on_green).transfer(topic, clients)
    after = await on_green.internal_stats(topic)
    marks = [
        {name: cursor["markDeletePosition"] for name, cursor in stats["cursors"].items()} for stats in (before, after)
    ]
    assert marks[0] == marks[1]
    stats = await on_green.stats(topic)
    assert [name for name, cursor in stats["subscriptions"].items() if cursor["isReplicated"]] == ["holes+é"]
    await carried.switch(IndividuallyAcknowledged.CARRY)
    await restore_blue(carried.sides, carried.run, carried.before, delete_topics=True)
    reader = placed["holes+é"]
    got = Counter(await asyncio.to_thread(deliveries, green, topic, "holes+é"))
    assert got == messages_in(reader.unread(entries)) + Counter(range(900, 930))
