"""Three clusters that people edit at once under events, while followers die, one cluster is away and one joins."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from tests.support.event_exchange import Exchange
from tests.support.kinds import StartClusters
from tests.support.partitioned_topics import partitions, properties, record, schemas
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, Reconciler, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger import tables
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import utc
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_sandbox import Sandbox

log = logging.getLogger(__name__)

EDITS = int(os.environ.get("PULSAR_FLEET_RANDOM_EDITS", "100"))
KILLS = int(os.environ.get("PULSAR_FLEET_FOLLOWER_POINTS", "6"))
SEED = os.environ.get("PULSAR_FLEET_RANDOM_SEED", "events")
NAMES = ("blue", "green", "red")
JOINS = "red"
"""Joins in the middle of the edits."""
AWAY, AWAY_SECONDS = "green", 15.0
SETTINGS = {
    "brokerDeleteInactiveTopicsEnabled": "false",
    "bookkeeperExplicitLacIntervalInMills": "5000",
}
TENANTS = tuple(f"team-{number}" for number in range(4))
UNSEEN_SECONDS = 0.1
"""Added to the time from the read of a policy to the record of its write, which depends on the load of the machine."""
TOLD_SECONDS = 6.0
LASTING_SECONDS = 15.0
"""Two edits of one field that are further apart have a certain order."""


@dataclass(frozen=True)
class Made:
    """An edit that a cluster accepted."""

    at: float
    cluster: str
    resource: str
    field: str
    value: Json


class Write(NamedTuple):
    """A policy that events wrote on a cluster."""

    cluster: str
    name: str
    field: str
    value: Json
    begun: float
    at: float

    def is_around(self, edit: Made) -> bool:
        """Whether an edit may have come between the read and the write: the read takes about as long as the write."""
        seconds = self.at - self.begun + UNSEEN_SECONDS
        return self.begun - seconds < edit.at < self.at + seconds


@dataclass
class People:
    """They edit resources of every type on the clusters of the fleet, one edit after the other."""

    admins: dict[str, AdminClient]
    chance: random.Random
    edits: list[Made] = field(default_factory=list)
    count: int = 0
    topics: dict[TopicName, str] = field(default_factory=dict)
    """Topic → the cluster that registers its schemas."""
    deleted: dict[str, str] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)
    lasting: dict[tuple[str, NamespaceName], float] = field(default_factory=dict)
    """Cluster and namespace → when a topic was created there."""

    async def edit(self, cluster: str) -> None:
        """One edit of a random resource; an edit of something that has not arrived there yet is another one."""
        actions: list[tuple[int, Callable[[str], Any]]] = [
            (2, self.create_tenant),
            (2, self.change_tenant),
            (4, self.create_namespace),
            (20, self.change_policy),
            (5, self.unset_policy),
            (8, self.change_rights),
            (5, self.create_topic),
            (5, self.grow_topic),
            (6, self.change_properties),
            (5, self.change_topic_policy),
            (4, self.register_schema),
            (2, self.delete_topic),
            (2, self.delete_namespace),
        ]
        weights = [weight for weight, _ in actions]
        while True:
            (_, action), self.count = self.chance.choices(actions, weights)[0], self.count + 1
            # What has not arrived on this cluster yet, or is being written, is not edited.
            with suppress(NotFound, Conflict):
                if await action(cluster):
                    self.tally[action.__name__] += 1
                    return

    def note(self, cluster: str, resource: str, name: str, value: Json) -> bool:
        self.edits.append(Made(time.time(), cluster, resource, name, value))
        return True

    async def create_tenant(self, cluster: str) -> bool:
        missing = [name for name in TENANTS if f"tenant {name}" not in {edit.resource for edit in self.edits}]
        if not missing:
            return False
        document = {"adminRoles": ["creator"], "allowedClusters": [cluster]}
        await self.admins[cluster].put(f"/tenants/{missing[0]}", document)
        return self.note(cluster, f"tenant {missing[0]}", "adminRoles", ["creator"])

    async def change_tenant(self, cluster: str) -> bool:
        name = await self._tenant(cluster)
        if name is None:
            return False
        roles = ["creator", f"role-{self.count}"]
        document = {**(await self.admins[cluster].tenant(name) or {}), "adminRoles": roles}
        await self.admins[cluster].post(f"/tenants/{name}", document)
        return self.note(cluster, f"tenant {name}", "adminRoles", roles)

    async def create_namespace(self, cluster: str) -> bool:
        tenant = await self._tenant(cluster)
        if tenant is None:
            return False
        name = NamespaceName(tenant, f"{self.chance.choice(('kept', 'brief'))}-{self.count}")
        document = {"replication_clusters": [cluster], MAX_PRODUCERS[1]: self.count}
        await self.admins[cluster].put(f"/namespaces/{name.path}", document)
        return self.note(cluster, f"namespace {name}", MAX_PRODUCERS[1], self.count)

    async def change_policy(self, cluster: str) -> bool:
        name = await self._namespace(cluster)
        if name is None:
            return False
        path, key = self.chance.choice((MAX_PRODUCERS, MAX_CONSUMERS))
        await set_policy(self.admins[cluster], name, path, self.count)
        return self.note(cluster, f"namespace {name}", key, self.count)

    async def unset_policy(self, cluster: str) -> bool:
        name = await self._namespace(cluster, "kept")
        if name is None or not await self._lasts(cluster, name):
            return False
        path, key = self.chance.choice((MAX_PRODUCERS, MAX_CONSUMERS))
        if (await self.admins[cluster].namespace(name) or {}).get(key) is None:
            return False
        await set_policy(self.admins[cluster], name, path, None)
        return self.note(cluster, f"namespace {name}", key, None)

    async def change_rights(self, cluster: str) -> bool:
        name = await self._namespace(cluster)
        if name is None:
            return False
        role, actions = f"app-{self.chance.randrange(3)}", self.chance.choice((["produce"], ["consume"], None))
        path = f"/namespaces/{name.path}/permissions/{role}"
        granted = (await self.admins[cluster].get(f"/namespaces/{name.path}/permissions")).get(role)
        if granted == actions or (actions is None and not await self._lasts(cluster, name)):
            return False
        await (self.admins[cluster].post(path, actions) if actions else self.admins[cluster].delete(path))
        return self.note(cluster, f"namespace {name}", f"permission {role}", actions)

    async def create_topic(self, cluster: str) -> bool:
        name = await self._namespace(cluster, "kept")
        if name is None:
            return False
        topic = TopicName(name, f"{self.chance.choice(('kept', 'brief'))}-{self.count}")
        await self.admins[cluster].create_partitioned_topic(topic, 1, {"owner": str(self.count)})
        self.topics[topic] = cluster
        return self.note(cluster, f"topic {topic}", "owner", str(self.count))

    async def grow_topic(self, cluster: str) -> bool:
        topic = await self._topic(cluster)
        if topic is None:
            return False
        now = await partitions(self.admins[cluster], topic)
        if not 0 < now < 5:
            return False
        await self.admins[cluster].post(f"/{topic.path}/partitions", now + 1, createLocalTopicOnly=True)
        return self.note(cluster, f"topic {topic}", "partitions", now + 1)

    async def change_properties(self, cluster: str) -> bool:
        topic = await self._topic(cluster)
        if topic is None:
            return False
        await self.admins[cluster].put(f"/{topic.path}/properties", {"owner": str(self.count)})
        return self.note(cluster, f"topic {topic}", "owner", str(self.count))

    async def change_topic_policy(self, cluster: str) -> bool:
        topic = await self._topic(cluster)
        if topic is None:
            return False
        await self.admins[cluster].post(f"/{topic.path}/maxProducers", self.count)
        return self.note(cluster, f"topic {topic}", "maxProducers", self.count)

    async def register_schema(self, cluster: str) -> bool:
        topic = await self._topic(cluster)
        if topic is None or self.topics[topic] != cluster:
            return False
        version = len(await schemas(self.admins[cluster], topic))
        await self.admins[cluster].post_schema(topic, record(*(f"f{number}" for number in range(version + 1))))
        return self.note(cluster, f"topic {topic}", "schemas", version + 1)

    async def delete_topic(self, cluster: str) -> bool:
        topic = await self._topic(cluster, "brief")
        if topic is None or self._lately(f"topic {topic}"):
            return False
        await self.admins[cluster].delete(f"/{topic.path}/partitions")
        self.deleted[f"topic {topic}"] = cluster
        return True

    async def delete_namespace(self, cluster: str) -> bool:
        name = await self._namespace(cluster, "brief")
        if name is None or self._lately(f"namespace {name}"):
            return False
        await self.admins[cluster].delete(f"/namespaces/{name.path}")
        self.deleted[f"namespace {name}"] = cluster
        return True

    async def _lasts(self, cluster: str, name: NamespaceName) -> bool:
        """Whether a topic proves that what the namespace lacks was removed: one that is older than the last scans."""
        if name.name.startswith("brief"):
            return False
        if (cluster, name) not in self.lasting:
            await self.admins[cluster].create_topic(TopicName(name, f"lasting-{cluster}"))
            self.lasting[cluster, name] = time.time()
        return time.time() - self.lasting[cluster, name] > LASTING_SECONDS

    def _lately(self, resource: str) -> bool:
        """Whether it was edited so lately that an edit might count as later than its deletion."""
        return any(edit.resource == resource and time.time() - edit.at < TOLD_SECONDS for edit in self.edits)

    async def _tenant(self, cluster: str) -> str | None:
        names = sorted({*await self.admins[cluster].tenants()} & {*TENANTS})
        return self.chance.choice(names) if names else None

    async def _namespace(self, cluster: str, prefix: str = "") -> NamespaceName | None:
        tenant = await self._tenant(cluster)
        if tenant is None:
            return None
        names = sorted(map(str, await self.admins[cluster].namespaces(tenant)))
        parsed = [NamespaceName.parse(name) for name in names if f"namespace {name}" not in self.deleted]
        fitting = [name for name in parsed if str(name).partition("/")[2].startswith(prefix)]
        return self.chance.choice(fitting) if fitting else None

    async def _topic(self, cluster: str, prefix: str = "") -> TopicName | None:
        topics = sorted(
            (topic for topic in self.topics if f"topic {topic}" not in self.deleted and topic.local.startswith(prefix)),
            key=str,
        )
        if not topics:
            return None
        topic = self.chance.choice(topics)
        return topic if await partitions(self.admins[cluster], topic) > 0 else None


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    """Three clusters of their own: one is killed."""
    folder = tmp_path_factory.mktemp("fleet")
    with start_clusters(folder, clusters=NAMES, settings=dict.fromkeys(NAMES, SETTINGS)) as sandbox:
        yield sandbox


@pytest.fixture
async def admins(sandbox: Sandbox) -> AsyncIterator[dict[str, AdminClient]]:
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(AdminClient(connection(sandbox, name))) for name in NAMES}


def connection(sandbox: Sandbox, name: str) -> ClusterConnection:
    cluster = sandbox[name]
    return ClusterConnection(name=name, admin_url=cluster.admin_url, service_url=cluster.service_url)


async def state_of(admin: AdminClient) -> JsonObject:
    """All that is compared between the clusters, by calls of this test; its own name is `OWN`."""
    own, state = await admin.cluster_name(), {}
    for tenant in sorted({*await admin.tenants()} & {*TENANTS}):
        document = await admin.tenant(tenant) or {}
        state[f"tenant {tenant}"] = {
            "adminRoles": sorted(document["adminRoles"]),
            "clusters": ["OWN" if name == own else name for name in document["allowedClusters"]],
        }
        for name in sorted(map(NamespaceName.parse, map(str, await admin.namespaces(tenant)))):
            policies = await admin.namespace(name) or {}
            granted = (policies.get("auth_policies") or {}).get("namespace_auth") or {}
            state[f"namespace {name}"] = {
                MAX_PRODUCERS[1]: policies.get(MAX_PRODUCERS[1]),
                MAX_CONSUMERS[1]: policies.get(MAX_CONSUMERS[1]),
                **{f"permission {role}": sorted(actions) for role, actions in granted.items()},
                "clusters": ["OWN" if name == own else name for name in policies["replication_clusters"]],
            }
            for topic in sorted(await admin.partitioned_topics(name), key=str):
                state[f"topic {topic}"] = {
                    "partitions": await partitions(admin, topic),
                    "properties": await properties(admin, topic),
                    "schemas": await schemas(admin, topic),
                    "maxProducers": await admin.get(f"/{topic.path}/maxProducers"),
                }
    return state


@pytest.mark.long
@pytest.mark.full
@pytest.mark.timeout(300 + 2 * EDITS)
async def test_random_edits_leave_identical_clusters_and_every_loss_on_record(
    sandbox: Sandbox, admins: dict[str, AdminClient], records: Path
) -> None:
    people = People(admins, random.Random(SEED))
    exchange = Exchange.of("fleet", connection(sandbox, "blue"), connection(sandbox, "green"), skew_seconds=0.5)
    exchange.request = replace(exchange.request, selection=Selection(tenants=frozenset(TENANTS)))
    await exchange.settle()
    kills = {round((number + 0.5) * EDITS / KILLS) for number in range(KILLS)}
    goes, returns, joins = EDITS // 5, EDITS // 5 + max(5, EDITS // 20), EDITS // 2
    editing, away_since = ["blue", "green"], 0.0
    with ExitStack() as ended:
        followers = [ended.enter_context(exchange.follower(records)) for _ in range(2)]
        for number in range(EDITS):
            if number == goes:
                await asyncio.to_thread(sandbox[AWAY].kill)
                editing.remove(AWAY)
                away_since = time.monotonic()
            if number == returns:
                await asyncio.sleep(max(0.0, AWAY_SECONDS - (time.monotonic() - away_since)))
                await asyncio.to_thread(sandbox[AWAY].restart)
                editing.append(AWAY)
            if number == joins:
                exchange.connections = (*exchange.connections, connection(sandbox, JOINS))
                followers.append(ended.enter_context(exchange.follower(records)))
                await equal_soon(people, "blue", JOINS)
                editing.append(JOINS)
            if number in kills:
                # The oldest one is active.
                followers.pop(0).kill()
                followers.append(ended.enter_context(exchange.follower(records)))
            await people.edit(people.chance.choice(editing))
            await asyncio.sleep(people.chance.random() * 0.4)
    await exchange.settle()
    await assert_deletions_wait(people, exchange)
    await exchange.settle()
    states = {name: await state_of(admin) for name, admin in admins.items()}
    assert states["blue"] == states["green"] == states["red"], difference(states)
    conflicts = recorded_conflicts()
    log.info("%d edits %s, %d kills, %d conflicts", EDITS, dict(people.tally), KILLS, len(conflicts))
    assert lost_unrecorded(people, states["blue"], conflicts) == []
    assert repeated(applied()) == []
    drift = await Reconciler.of(TENANTS[0], *exchange.connections).find()
    assert (drift.drifting, drift.fields) == (0, 0)


async def equal_soon(people: People, source: str, target: str) -> None:
    """Until a cluster that joins has what another one has; nobody edits meanwhile, and deletions wait."""
    states: dict[str, JsonObject] = {}
    end = time.monotonic() + 180
    while not states or states[source] != states[target]:
        assert time.monotonic() < end, difference(states)
        await asyncio.sleep(1)
        for name in (source, target):
            state = await state_of(people.admins[name])
            states[name] = {resource: state[resource] for resource in state if resource not in people.deleted}


async def assert_deletions_wait(people: People, exchange: Exchange) -> None:
    """What was deleted on one cluster is kept on the others until a person approves the batches."""
    summary = await exchange.run()
    # An edit shortly before a deletion may count as later while no follower scans: then it wins, on record.
    won = {resource for resource, name in recorded_conflicts() if not name} & {*people.deleted}
    for resource in won:
        assert [resource in await state_of(admin) for admin in people.admins.values()] == [True] * len(NAMES), resource
        del people.deleted[resource]
    log.info("%d deletions wait, %d edits won against one", len(people.deleted), len(won))
    for name, tally in summary.clusters.items():
        batch, state = tally.pending_deletions, await state_of(people.admins[name])
        listed = {text.partition(": deleted")[0] for text in (batch.resources if batch else ())}
        present = {resource for resource in people.deleted if resource in state}
        assert listed == present, (name, listed ^ present)
        # A cluster that joins after a deletion may hear of it before it hears of the resource.
        kept = {resource for resource, cluster in people.deleted.items() if name not in (cluster, JOINS)}
        assert kept <= present, (name, kept - present)
    batches = {name: tally.pending_deletions for name, tally in summary.clusters.items()}
    allow = frozenset(batch.id for batch in batches.values() if batch)
    done = await exchange.run(propagate_deletes=PropagateDeletes.APPROVE, allow=allow)
    assert [tally.not_deleted for tally in done.clusters.values()] == [[]] * len(done.clusters)
    remaining = {name: {*people.deleted} & {*await state_of(admin)} for name, admin in people.admins.items()}
    assert remaining == {key: set() for key in remaining}


def lost_unrecorded(people: People, state: JsonObject, conflicts: set[tuple[str, str]]) -> list[Made]:
    """Last edits of a field whose value no cluster has, although no conflict on record names the field."""
    last: dict[tuple[str, str], Made] = {}
    writes = applied()
    for edit in people.edits:
        # Pulsar's setters are not conditional: what is set between our read and our write was never seen.
        between = (
            write.cluster == edit.cluster and write.is_around(edit)
            for write in writes
            if (f"namespace {write.name}", write.field) == (edit.resource, edit.field)
        )
        if not any(between):
            last[edit.resource, edit.field] = edit
    return [
        edit
        for edit in last.values()
        if edit.resource not in people.deleted
        and not is_present(edit, state[edit.resource])
        and recorded_as(edit) not in conflicts
    ]


def recorded_as(edit: Made) -> tuple[str, str]:
    """Resource and field of an edit as the ledger names them."""
    if edit.field == "maxProducers":
        return edit.resource.replace("topic ", "topic policy ", 1), "local/maxProducerPerTopic"
    if edit.field == "owner":
        return edit.resource, "properties/owner"
    if edit.field.startswith("permission "):
        return edit.resource, f"auth_policies/namespace_auth/{edit.field.removeprefix('permission ')}"
    return edit.resource, edit.field


def is_present(edit: Made, values: JsonObject) -> bool:
    if edit.field == "schemas":
        return len(values["schemas"]) == edit.value
    if edit.field == "partitions":
        return bool(values["partitions"] >= edit.value)
    if edit.field == "owner":
        return bool(values["properties"].get("owner") == edit.value)
    if edit.field == "adminRoles":
        return bool(values["adminRoles"] == sorted(edit.value))
    return bool(values.get(edit.field) == edit.value)


def recorded_conflicts() -> set[tuple[str, str]]:
    """Resource and field of each conflict on record."""
    table = tables.conflicts
    with Ledger.open().engine.connect() as rows:
        records = rows.execute(sa.select(table.c.kind, table.c.name, table.c.field)).all()
    return {(f"{row.kind} {row.name}", row.field) for row in records}


def applied() -> list[Write]:
    """Every policy of a namespace that was written by events, with values that edits never repeat."""
    table = tables.changes
    query = sa.select(table).where(table.c.outcome == "applied", table.c.resource.contains("max_"))
    with Ledger.open().engine.connect() as rows:
        records, intents = rows.execute(query).all(), rows.execute(sa.select(tables.intents)).all()
    begun = {(row.run_id, row.change_id): utc(row.at).timestamp() for row in intents}
    return [
        Write(
            cluster=row.cluster,
            name=row.resource.split()[1],
            field=row.resource.split()[2],
            value=row.after,
            begun=begun[row.run_id, row.change_id],
            at=utc(row.at).timestamp(),
        )
        for row in records
        if row.after is not None and row.resource.startswith("policy ")
    ]


def repeated(writes: list[Write]) -> list[tuple[Write, Write]]:
    """Writes of one value that followed each other.

    Where a follower takes over from one that lives, both may have received an event: they write its value at once.
    """
    found, last = [], dict[tuple[Json, ...], Write]()
    for write in sorted(writes, key=lambda write: write.begun):
        key = write[:4]
        if key in last and write.begun > last[key].at:
            found.append((last[key], write))
        last[key] = write
    return found


def difference(states: dict[str, JsonObject]) -> str:
    names = sorted({name for state in states.values() for name in state})
    rows = {name: {cluster: state.get(name) for cluster, state in states.items()} for name in names}
    return "\n".join(
        f"{name}: {row}"
        for name, row in rows.items()
        if len({json.dumps(values, sort_keys=True) for values in row.values()}) > 1
    )
