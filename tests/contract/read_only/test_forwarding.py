"""Acknowledgments on shadow topics are forwarded to the owner's subscriptions: none is lost, none is invented."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.cursors import TYPES
from tests.support.event_exchange import becomes
from tests.support.forwarding import BATCH, Application, Readers, Traffic, Watched, forwarder, make_readers
from tests.support.shell import Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, NotAllowed, NotFound, PermissionDenied
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.read_only.forwarding import forwarder as forwarding
from pulsar_fleet.read_only.forwarding.forwarder import FORWARDED_SINCE
from pulsar_fleet.read_only.forwarding.request import Request
from pulsar_fleet.read_only.forwarding.results import State

NAMES = ["Exclusive", "Failover", "Shared", "Key_Shared"]


@pytest.fixture
async def readers(on_alone: AdminClient, new_namespace: Callable[[], NamespaceName]) -> AsyncIterator[Readers]:
    client = open_client(on_alone.connection)
    try:
        yield await make_readers(on_alone, new_namespace().tenant, client)
    finally:
        client.close()


@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
@pytest.mark.parametrize("batch", [1, BATCH])
async def test_a_pass_makes_position_and_holes_equal_and_the_next_sends_nothing(
    readers: Readers, kind: Any, batch: int
) -> None:
    await readers.make_subscription("s", kind)
    await readers.fill(20, batch)
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", kind, 4, [6, 7, 11])
    result = await readers.one("s")
    assert (result.state, result.forwarded, result.waiting, result.identical) == (State.FORWARDED, 7, 0, True)
    assert await readers.equal("s")
    ledger = readers.ids[0].ledger
    holes = f"[({ledger}:5..{ledger}:7],({ledger}:10..{ledger}:11]]"
    assert await readers.cursor(readers.source, "s") == (readers.ids[3], holes)
    assert (await readers.one("s")).forwarded == 0
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", kind, 20)
    assert (await readers.one("s")).identical
    assert (await readers.cursor(readers.source, "s"))[0] == readers.ids[19]


@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
async def test_while_the_owner_is_connected_it_stays_so_and_gets_the_rest(readers: Readers, kind: Any) -> None:
    await readers.make_subscription("s", kind)
    await readers.fill(20, 1)
    owner = await asyncio.to_thread(readers.subscribe, readers.source, "s", kind, 1)
    since = (await readers.admin.stats(readers.source))["subscriptions"]["s"]["consumers"][0]["connectedSince"]
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", kind, 4, [9])
    result = await readers.one("s")
    (consumer,) = (await readers.admin.stats(readers.source))["subscriptions"]["s"]["consumers"]
    assert consumer["connectedSince"] == since
    assert (await readers.cursor(readers.source, "s"))[0] == readers.ids[3]
    if kind == pulsar.ConsumerType.Exclusive:
        assert (result.state, result.waiting) == (State.WAITING, 1)
        assert "the owner's consumer is connected, and the subscription is exclusive" in result.text()
    else:
        assert result.identical
    got = await asyncio.to_thread(drain, owner)
    assert got >= {f"{number}.0" for number in range(4, 20) if number != 9}
    owner.close()
    # What the owner has acknowledged itself is ahead, and stays.
    result = await readers.one("s")
    assert (result.state, result.waiting, result.ahead) == (State.FORWARDED, 0, 15)


def drain(consumer: pulsar.Consumer) -> set[str]:
    got: set[str] = set()
    try:
        while True:
            message = consumer.receive(timeout_millis=1500)
            got.add(message.data().decode())
            consumer.acknowledge(message)
    except pulsar.Timeout:
        return got


@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
async def test_an_owner_that_is_further_is_never_moved_back_and_keeps_its_holes(readers: Readers, kind: Any) -> None:
    await readers.make_subscription("s", kind)
    await readers.fill(20)
    await asyncio.to_thread(readers.acknowledge, readers.source, "s", kind, 6, [12, 15])
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", kind, 4, [7, 12, 18])
    result = await readers.one("s")
    assert (result.state, result.forwarded, result.ahead) == (State.FORWARDED, 2, 3)
    position, holes = await readers.cursor(readers.source, "s")
    ledger = readers.ids[0].ledger
    assert position == readers.ids[5]
    assert holes == "[" + ",".join(f"({ledger}:{n - 1}..{ledger}:{n}]" for n in (7, 12, 15, 18)) + "]"
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", kind, 10)
    await readers.one("s")
    position, holes = await readers.cursor(readers.source, "s")
    assert position == readers.ids[9]
    assert holes == "[" + ",".join(f"({ledger}:{n - 1}..{ledger}:{n}]" for n in (12, 15, 18)) + "]"


@pytest.mark.long
async def test_a_batch_counts_as_acknowledged_when_all_of_its_messages_are(readers: Readers) -> None:
    await readers.make_subscription("s")
    await readers.fill(3)
    consumer = await asyncio.to_thread(readers.subscribe, readers.shadow, "s", pulsar.ConsumerType.Shared)
    for _ in range(BATCH + 1):
        consumer.acknowledge(await asyncio.to_thread(consumer.receive, 5000))
    await asyncio.sleep(0.5)
    await readers.one("s")
    assert (await readers.cursor(readers.source, "s"))[0] == readers.ids[0]
    for _ in range(BATCH - 1):
        consumer.acknowledge(await asyncio.to_thread(consumer.receive, 5000))
    await asyncio.sleep(0.5)
    await readers.one("s")
    assert (await readers.cursor(readers.source, "s"))[0] == readers.ids[1]


async def test_a_new_subscription_at_the_end_acknowledges_nothing_for_its_owner(readers: Readers) -> None:
    await readers.fill(10)
    await readers.admin.create_subscription(readers.source, "s")
    await readers.admin.create_subscription(readers.shadow, "s", "latest")
    before = await readers.cursor(readers.source, "s")
    result = await readers.one("s")
    assert (result.state, result.forwarded, result.waiting) == (State.POSITION_NOT_CONFIRMED, 0, 10)
    assert await readers.cursor(readers.source, "s") == before
    assert (await readers.one("s", accept_positions=["s"])).identical
    # One that is deleted and recreated starts over: what was accepted is not valid for it.
    await readers.fill(5)
    await readers.admin.delete_subscription(readers.shadow, "s")
    await readers.admin.create_subscription(readers.shadow, "s", "latest")
    assert (await readers.one("s")).state is State.POSITION_NOT_CONFIRMED


async def test_a_missing_subscription_is_reported_and_created_only_if_asked(readers: Readers) -> None:
    await readers.fill(10)
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", pulsar.ConsumerType.Shared, 4, [6])
    result = await readers.one("s")
    assert (result.state, result.owner_position) == (State.OWNER_MISSING, "")
    assert "s" not in (await readers.admin.internal_stats(readers.source))["cursors"]
    await readers.admin.put(f"{readers.shadow.subscription_path('s')}/properties", {"selector": "a = 1"})
    assert (await readers.one("s", create_missing=True)).identical
    assert await readers.equal("s")
    created = (await readers.admin.stats(readers.source))["subscriptions"]["s"]
    assert created["subscriptionProperties"] == {"selector": "a = 1"}


async def test_other_properties_of_a_subscription_stay(readers: Readers) -> None:
    await readers.make_subscription("s")
    path = f"{readers.shadow.subscription_path('s')}/properties"
    await readers.admin.put(path, {"team": "a"})
    await readers.forward()
    properties = (await readers.admin.stats(readers.shadow))["subscriptions"]["s"]["subscriptionProperties"]
    assert properties["team"] == "a"
    assert FORWARDED_SINCE in properties


@pytest.mark.long
async def test_acknowledgments_over_several_ledgers_and_loads_are_forwarded(readers: Readers) -> None:
    await readers.make_subscription("s")
    chance = random.Random(7)
    for round_ in range(5):
        await asyncio.to_thread(readers.publish, 8)
        holes = chance.sample(range(len(readers.ids)), 6)
        await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", pulsar.ConsumerType.Shared, round_, holes)
        await asyncio.sleep(0.3)
        result = await readers.one("s")
        assert (result.state, result.ahead) == (State.FORWARDED, 0), result.text()
        await readers.admin.put(f"/{(readers.source, readers.shadow)[round_ % 2].path}/unload")
    assert await readers.equal("s")


@pytest.mark.long
async def test_partitions_are_forwarded_each(
    on_alone: AdminClient, new_namespace: Callable[[], NamespaceName], readers: Readers
) -> None:
    parts = await make_readers(on_alone, new_namespace().tenant, readers.client, 3)
    await parts.make_subscription("s")
    traffic = Traffic(parts, keyed=True)
    application = await asyncio.to_thread(Application, parts, "s", TYPES[2], cumulative=False)
    await asyncio.sleep(2)
    await asyncio.to_thread(traffic.close)
    await asyncio.sleep(1)
    await asyncio.to_thread(application.close)
    await Watched(parts, [application]).settle()
    # A pass that reads a topic before its last acknowledgment is stored leaves that to the next one.
    async with asyncio.timeout(30):
        while (result := await parts.forward()).identical < 3:
            await asyncio.sleep(0.2)
    assert (len(result.subscriptions), result.problems) == (3, ())
    owner = await parts.acknowledged(parts.source, "s")
    # A shadow topic drops acknowledgments of entries that it has not learned of yet.
    assert owner == await parts.acknowledged(parts.shadow, "s")
    assert set() < owner <= application.acknowledged()
    await on_alone.post(f"/{parts.source.path}/partitions", 4, createLocalTopicOnly=True)
    assert "it has 3 partitions and" in (await parts.forward()).problems[0]


async def test_a_refused_call_is_reported_and_the_others_are_made(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        await readers.make_subscription(name)
    await readers.fill(5)
    for name in ("a", "b"):
        await asyncio.to_thread(readers.acknowledge, readers.shadow, name, TYPES[2], 3)
    post = readers.admin.post

    async def refuse(path: str, *args: Any, **params: Any) -> None:
        if "/a/" in path:
            raise PermissionDenied("not allowed")
        await post(path, *args, **params)

    monkeypatch.setattr(readers.admin, "post", refuse)
    refused, forwarded = (await readers.forward()).subscriptions
    assert (refused.state, refused.waiting, refused.reason) == (State.REFUSED, 3, "not allowed")
    assert forwarded.identical


async def test_a_subscription_that_cannot_be_created_holds_up_no_other(readers: Readers) -> None:
    limit = f"/namespaces/{readers.source.namespace.path}/maxSubscriptionsPerTopic"
    await readers.make_subscription("z")
    await readers.fill(5)
    for name in ("new", "z"):
        await asyncio.to_thread(readers.acknowledge, readers.shadow, name, TYPES[2], 3)
    await readers.admin.post(limit, 1)
    refused, forwarded = (await readers.forward(create_missing=True)).subscriptions
    assert (refused.state, refused.owner_position) == (State.REFUSED, "")
    assert "Exceed the maximum number of subscriptions" in refused.reason
    assert forwarded.identical
    # Where the owner creates it itself, its position counts.
    assert FORWARDED_SINCE not in (await _properties(readers, "new"))
    said: list[str] = []
    async with _service(readers, said, create_missing=True):
        await becomes(partial(_is_said, said, "new: refused"), True)
        await readers.admin.post(limit, 2)
        await becomes(partial(_is_equal, readers, "new"), True)


async def test_a_subscription_created_meanwhile_counts_as_the_owners(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await readers.fill(5)
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", TYPES[2], 3)
    create = readers.admin.create_subscription

    async def create_after_owner(topic: TopicName, name: str, *args: Any) -> None:
        await create(topic, name, "earliest")
        await create(topic, name, *args)

    monkeypatch.setattr(readers.admin, "create_subscription", create_after_owner)
    result = await readers.one("s", create_missing=True)
    assert (result.state, "409" in result.reason) == (State.WAITING, True)
    assert (await readers.one("s")).state is State.POSITION_NOT_CONFIRMED
    assert await readers.acknowledged(readers.source, "s") == set()


@pytest.mark.parametrize("error", [PermissionDenied, InvalidRequest, Conflict, NotFound])
async def test_a_topic_that_cannot_be_read_holds_up_no_other(
    on_alone: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    monkeypatch: pytest.MonkeyPatch,
    error: type[FleetError],
) -> None:
    with closing(open_client(on_alone.connection)) as client:
        parts = await make_readers(on_alone, new_namespace().tenant, client, partitions=2)
        await parts.make_subscription("s")
        read = on_alone.internal_stats

        async def refuse(topic: TopicName) -> Any:
            if topic == parts.shadow.partition(0):
                raise error("the broker refuses")
            return await read(topic)

        monkeypatch.setattr(on_alone, "internal_stats", refuse)
        result = await parts.forward()
    assert [row.topic for row in result.subscriptions] == [str(parts.shadow.partition(1))]
    assert result.problems == (f"{parts.shadow.partition(0)} is not forwarded: the broker refuses",)


@pytest.mark.parametrize("topics", ["", "source", "shadow"])
async def test_policies_that_cannot_be_read_are_a_problem_of_their_topic(
    readers: Readers, monkeypatch: pytest.MonkeyPatch, topics: str
) -> None:
    get = readers.admin.get

    async def refuse(path: str, **params: Any) -> Any:
        if path.endswith("/messageTTL"):
            raise PermissionDenied("not allowed")
        return await get(path, **params)

    monkeypatch.setattr(readers.admin, "get", refuse)
    named = {"topics": [str(getattr(readers, topics))]} if topics else {}
    result = await readers.forward(**named)
    assert (result.subscriptions, result.problems) == ((), (f"{readers.shadow} is not forwarded: not allowed",))


async def test_a_refused_list_of_topics_does_not_end_the_service(
    readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await readers.make_subscription("s")
    await readers.fill(5)
    topics, refusals, said = readers.admin.topics, [PermissionDenied("not allowed")], list[str]()

    async def refuse(namespace: NamespaceName) -> Any:
        if said and refusals:
            raise refusals.pop()
        return await topics(namespace)

    monkeypatch.setattr(readers.admin, "topics", refuse)
    monkeypatch.setattr(forwarding, "LIST_SECONDS", 0)
    monkeypatch.setattr(forwarding, "OUTAGE_SECONDS", 0.1)
    async with _service(readers, said):
        await becomes(partial(_is_said, said, "refuses a call, its acknowledgments wait: not allowed"), True)
        await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", TYPES[2], 3)
        await becomes(partial(_is_equal, readers, "s"), True)


@asynccontextmanager
async def _service(readers: Readers, said: list[str], **settings: Any) -> AsyncIterator[None]:
    """A forwarder that runs until the end of the block, and fails there if it ended before."""
    request = Request.of({"namespace": str(readers.shadow.namespace), "poll_seconds": 0.1, **settings})
    stopped = asyncio.Event()
    service = asyncio.create_task(
        forwarding.forward_until_stopped(readers.admin, request, stopped=stopped, say=said.append)
    )
    try:
        yield
    finally:
        stopped.set()
        await service


async def _is_said(said: list[str], text: str) -> bool:
    return any(text in line for line in said)


async def _is_equal(readers: Readers, name: str) -> bool:
    internal = await readers.admin.internal_stats(readers.source)
    return name in internal["cursors"] and await readers.equal(name)


async def _properties(readers: Readers, name: str) -> dict[str, str]:
    stats = await readers.admin.stats(readers.shadow)
    return dict(stats["subscriptions"][name].get("subscriptionProperties") or {})


async def test_only_named_topics_are_forwarded_and_a_wrong_name_is_reported(readers: Readers) -> None:
    for name in ("a", "b"):
        await readers.make_subscription(name)
    names = [str(readers.source), f"{readers.source}-of-nobody"]
    result = await readers.forward(topics=names, subscriptions=["b"])
    assert [row.subscription for row in result.subscriptions] == ["b"]
    assert "is neither a shadow topic of" in result.problems[0]
    assert (await readers.forward(topics=[str(readers.shadow)])).problems == ()


@pytest.mark.long
async def test_the_command_forwards_until_it_is_interrupted_and_says_what_it_did(
    readers: Readers, records: Path
) -> None:
    await readers.make_subscription("s")
    await readers.fill(5)
    await asyncio.to_thread(readers.acknowledge, readers.shadow, "s", TYPES[2], 2, [3])
    with forwarder(readers.admin.connection, readers, records) as process:
        async with asyncio.timeout(30):
            while not await readers.equal("s"):
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 20) == 0
    (log,) = records.glob("forwarder-*.log")
    assert "3 entries forwarded, 0 not yet, 1 of 1 subscription on 1 shadow topic identical" in log.read_text()


@pytest.mark.long
async def test_a_single_pass_exits_with_5_if_a_position_is_not_confirmed(readers: Readers, records: Path) -> None:
    await readers.fill(5)
    await readers.admin.create_subscription(readers.source, "s")
    await readers.admin.create_subscription(readers.shadow, "s", "latest")
    shell = Shell.between(records, readers.admin.connection, readers.admin.connection)
    words = ("forward-acknowledgments", shell.sides[0], "--namespace", readers.shadow.namespace, "--once", "--json")
    refused = await asyncio.to_thread(shell.run, *words)
    assert refused.state == 4
    completed = await asyncio.to_thread(shell.run, *words, "--yes")
    assert (completed.state, completed.document["subscriptions"][0]["state"]) == (5, "position-not-confirmed")
    done = await asyncio.to_thread(shell.run, *words, "--yes", "--accept-positions", "s")
    assert (done.state, done.document["subscriptions"][0]["waiting"]) == (0, 0)
    assert await readers.equal("s")


async def test_where_messages_expire_nothing_is_forwarded(readers: Readers) -> None:
    await readers.make_subscription("s")
    await readers.admin.post(f"/namespaces/{readers.shadow.namespace.path}/messageTTL", 60)
    result = await readers.forward()
    assert result.subscriptions == ()
    assert "messages expire there after 60 s" in result.problems[0]
    await readers.admin.delete(f"/namespaces/{readers.shadow.namespace.path}/messageTTL")
    before = await readers.admin.namespace(readers.shadow.namespace)
    assert (await readers.forward()).problems == ()
    assert await readers.admin.namespace(readers.shadow.namespace) == before
    await readers.admin.post(f"/{readers.shadow.path}/messageTTL", messageTTL=70, isGlobal=True)
    await becomes(partial(readers.admin.get, f"/{readers.shadow.path}/messageTTL", isGlobal=True), 70)
    assert "messages expire there after 70 s" in (await readers.forward()).problems[0]
    await readers.admin.delete(f"/{readers.shadow.path}/messageTTL", isGlobal=True)
    await becomes(partial(readers.admin.get, f"/{readers.shadow.path}/messageTTL", isGlobal=True), None)
    quota = {"policy": "consumer_backlog_eviction", "limitSize": 1000}
    await readers.admin.post(f"/namespaces/{readers.shadow.namespace.path}/backlogQuota", quota)
    assert "backlog quota has the policy" in (await readers.forward()).problems[0]


@pytest.mark.parametrize(("limit", "forwards"), [(-1, True), (1000, False), (None, False)])
async def test_a_quota_of_brokers_that_may_not_be_read_is_unknown(
    readers: Readers, monkeypatch: pytest.MonkeyPatch, limit: int | None, forwards: bool
) -> None:
    await readers.make_subscription("s")
    stats = readers.admin.stats

    async def refuse(_: str) -> Any:
        raise NotAllowed("not a superuser")

    async def limited(topic: TopicName, **params: Any) -> Any:
        return {**await stats(topic, **params), "backlogQuotaLimitSize": limit}

    monkeypatch.setattr(readers.admin, "runtime_configuration", refuse)
    monkeypatch.setattr(readers.admin, "stats", limited)
    result = await readers.forward()
    assert (len(result.subscriptions), len(result.problems)) == ((1, 0) if forwards else (0, 1))
    if not forwards:
        assert "set quotas of the namespace" in result.problems[0]
        for kind in ("destination_storage", "message_age"):
            path = f"/namespaces/{readers.shadow.namespace.path}/backlogQuota"
            quota = {"policy": "producer_request_hold", "limitSize": -1, "limitTime": -1}
            await readers.admin.post(path, quota, backlogQuotaType=kind)
        assert (await readers.forward()).problems == ()


@pytest.mark.long
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.long)])
async def test_a_forwarder_that_is_killed_loses_nothing_and_invents_nothing(
    readers: Readers, records: Path, kills: int
) -> None:
    chance = random.Random(kills)
    names = dict(zip(NAMES, TYPES, strict=True))
    for name, kind in names.items():
        await readers.make_subscription(name, kind)
    applications = [
        await asyncio.to_thread(Application, readers, name, kind, cumulative=name == "Exclusive")
        for name, kind in names.items()
    ]
    traffic, watched = Traffic(readers), Watched(readers, applications)
    try:
        for _ in range(kills):
            with forwarder(readers.admin.connection, readers, records) as process:
                for _ in range(chance.randrange(1, 6)):
                    await watched.compare()
                    await asyncio.sleep(chance.random() / 3)
                process.kill()
            await watched.compare()
    finally:
        await asyncio.to_thread(traffic.close)
        await asyncio.sleep(1)
        for application in applications:
            await asyncio.to_thread(application.close)
    await watched.settle()
    assert watched.forwarded > 200
    await readers.forward()
    for application in applications:
        entries = application.acknowledged()
        assert len(entries) > 50
        assert await readers.acknowledged(readers.source, application.name) == entries
        assert await readers.equal(application.name)
