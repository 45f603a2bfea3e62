"""A namespace as its owners see it: what applications get, what each cluster stores, which links deliver.

Nothing here asks the product: messages are counted by clients, settings are read by plain calls.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pulsar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName

CLUSTERS = ("blue", "green", "c")
APP, PROBE = "app", "probe"
PARTITIONS = 2
_RESTARTS = 3
_QUIET_MS, _ARRIVAL_SECONDS, _OPERATION_SECONDS = 1000, 20.0, 20
_NAMESPACE_NOISE = frozenset({"bundles", "latency_stats_sample_rate", "topicDispatchRate"})
_TOPIC_POLICIES = (
    "retention",
    "messageTTL",
    "maxConsumers",
    "backlogQuotaMap",
    "replication",
    "shadowTopics",
    "permissions",
    "properties",
    "publishRate",
    "inactiveTopicPolicies",
)

Admins = Mapping[str, AdminClient]
Facts = dict[str, Json]
"""Where a cluster stores something, `cluster / what`, and the value."""


@dataclass(frozen=True)
class Link:
    """What is published to a topic on one cluster arrives in a topic of another, or of the same one."""

    source: str
    target: str
    topic: TopicName
    copy: TopicName

    def __str__(self) -> str:
        return f"{self.source} → {self.target}: {self.topic.local}" + (
            f" as {self.copy.namespace.name}/{self.copy.local}" if self.copy != self.topic else ""
        )


@dataclass
class World:
    """A namespace, one application of it, and where that connects.

    :param place: the cluster whose address the application has.
    :param run: the run that made its state, where a command needs one.
    """

    admins: Admins
    namespace: NamespaceName
    place: str = "blue"
    links: set[Link] = field(default_factory=set)
    run: str = ""
    sent: list[str] = field(default_factory=list)
    got: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def orders(self) -> TopicName:
        return TopicName(self.namespace, "orders")

    @property
    def events(self) -> TopicName:
        return TopicName(self.namespace, "events")

    @property
    def topics(self) -> tuple[TopicName, TopicName]:
        return self.orders, self.events

    @property
    def readers(self) -> NamespaceName:
        """Where shadow topics are."""
        return NamespaceName(self.namespace.tenant, "readers")

    async def make(self) -> None:
        """The namespace on blue: policies of its own, two topics, a subscription that has read some of its messages."""
        blue, path = self.admins["blue"], f"/namespaces/{self.namespace.path}"
        await blue.put(f"/tenants/{self.namespace.tenant}", {"adminRoles": ["owner"], "allowedClusters": ["blue"]})
        await blue.put_namespace(self.namespace, {"replication_clusters": ["blue"]})
        await blue.post(f"{path}/messageTTL", 86_400)
        await blue.post(f"{path}/permissions/orders-app", ["produce", "consume"])
        await blue.post(f"{path}/permissions/auditor", ["consume"])
        await blue.create_topic(self.orders)
        await blue.create_partitioned_topic(self.events, PARTITIONS)
        await blue.post(f"/{self.orders.path}/maxConsumers", 50)
        for topic in self.topics:
            await blue.create_subscription(topic, APP)

    def use(self, publish: int = 20, acknowledge: int | None = 8) -> None:
        """The application publishes to each topic, and acknowledges so many messages of each, or all."""
        client = open_client(self.admins[self.place].connection, _OPERATION_SECONDS)
        try:
            for topic in self.topics:
                producer = client.create_producer(str(topic))
                for _ in range(publish):
                    self._send(producer, topic)
                consumer = _subscribe(client, topic, 1 if acknowledge is not None else 1000)
                self._receive(consumer, acknowledge)
                # It sends the acknowledgments that it still groups.
                consumer.close()
        finally:
            client.close()

    def _send(self, producer: pulsar.Producer, topic: TopicName) -> None:
        # A text is used once, also where it is not known whether the broker stored it.
        text = f"{topic.local}-{next(self._numbers)}"
        producer.send(text.encode())
        self.sent.append(text)

    def _receive(self, consumer: pulsar.Consumer, count: int | None) -> None:
        for _ in range(count) if count is not None else iter(int, 1):
            try:
                message = consumer.receive(int(_ARRIVAL_SECONDS * 1000) if count is not None else _QUIET_MS)
            except pulsar.Timeout:
                return
            consumer.acknowledge(message)
            self._note(message)

    def _note(self, message: pulsar.Message) -> None:
        if not (text := message.data().decode()).startswith(PROBE):
            self.got[text] += 1

    def finish(self, expected: int = 0) -> list[str]:
        """What was lost, or came twice unexpectedly, after the application restarted with its address and took all."""
        try:
            self.use(publish=3, acknowledge=None)
            end = time.monotonic() + _ARRIVAL_SECONDS
            while set(self.sent) - set(self.got) and time.monotonic() < end:
                self.use(publish=0, acknowledge=None)
        except pulsar.PulsarException as error:
            return [f"the application cannot use {self.place}: {error}"]
        lost, twice = set(self.sent) - set(self.got), [text for text, count in self.got.items() if count > 1]
        return [
            *([f"{len(lost)} of {len(self.sent)} messages are lost, first {min(lost)}"] if lost else ()),
            *(
                [f"{len(twice)} of {len(self.sent)} messages came twice, first {min(twice)}"]
                if len(twice) > expected
                else ()
            ),
        ]

    def live(self) -> Live:
        return Live(self)

    async def facts(self) -> Facts:
        """All settings, rights, lists and names of subscriptions of the tenant, on all clusters."""
        found = await asyncio.gather(
            *(_facts(name, admin, self.namespace.tenant) for name, admin in self.admins.items())
        )
        return {key: value for facts in found for key, value in facts.items()}

    async def broken(self, links: Iterable[Link], count: int = 3) -> list[Link]:
        """Those of the links that do not deliver what is published now."""
        tested = sorted(links, key=str)
        works = await asyncio.gather(*(self._delivers(link, count) for link in tested))
        for number, link in enumerate(tested):
            for _ in range(_RESTARTS if link.source == link.target else 0):
                if works[number]:
                    break
                # Beside replicators such a link may stop; watch_read_only does this: docs/serve_read_only.md.
                with suppress(FleetError):
                    await self.admins[link.source].put(f"/{link.topic.path}/unload")
                works[number] = await self._delivers(link, count)
        return [link for link, delivered in zip(tested, works, strict=True) if not delivered]

    async def _delivers(self, link: Link, count: int) -> bool:
        target = self.admins[link.target]
        name = f"{PROBE}-{link.source}-{time.monotonic_ns()}"
        try:
            if link.copy not in {topic.parent for topic in await target.topics(link.copy.namespace)}:
                return False
            await target.create_subscription(link.copy, name, "latest")
            return await asyncio.to_thread(self._exchange, link, name, count)
        except (FleetError, pulsar.PulsarException):
            return False
        finally:
            with suppress(FleetError):
                await target.delete_subscription(link.copy, name, force=True)

    def _exchange(self, link: Link, name: str, count: int) -> bool:
        source = open_client(self.admins[link.source].connection, _OPERATION_SECONDS)
        target = open_client(self.admins[link.target].connection, _OPERATION_SECONDS)
        try:
            consumer = target.subscribe(str(link.copy), name, consumer_type=pulsar.ConsumerType.Shared)
            producer = source.create_producer(str(link.topic))
            texts = {f"{name}-{number}" for number in range(count)}
            for text in texts:
                producer.send(text.encode())
            end = time.monotonic() + _ARRIVAL_SECONDS
            while texts and time.monotonic() < end:
                with suppress(pulsar.Timeout):
                    message = consumer.receive(_QUIET_MS)
                    texts.discard(message.data().decode())
                    consumer.acknowledge(message)
            return not texts
        finally:
            source.close()
            target.close()


class Live:
    """The application at work while a procedure runs: it publishes ten messages a second and acknowledges all."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, topic), daemon=True)
            for topic in world.topics
            for work in (self._publish, self._consume)
        ]

    def __enter__(self) -> Live:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)

    def _guarded(self, work: Callable[[pulsar.Client, TopicName], None], topic: TopicName) -> None:
        connection = self._world.admins[self._world.place].connection
        while not self._stopping.is_set():
            client = open_client(connection, _OPERATION_SECONDS)
            try:
                work(client, topic)
            except pulsar.PulsarException:
                # An application that is restarted: its next message has a text of its own.
                time.sleep(0.5)
            finally:
                client.close()

    def _publish(self, client: pulsar.Client, topic: TopicName) -> None:
        producer = client.create_producer(str(topic))
        while not self._stopping.is_set():
            self._world._send(producer, topic)
            time.sleep(0.1)

    def _consume(self, client: pulsar.Client, topic: TopicName) -> None:
        consumer = _subscribe(client, topic, 1000)
        while not self._stopping.is_set():
            with suppress(pulsar.Timeout):
                message = consumer.receive(200)
                consumer.acknowledge(message)
                self._world._note(message)
        # Acknowledgments are sent in groups: closing at once would send the last ones again.
        time.sleep(0.3)
        consumer.close()


def _subscribe(client: pulsar.Client, topic: TopicName, queue: int) -> pulsar.Consumer:
    return client.subscribe(
        str(topic),
        APP,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=queue,
    )


async def _facts(cluster: str, admin: AdminClient, tenant: str) -> Facts:
    facts: Facts = {}
    if (document := await admin.tenant(tenant)) is None:
        return facts
    facts[f"{cluster} tenant"] = _ordered(document)
    for name in await admin.namespaces(tenant):
        policies = await admin.namespace(name) or {}
        for key, value in policies.items():
            if key not in _NAMESPACE_NOISE and value not in (None, {}, []):
                facts[f"{cluster} {name.name}: {key}"] = _ordered(value)
        topics = {topic.parent for topic in await admin.topics(name) if not topic.local.startswith("__change_events")}
        for topic, read in zip(
            sorted(topics, key=str),
            await asyncio.gather(*(_topic(admin, topic) for topic in sorted(topics, key=str))),
            strict=True,
        ):
            facts[f"{cluster} {name.name}/{topic.local}"] = True
            facts |= {f"{cluster} {name.name}/{topic.local}: {key}": value for key, value in read.items()}
    return facts


async def _topic(admin: AdminClient, topic: TopicName) -> Facts:
    """The topic's own policies, and its subscriptions, where the cluster lets them be read."""
    facts: Facts = {}
    for policy in _TOPIC_POLICIES:
        with suppress(FleetError):
            if (value := await admin.get(f"/{topic.path}/{policy}")) not in (None, {}, []):
                facts[policy] = _ordered(value)
    with suppress(FleetError):
        names = await admin.get(f"/{topic.path}/subscriptions") or ()
        facts["subscriptions"] = sorted(name for name in names if not str(name).startswith((PROBE, "pulsar.repl.")))
    return facts


def _ordered(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _ordered(one) for key, one in sorted(value.items())}
    return sorted(value, key=str) if isinstance(value, Sequence) and not isinstance(value, str) else value


def changed(before: Facts, after: Facts, allowed: Sequence[str] = ()) -> list[str]:
    """What differs, except where a pattern allows it."""
    return [
        f"{key}: {before.get(key)} → {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and not any(re.fullmatch(pattern, key) for pattern in allowed)
    ]


def changed_lists(before: Facts, after: Facts) -> list[str]:
    """The lists of clusters on green that differ, of namespaces and topics that it had before."""
    lists = re.compile(r"green (\S+): (replication_clusters|replication)")
    kept = {key: value for key, value in before.items() if lists.fullmatch(key)}
    now = {
        key: value
        for key, value in after.items()
        if (found := lists.fullmatch(key)) and (f"green {found[1]}" in before or key in before)
    }
    return changed(kept, now)
