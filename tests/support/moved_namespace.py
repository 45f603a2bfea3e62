"""A namespace of its own, and the run that moves it, task by task.

Nobody is connected: whether a client follows a redirect depends on chance, and tests of clients see to that.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from pathlib import Path

import pulsar
from tests.support.waits import monitor_until_drained, wait_replicated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.failback.steps import check_failback, reopen
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.compaction import compact
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import OriginalSettings

log = logging.getLogger(__name__)


@dataclass
class MovedNamespace:
    """A namespace on blue with a topic `live`, and the run that moves it."""

    sides: Sides
    run: Run
    blue: AdminClient
    green: AdminClient
    namespace: NamespaceName
    client: pulsar.Client

    @classmethod
    def at(cls, blue: AdminClient, green: AdminClient, namespace: NamespaceName, folder: Path) -> MovedNamespace:
        """A run of its own, whose records are in a folder."""
        run = Run("moved", Ledger.open(f"sqlite:///{folder / 'ledger.db'}"), Artefacts.open(str(folder / "files")))
        sides = Sides(blue.connection, green.connection, 5.0)
        return cls(sides, run, blue, green, namespace, open_client(blue.connection))

    async def make(self) -> None:
        """Create the namespace on blue, with a topic `live` that has one message."""
        await self.blue.put(f"/tenants/{self.namespace.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
        await self.blue.put_namespace(self.namespace, {"replication_clusters": ["blue"]})
        await self.blue.create_topic(self.topic("live"))
        await self.publish("live", 1)

    async def close(self) -> None:
        """Restore what the run overrides on blue, and disconnect."""
        if (original := find_original_settings(self.run)) is not None:
            await steps.restore_blue(self.sides, self.run, original, delete_topics=True)
        await asyncio.to_thread(self.client.close)

    def topic(self, name: str) -> TopicName:
        return TopicName(self.namespace, name)

    async def publish(self, name: str, count: int) -> None:
        producer = await asyncio.to_thread(self.client.create_producer, str(self.topic(name)))
        for number in range(count):
            await asyncio.to_thread(producer.send, b"%d" % number)
        await asyncio.to_thread(producer.close)

    async def make_shadow(self, name: str, *, of: str) -> None:
        """Not linked to its source, which would be a change of settings that the proof sees."""
        await self.blue.put(f"/{self.topic(name).path}", {SHADOW_SOURCE: str(self.topic(of))})

    async def restore(self) -> None:
        """The end of a run: restore what it overrides on the old cluster, and release its lease."""
        await steps.restore_blue(self.sides, self.run, self.original, delete_topics=True)
        self.run.ledger.finish_run(self.run.id, "succeeded")

    def returned(self) -> MovedNamespace:
        """A run of its own that moves it back."""
        sides = Sides(self.sides.green, self.sides.blue, self.sides.retry_seconds)
        run = replace(self.run, id=f"{self.run.id} and back")
        run.ledger.start_run(run.id, "fail_back_namespaces", {"namespaces": [str(self.namespace)]})
        return MovedNamespace(sides, run, self.green, self.blue, self.namespace, self.client)

    async def reopen(self) -> None:
        """The first steps of a failback; the sides are those of the migration back."""
        forth = Sides(self.sides.green, self.sides.blue, self.sides.retry_seconds)
        await check_failback(forth, self.run, [self.namespace], Strategy.REDIRECT, allow_removal=True)
        await reopen(forth, self.run, [self.namespace])

    async def until_cut_over(self, strategy: Strategy | None, expected: Expectations | None = None) -> Moves:
        reference, _ = await steps.check_gates(self.sides, self.run, [self.namespace], strategy, expected=expected)
        moves = Moves.from_json(self.run.artefacts.read_json(reference))
        await steps.prepare_green(self.sides, self.run, moves)
        await steps.recheck_gates(self.sides, self.run, moves, expected=expected or Expectations())
        await steps.freeze_blue(self.sides, self.run, moves)
        await steps.start_replication(self.sides, self.run, moves)
        await wait_replicated(self.sides, self.run, moves, seconds=60, poll_seconds=0.5, progress=log.info)
        await steps.verify_copy(self.sides, self.run, moves)
        return moves

    @property
    def original(self) -> OriginalSettings:
        original = find_original_settings(self.run)
        assert original is not None
        return original

    async def cut_over(self, moves: Moves) -> None:
        await steps.cut_over(self.sides, self.run, moves, self.original, proof_max_age_minutes=60)

    async def finish(self, moves: Moves, *, unload: bool = True) -> None:
        """Everything after the cut-over; also the repetition of it after an incomplete end."""
        await steps.verify_subscriptions(self.sides, self.run, moves)
        await monitor_until_drained(self.sides, self.run, moves, seconds=60, poll_seconds=0.5)
        await steps.verify_messages(self.sides, self.run, moves)
        await steps.clean_up_blue(self.sides, self.run, moves, self.original, unload=unload)

    @property
    def phase(self) -> str | None:
        return self.run.ledger.last_phase(str(self.namespace))


async def empty_log(admin: AdminClient, table: TopicName) -> None:
    """Compact what came since, begin a new ledger and delete the full ones."""
    await compact(admin, [table])
    await admin.put(f"/{table.path}/unload")
    async with asyncio.timeout(20):
        while sum(ledger["entries"] for ledger in (await admin.internal_stats(table))["ledgers"]):
            await admin.post(f"/{table.path}/trim")
            await asyncio.sleep(0.5)
