"""No change that the linter leaves unmarked makes a topic or a message vanish on a real broker.

Pairs of states are generated. The target's state is made three times on a broker that enforces its policies every other
second: one copy is left alone, one gets the unmarked changes of the plan, one gets all. What the first still holds at
the end, the second must hold; the third shows that the broker does take messages away, so that the test can fail.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pulsar
import pytest
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_policy_calls
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TopicPolicyState, TopicState

REDACTOR = Redactor(b"a key of the tests")
EXAMPLES = int(os.environ.get("PULSAR_FLEET_FUZZ_EXAMPLES", "4"))
SEED = int(os.environ.get("PULSAR_FLEET_FUZZ_SEED", "1"))
# Brokers look for expired messages and subscriptions once a minute at best, so that takes more than 60 seconds.
SECONDS = float(os.environ.get("PULSAR_FLEET_FUZZ_SECONDS", "6"))
EXPIRY_MINUTES = "1" if SECONDS > 60 else "60"
TWO_CHECKS = 6.0
TENANT = "fuzz"
Done = TypeVar("Done")
MESSAGES = 12
COPIES = ("control", "unmarked", "allowed")
ALLOWED_EVERY = 4
ONE_BUNDLE = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
EAGER = {
    "retentionCheckIntervalInSeconds": "2",
    "backlogQuotaCheckIntervalInSeconds": "2",
    "brokerDeleteInactiveTopicsFrequencySeconds": "2",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "3",
    "messageExpiryCheckIntervalInMinutes": EXPIRY_MINUTES,
    "subscriptionExpiryCheckIntervalInMinutes": EXPIRY_MINUTES,
    "managedLedgerMaxEntriesPerLedger": "3",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "defaultRetentionTimeInMinutes": "10",
    "defaultRetentionSizeInMB": "10",
    "ttlDurationDefaultInSeconds": "3600",
    "subscriptionExpirationTimeMinutes": "1",
}
# Read by a subscription to its end, waited for by one, wanted by nobody.
TOPICS = ("read", "waiting", "unused")


@dataclass(frozen=True, slots=True)
class State:
    """What one side of a pair holds: a namespace's policies, and each topic's by scope."""

    policies: JsonObject
    topics: dict[tuple[str, str], JsonObject]
    partitions: int


@dataclass(frozen=True, slots=True)
class Stored:
    """What a topic holds: entries, and entries that each subscription has still to read; absent is empty."""

    entries: int
    backlog: dict[str, int]


KEEPS, LOSES = (
    State({"backlog_quota_map": {"destination_storage": {"limitSize": size, "limitTime": -1, "policy": policy}}}, {}, 0)
    for size, policy in ((1_000_000, "producer_exception"), (200, "consumer_backlog_eviction"))
)


def state(dice: random.Random, shortest_ttl: int) -> State:
    topics = {
        (topic, scope): _document(dice, _TOPIC_NAMES, 0.35, shortest_ttl)
        for topic in TOPICS
        for scope in ("local", "global")
        if dice.random() < 0.5
    }
    return State(_document(dice, _NAMESPACE_NAMES, 0.7, shortest_ttl), topics, dice.choice([0, 0, 2]))


def _document(dice: random.Random, names: dict[str, str], chance: float, shortest_ttl: int) -> JsonObject:
    chosen = {name: kind for name, kind in names.items() if dice.random() < chance}
    return {name: value for name, kind in chosen.items() if (value := _value(dice, kind, shortest_ttl)) is not None}


def _value(dice: random.Random, kind: str, shortest_ttl: int) -> Json:
    match kind:
        case "retention":
            minutes, megabytes = dice.choice([(-1, -1), (-1, 1), (10, -1), (10, 10), (0, 0)])
            return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
        case "seconds":
            return dice.choice([0, shortest_ttl, 3600])
        case "minutes":
            return dice.choice([0, 1, 600])
        case "inactive":
            return {
                "inactiveTopicDeleteMode": dice.choice(
                    ["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
                ),
                "maxInactiveDurationSeconds": dice.choice([1, 3600]),
                "deleteWhileInactive": dice.random() < 0.5,
            }
        case "quotas":
            policy = dice.choice(["consumer_backlog_eviction", "producer_exception", "producer_request_hold"])
            size = dice.choice([200, 1_000_000])
            return {"destination_storage": {"limitSize": size, "limitTime": -1, "policy": policy}}
        case "flag":
            return dice.random() < 0.5
    return dice.choice([3, 50])


_NAMESPACE_NAMES = {
    "retention_policies": "retention",
    "message_ttl_in_seconds": "seconds",
    "subscription_expiration_time_minutes": "minutes",
    "inactive_topic_policies": "inactive",
    "backlog_quota_map": "quotas",
    "deduplicationEnabled": "flag",
    "compaction_threshold": "number",
    "max_producers_per_topic": "number",
    "max_subscriptions_per_topic": "number",
}
_TOPIC_NAMES = {
    "retentionPolicies": "retention",
    "messageTTLInSeconds": "seconds",
    "subscriptionExpirationTimeInMinutes": "minutes",
    "inactiveTopicPolicies": "inactive",
    "backLogQuotaMap": "quotas",
    "deduplicationEnabled": "flag",
    "compactionThreshold": "number",
    "maxProducerPerTopic": "number",
}


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[ClusterConnection]:
    """A cluster of its own whose broker looks at its policies all the time."""
    folder = tmp_path_factory.mktemp("eager")
    with start_clusters(folder, clusters=("green",), settings={"green": EAGER}) as sandbox:
        green = sandbox["green"]
        yield ClusterConnection(name="green", admin_url=green.admin_url, service_url=green.service_url)


async def make(admin: AdminClient, client: pulsar.Client, namespace: NamespaceName, source_state: State) -> None:
    """The target's state: first the messages, then the policies, of which some take messages away."""
    await admin.put_namespace(namespace, {"replication_clusters": ["green"], "bundles": ONE_BUNDLE})
    for local in TOPICS:
        topic = TopicName(namespace, local)
        if source_state.partitions:
            await admin.create_partitioned_topic(topic, source_state.partitions)
        else:
            await admin.create_topic(topic)
        if local != "unused":
            await admin.create_subscription(topic, "all")
        await asyncio.to_thread(fill, client, topic)
        for part in topic.partitions(source_state.partitions) if local == "read" else ():
            await admin.post(f"{part.subscription_path('all')}/skip_all")
    calls: list[Call] = []
    for (local, scope), policies in source_state.topics.items():
        for field, value in policies.items():
            topic = TopicName(namespace, local)
            calls += topic_policy_calls(TOPIC_BY_FIELD[field], topic, Scope(scope), None, value)
    for field in sorted(source_state.policies, key=list(BY_FIELD).index):
        calls += policy_calls(BY_FIELD[field], namespace, None, source_state.policies[field])
    for call in calls:
        # Values that the broker does not take together are not in the state.
        with suppress(InvalidRequest, NotFound):
            await admin.send(call)


def fill(client: pulsar.Client, topic: TopicName) -> None:
    producer = client.create_producer(str(topic), batching_enabled=False)
    for number in range(MESSAGES):
        producer.send_async(b"x" * 100, lambda _result, _id: None, partition_key=str(number))
    producer.flush()
    producer.close()


async def load(admin: AdminClient, namespace: NamespaceName) -> dict[str, Stored]:
    """What every topic and partition of the namespace holds."""
    by_topic = {}
    for topic in await admin.topics(namespace):
        with suppress(NotFound, Unavailable):
            stats = await admin.internal_stats(topic)
            read = {name: cursor["messagesConsumedCounter"] for name, cursor in stats["cursors"].items()}
            # Where compaction stands is the broker's own affair.
            backlog = {name: stats["entriesAddedCounter"] - count for name, count in read.items() if name[:2] != "__"}
            by_topic[topic.local] = Stored(stats["numberOfEntries"], backlog)
    return by_topic


@dataclass(frozen=True)
class Example:
    """A pair of states, and the copies of the target's state."""

    source: State
    target: State
    names: dict[str, NamespaceName]

    async def prepare(self, admin: AdminClient, client: pulsar.Client) -> None:
        """Make the copies; that which is left alone is the oldest, so whatever depends on age meets it first."""
        for name in self.names.values():
            await make(admin, client, name, self.target)
            # A ledger that is closed can be trimmed.
            await admin.put(f"/namespaces/{name.path}/unload")
            await load(admin, name)

    def topics(self, copy: str) -> tuple[TopicState, ...]:
        """The source's topics: of the target's shape, or with more partitions."""
        partitions = self.target.partitions and self.target.partitions + self.source.partitions
        return tuple(TopicState(str(TopicName(self.names[copy], local)), partitions, {}) for local in TOPICS)

    def topic_policies(self, copy: str) -> tuple[TopicPolicyState, ...]:
        """The source's policies of topics."""
        return tuple(
            TopicPolicyState(str(TopicName(self.names[copy], local)), scope, document, 0)
            for (local, scope), document in self.source.topics.items()
        )


def example(number: int) -> Example:
    """Drawn, but for the first: where that is allowed it loses messages for sure, so the fuzz is seen to see losses."""
    dice = random.Random(f"{SEED}/{number}")
    copies = COPIES if number % ALLOWED_EVERY == 0 else COPIES[:2]
    if number == 0:
        return Example(LOSES, KEEPS, {copy: NamespaceName(TENANT, f"{copy}-0") for copy in copies})
    # What has outlived its time expires when any policy is changed: the target's own time to live must not do that.
    return Example(
        state(dice, 1), state(dice, 3600), {copy: NamespaceName(TENANT, f"{copy}-{number}") for copy in copies}
    )


def source_of(examples: list[Example], copy: str) -> Snapshot:
    """The sources of all pairs, in one snapshot."""
    chosen = [case for case in examples if copy in case.names]
    documents = ((case.names[copy], {"replication_clusters": ["source"], **case.source.policies}) for case in chosen)
    return Snapshot(
        cluster="source",
        began="",
        ended="",
        key_id=REDACTOR.key_id,
        namespaces=tuple(NamespaceState(str(name), document) for name, document in documents),
        topics=tuple(topic for case in chosen for topic in case.topics(copy)),
        topic_policies=tuple(policy for case in chosen for policy in case.topic_policies(copy)),
    )


async def change(admin: AdminClient, examples: list[Example], target: Snapshot, copy: str) -> dict[str, list[str]]:
    """Apply the plan to one copy of each example; by namespace, what was changed."""
    plan = plan_changes(source_of(examples, copy), target)
    ids = [planned.id for planned in plan.needing_permission()] if copy == "allowed" else []
    applied = await apply_plan(plan, admin, Ledger.open(), copy, redactor=REDACTOR, allow=ids)
    by_namespace: dict[str, list[str]] = {}
    for change in (result.change for result in applied.results if result.outcome is Outcome.APPLIED):
        by_namespace.setdefault(str(change.namespace), []).append(f"{change.label}: {change.before} → {change.after}")
    return by_namespace


def lost(before: dict[str, Stored], control: dict[str, Stored], after: dict[str, Stored]) -> list[str]:
    """What a copy had when it was changed and lacks now, although the copy that was left alone still has it."""
    losses = []
    for name in before.keys() & control.keys():
        kept = after.get(name, Stored(0, {}))
        entries = min(before[name].entries, control[name].entries)
        if kept.entries < entries:
            losses.append(f"{name}: {kept.entries} of {entries} entries")
        for subscription in before[name].backlog.keys() & control[name].backlog.keys():
            unread = min(before[name].backlog[subscription], control[name].backlog[subscription])
            if kept.backlog.get(subscription, 0) < unread:
                losses.append(f"{name} {subscription}: {kept.backlog.get(subscription, 0)} of {unread} unread")
    return losses


@pytest.mark.full
@pytest.mark.long
async def test_what_is_not_marked_makes_no_topic_and_no_message_vanish(eager: ClusterConnection, records: Path) -> None:
    examples = [example(number) for number in range(EXAMPLES)]
    names = [name for case in examples for name in case.names.values()]
    async with AdminClient(eager, retry_seconds=2) as admin:
        await admin.put(f"/tenants/{TENANT}", {"adminRoles": [], "allowedClusters": ["green"]})
        client = pulsar.Client(eager.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            await side_by_side([partial(case.prepare, admin, client) for case in examples])
        finally:
            client.close()
        # What the target's own policies take away is gone then.
        await asyncio.sleep(TWO_CHECKS)
        before = dict(zip(names, await side_by_side([partial(load, admin, name) for name in names]), strict=True))
        target = await collect(admin, Selection(tenants=frozenset({TENANT})), redactor=REDACTOR)
        changed = await change(admin, examples, target, "unmarked") | await change(admin, examples, target, "allowed")
        await asyncio.sleep(SECONDS)
        # A busy broker checks late.
        for _ in range(10):
            loaded = await load(admin, examples[0].names["allowed"])
            if loaded["waiting"].backlog["all"] < MESSAGES:
                break
            await asyncio.sleep(2)
        after = dict(zip(names, await side_by_side([partial(load, admin, name) for name in names]), strict=True))
    vanished: dict[str, list[str]] = {copy: [] for copy in COPIES}
    for case in examples:
        for copy, name in case.names.items():
            losses = lost(before[name], after[case.names["control"]], after[name])
            vanished[copy] += [f"{name} {loss}, after {changed.get(str(name))}" for loss in losses]
    assert vanished["unmarked"] == [], "\n".join(vanished["unmarked"])
    assert any("waiting all:" in loss for loss in vanished["allowed"])


async def side_by_side(works: Sequence[Callable[[], Awaitable[Done]]]) -> list[Done]:
    slots = asyncio.Semaphore(8)

    async def bounded(work: Callable[[], Awaitable[Done]]) -> Done:
        async with slots:
            return await work()

    return await asyncio.gather(*(bounded(work) for work in works))
