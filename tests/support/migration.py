"""A migration of one namespace from blue to green, for tests of the tasks from the freeze on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.waits import monitor_until_drained

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import stored_redirect
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.state_topic import read_runs
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import DRAIN_STATE
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.drain.monitor import DrainStatus
from pulsar_fleet.migration.drain.steps import monitor_drain
from pulsar_fleet.migration.model import Move, Moves, PartitionClients, Strategy
from pulsar_fleet.migration.preflight.view import flagged_names
from pulsar_fleet.migration.prepare.brokers import restore_brokers
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.steps import cut_over, freeze_blue, restore_blue
from pulsar_sandbox.workload.live import AUDIT, CONSUMED, EVENTS, EVENTS_PARTITIONS, NumberedMessage

RATE = {"publishThrottlingRateInMsg": 5000, "publishThrottlingRateInByte": -1}
TOPIC_RATE = {"publishThrottlingRateInMsg": 4000, "publishThrottlingRateInByte": 9_000_000}
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 7200,
    "deleteWhileInactive": True,
}
LATE = "late"
"""A plain topic with a subscription of the same name without consumers, so that its drain lasts as long as a test."""
UNREAD = 40


@dataclass(frozen=True)
class Migration:
    """One namespace and the run that moves it."""

    sides: Sides
    run: Run
    moves: Moves

    @property
    def namespace(self) -> NamespaceName:
        return self.moves.moves[0].namespace

    def topic(self, name: str) -> TopicName:
        return TopicName(self.namespace, name)

    def impatient(self) -> Migration:
        """The same, but with short retries."""
        return replace(self, sides=replace(self.sides, retry_seconds=0.5))

    def through(self, **urls: str) -> Migration:
        """The same, with other admin URLs."""
        changed = {side: replace(getattr(self.sides, side), admin_url=url) for side, url in urls.items()}
        return replace(self, sides=replace(self.sides, **changed))

    async def freeze_blue(self) -> None:
        await freeze_blue(self.sides, self.run, self.moves)

    async def switch(self) -> None:
        await cut_over(self.sides, self.run, self.moves, self.before(), quiesce_seconds=0.5)

    async def monitor_drain(self) -> DrainStatus:
        return await monitor_drain(self.sides, self.run, self.moves)

    async def monitor_until_drained(self) -> DrainStatus:
        return await monitor_until_drained(self.sides, self.run, self.moves, seconds=90, poll_seconds=1)

    async def restore_blue(self) -> tuple[str, ...]:
        return await restore_blue(self.sides, self.run, self.before(), delete_topics=True)

    def before(self) -> OriginalSettings:
        before = find_original_settings(self.run)
        assert before is not None
        return before

    def monitored(self) -> Any:
        """The monitor's state of the namespace."""
        reference = self.run.artefacts.find(self.run.id, DRAIN_STATE)
        assert reference is not None
        return self.run.artefacts.read_json(reference)["namespaces"][str(self.namespace)]


def migration(blue: ClusterConnection, green: ClusterConnection, name: NamespaceName, folder: Path) -> Migration:
    """The run; its records are the same for every process that calls this."""
    topics = {TopicName(name, EVENTS): EVENTS_PARTITIONS, TopicName(name, AUDIT): 0, TopicName(name, LATE): 0}
    partitions = {
        partition: PartitionClients(0, {}, {})
        for topic, count in topics.items()
        for partition in topic.partitions(count)
    }
    move = Move(name, Strategy.REDIRECT, "", topics, partitions)
    ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
    run = Run("moved", ledger, Artefacts.open(str(folder / "artefacts")))
    return Migration(Sides(blue, green, 5.0), run, Moves("blue", "green", (move,)))


async def make(blue: ClusterConnection, green: ClusterConnection, name: NamespaceName) -> None:
    """The namespace on both sides; on blue with rates and policies of its own and a backlog without consumers."""
    for connection in (blue, green):
        async with AdminClient(connection) as admin:
            own = await admin.cluster_name()
            with suppress(Conflict):  # another namespace's
                await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
            await admin.put_namespace(name, {"replication_clusters": [own]})
            await admin.create_partitioned_topic(TopicName(name, EVENTS), EVENTS_PARTITIONS)
            for plain in (AUDIT, LATE):
                await admin.create_topic(TopicName(name, plain))
            for topic in (*TopicName(name, EVENTS).partitions(EVENTS_PARTITIONS), TopicName(name, AUDIT)):
                for subscription in CONSUMED:
                    await admin.create_subscription(topic, subscription)
            await admin.create_subscription(TopicName(name, LATE), LATE)
    async with AdminClient(blue) as admin:
        await admin.post(f"/namespaces/{name.path}/publishRate", RATE)
        await admin.post(f"/{TopicName(name, EVENTS).path}/publishRate", TOPIC_RATE)
        await admin.post(f"/{TopicName(name, AUDIT).path}/inactiveTopicPolicies", INACTIVE)
    publish(blue, TopicName(name, LATE), [NumberedMessage(LATE, "key", number, 1) for number in range(UNREAD)])


def publish(connection: ClusterConnection, topic: TopicName, messages: Sequence[NumberedMessage]) -> None:
    client = open_client(connection)
    try:
        producer = client.create_producer(str(topic))
        for message in messages:
            producer.send(message.to_bytes())
    finally:
        client.close()


async def overridden(admin: AdminClient, name: NamespaceName) -> dict[str, Any]:
    """Everything on blue that a migration overrides, as it is now."""
    overrides: dict[str, Any] = {"dynamic": await admin.dynamic_overrides()}
    for policy in ("publishRate", "inactiveTopicPolicies"):
        overrides[f"namespace {policy}"] = await admin.get(f"/namespaces/{name.path}/{policy}")
        for topic in (EVENTS, AUDIT, LATE):
            overrides[f"{topic} {policy}"] = await admin.get(f"/{TopicName(name, topic).path}/{policy}")
    return overrides


async def restore_left_brokers(admin: AdminClient) -> None:
    """Restore settings of the brokers that runs of other tests still override."""
    left_overrides = (await read_runs(admin)).brokers
    for run_id in left_overrides.runs if left_overrides else ():
        await restore_brokers(admin, run_id)


async def forget_migrations(*clusters: AdminClient) -> None:
    """Clear every flag and every stored redirect of these clusters."""
    for admin in clusters:
        own = await admin.cluster_name()
        if await stored_redirect(admin, own):
            await admin.post(f"/clusters/{own}/migrate", migrated=False)
        await clear_flags(admin)


async def clear_flags(*clusters: AdminClient) -> None:
    """Clear the flag of every namespace of these clusters."""
    for admin in clusters:
        for name in await flagged_names(admin) or ():
            await set_flag(admin, name, migrated=False)
