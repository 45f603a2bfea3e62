"""Subscriptions of real clusters compared: two hundred random cursors without a wrong verdict, and every reason."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest
from tests.contract.cursors import Copy, Side, random_cursors

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.verification.request import VerifyRequest
from pulsar_fleet.verification.steps import freeze_bounds
from pulsar_fleet.verification.subscription_steps import compare_subscriptions
from pulsar_fleet.verification.subscription_verdict import Kind, SubscriptionVerdict, SubscriptionVerification
from pulsar_fleet.verification.verdict import Verdict

SEED = 20261121
PER_TOPIC = 70


@dataclass(frozen=True)
class Compared:
    """Three topics with random cursors, and what was found about them."""

    copies: dict[str, Copy]
    request: VerifyRequest
    found: SubscriptionVerification

    def __getitem__(self, topic: str) -> dict[str, SubscriptionVerdict]:
        return by_topic(self.found)[topic]


def by_topic(found: SubscriptionVerification) -> dict[str, dict[str, SubscriptionVerdict]]:
    topics = (topic for namespace in found.namespaces for topic in namespace.topics)
    return {TopicName.parse(each.topic).local: {one.subscription: one for one in each.subscriptions} for each in topics}


@pytest.fixture(scope="module")
def compared(blue: ClusterConnection, green: ClusterConnection) -> Compared:
    """`events` is replicated entry for entry, `partly` with gaps, `copied` was written by producers in other batches."""
    return asyncio.run(_compared(blue, green))


async def _compared(blue: ClusterConnection, green: ClusterConnection) -> Compared:
    tenant, chance = f"test-{os.urandom(5).hex()}", random.Random(SEED)
    replicated, written = NamespaceName(tenant, "replicated"), NamespaceName(tenant, "written")
    async with AsyncExitStack() as stack:
        sides = [Side(each, await stack.enter_async_context(AdminClient(each))) for each in (blue, green)]
        await introduce(sides)
        topics = {name: TopicName(replicated, name) for name in ("events", "partly")}
        topics["copied"] = TopicName(written, "copied")
        for side in reversed(sides):  # else the replicator makes green's topics
            await side.make_namespace(replicated, ["blue", "green"] if side is sides[0] else ["green"])
            await side.make_namespace(written, [side.connection.name])
            for topic in topics.values():
                await side.admin.create_topic(topic)
        for part in ("a", "b"):
            write(sides, topics, part)
            await freeze_bounds(sides[0].admin, sides[1].admin, [replicated])  # waits until all is replicated
            if part == "a":
                for side in sides:
                    await asyncio.gather(*(side.admin.put(f"/{topic.path}/unload") for topic in topics.values()))
        copies = {}
        for name, topic in topics.items():
            here, there = (side.read(topic, by_place=name == "copied") for side in sides)
            copies[name] = Copy(topic, (here, there), same_entries=name == "events")
            random_cursors(chance, PER_TOPIC, copies[name])
            await asyncio.gather(*(side.place(chance, copies[name], number) for number, side in enumerate(sides)))
        for side in sides:
            side.client.close()
            await side.admin.put(f"/{topics['partly'].path}/unload")
        admins = (sides[0].admin, sides[1].admin)
        request = replace(await freeze_bounds(*admins, [replicated, written]), examples=1000)
        return Compared(copies, request, await compare_subscriptions(*admins, request))


async def introduce(sides: list[Side]) -> None:
    for side, other in (sides, sides[::-1]):
        name, there = other.connection.name, other.connection
        if name not in await side.admin.clusters():
            await side.admin.put_cluster(name, {"serviceUrl": there.admin_url, "brokerServiceUrl": there.service_url})


def write(sides: list[Side], topics: dict[str, TopicName], part: str) -> None:
    blue, green = sides
    for name in ("events", "partly"):
        blue.write(topics[name], [f"{part}{number}" for number in range(15)], batch=1)
        blue.write(topics[name], [f"{part}z{number}" for number in range(15)], batch=3)
        blue.write(topics[name], [f"{part}late{number}" for number in range(3)], batch=1, late=True)
    blue.write(topics["partly"], [f"{part}own{number}" for number in range(3)], batch=1, local=True)
    blue.write(topics["partly"], [f"{part}{number}" for number in range(15, 20)], batch=1)
    repeating = [f"{number % 11}" for number in range(40)]
    blue.write(topics["copied"], repeating, batch=4)
    green.write(topics["copied"], repeating, batch=3)


@pytest.mark.parametrize("topic", ["events", "partly", "copied"])
def test_no_verdict_on_a_random_cursor_is_wrong(compared: Compared, topic: str) -> None:
    copy, found = compared.copies[topic], compared[topic]
    wrong = []
    for name in copy.cursors:
        again, lost, *counts = copy.expected(name)
        verdict = Verdict.DIFFERENT if again or lost else Verdict.EQUAL
        one = found[name]
        named = {kind: {each for each in one.examples if each.kind is kind} for kind in Kind}
        on_green = {Position.parse(each.target or "") for each in named[Kind.REDELIVERED]}
        on_blue = {Position.parse(each.source or "") for each in named[Kind.SKIPPED]}
        if (one.verdict, one.redelivered, one.skipped, on_green, on_blue) != (verdict, *counts, again, lost):
            wrong.append((name, copy.cursors[name], one))
    assert wrong == []
    assert found.keys() == copy.cursors.keys()


def test_the_random_cursors_are_of_both_verdicts_and_of_both_kinds(compared: Compared) -> None:
    found = [one for topic in compared.copies for one in compared[topic].values()]
    counts = Counter(one.verdict for one in found)
    assert len(found) == 3 * PER_TOPIC
    assert min(counts[Verdict.EQUAL], counts[Verdict.DIFFERENT]) > 50
    assert any(one.redelivered for one in found)
    assert any(one.skipped for one in found)
