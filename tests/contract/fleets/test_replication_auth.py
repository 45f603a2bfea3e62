"""Brokers replicate with the credentials of `replication_auth`, and not with their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fleets import Fleet, with_certificates
from tests.support.leaks import leaking, texts_below
from tests.support.replication import make_alone

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ReplicationAuth
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations

pytestmark = pytest.mark.fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with with_certificates(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.mark.long
async def test_a_role_without_rights_replicates_nothing_though_the_broker_might(
    fleet: Fleet, records: Path, new_namespace: Callable[[], NamespaceName]
) -> None:
    topic = TopicName(new_namespace(), "events")
    stranger = fleet.sandbox["green"].token("nobody")
    link = ReplicationAuth(token=stranger, tls_trust_file=fleet.green.tls_trust_file)
    sides = Sides(fleet.blue, replace(fleet.green, replication_auth=link), 5.0)
    run = Run.open("migrate_namespaces/stranger")
    async with AdminClient(fleet.blue) as on_blue:
        await make_alone(on_blue, topic.namespace)
        await on_blue.create_topic(topic)
        _publish(fleet, topic)
        reference, _ = await steps.check_gates(
            sides, run, [topic.namespace], Strategy.REPLICATE, expected=Expectations()
        )
        moves = Moves.from_json(run.artefacts.read_json(reference))
        await steps.prepare_green(sides, run, moves)
        await steps.freeze_blue(sides, run, moves)
        await steps.start_replication(sides, run, moves)
        data = await on_blue.cluster_data("green") or {}
        assert data["authenticationParameters"] == f"token:{stranger}"
        states, end = [], time.monotonic() + 8
        while time.monotonic() < end:
            if replicator := (await on_blue.stats(topic))["replication"].get("green"):
                states.append((replicator["connected"], replicator["replicationBacklog"]))
            await asyncio.sleep(0.2)
    assert not any(connected for connected, _ in states)
    assert states[-1] == (False, 1)
    assert leaking(texts_below(records), (stranger,)) == []


def _publish(fleet: Fleet, topic: TopicName) -> None:
    client = open_client(fleet.blue)
    client.create_producer(str(topic)).send(b"one")
    client.close()
