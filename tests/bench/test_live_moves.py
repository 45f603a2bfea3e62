"""Applications that follow a document, moved, returned, moved again and completed, beside the same topics flagged.

Half of the topics are used by Java clients and half by Python's, all four types of subscription each.
PULSAR_FLEET_BENCH_RATE: messages/s and topic (default 250). PULSAR_FLEET_BENCH_TOPICS: how many (default 24).
PULSAR_FLEET_BENCH_EXACT: 1 holds the producers while clients move.
PULSAR_FLEET_BENCH_BROKERS: brokers of each cluster (default 1).
PULSAR_FLEET_BENCH_CLIENTS: Java and Python by their beginnings (default "Java 4.2.4,Python").
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.bench.applications import Applications, Events, Flow, is_stuck, reading, running_each, silence, writers
from tests.bench.clients_built import commands
from tests.bench.flip_traffic import by_runbook, make, missing_on_green, new_sides
from tests.bench.followed import Command, following

from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Strategy

RATE = int(os.environ.get("PULSAR_FLEET_BENCH_RATE", "250"))
TOPICS = int(os.environ.get("PULSAR_FLEET_BENCH_TOPICS", "24"))
CLIENTS = os.environ.get("PULSAR_FLEET_BENCH_CLIENTS", "Java 4.2.4,Python").split(",")
EXACT = os.environ.get("PULSAR_FLEET_BENCH_EXACT") == "1"
TYPES = ("Exclusive", "Failover", "Shared", "Key_Shared")
WARM_SECONDS = 8.0
BETWEEN_SECONDS = 10.0
AFTER_SECONDS = 20.0
READ_ON_SECONDS = 10.0
FLAGGED = "flag"
HEAD = f"{'':12} {'command, s':>10} {'twice':>7} {'order breaks':>12} {'middle silence':>14} {'longest, s':>10}"


@pytest.mark.timeout(1800)
async def test_live_moves(tmp_path: Path) -> None:
    programs = {
        name: command for name, command in commands().items() if any(name.startswith(wanted) for wanted in CLIENTS)
    }
    ways = {"by document": _by_document, "by flag": _by_flag}
    problems: list[str] = []
    for way, play in ways.items():
        folder = tmp_path / way.replace(" ", "-")
        with new_sides(folder) as sides:
            flows = _flows(programs)
            every = [flow for part in flows.values() for flow in part]
            await make(sides.blue, every, {})
            steps, (events, gone), complaints = await play(sides, programs, flows, folder)
        rate = sum(found.rate(steps[0].began) for found in events.values())
        print(f"\n{way}: {len(every)} topics, {rate:,.0f} messages/s, {', '.join(programs)}\n{HEAD}")
        bounds = [step.began for step in steps] + [max(found.stopped for found in events.values()) + 60_000_000]
        for step, until in zip(steps, bounds[1:], strict=True):
            print(_row(step, until, flows, events), flush=True)
        lost, stuck = _totals(flows, events)
        print(f"{'in all':12} lost {lost:,}, producers stuck {stuck}, subscriptions without their consumer {gone}")
        print(*complaints, sep="\n", flush=True)
        problems += [f"{way}: {text}" for text in complaints]
        problems += [f"{way}: {lost} lost, {stuck} stuck, {gone} gone"] if lost or stuck or gone else []
    assert problems == []


Seen = tuple[dict[str, Events], int]
"""Client → what its applications saw, and how many subscriptions have no consumer on green in the end."""
Steps = tuple[list[Command], Seen, list[str]]


async def _by_document(
    sides: Sides, programs: Mapping[str, list[str]], flows: Mapping[str, list[Flow]], folder: Path
) -> Steps:
    namespaces = sorted({flow.topic.namespace for part in flows.values() for flow in part}, key=str)
    with following(sides, folder.with_suffix(".run"), namespaces, exact=EXACT) as group, ExitStack() as stack:
        started = await _started(stack, sides, programs, flows, folder, group.document)
        run = await group.move()
        await asyncio.sleep(BETWEEN_SECONDS)
        if run:
            await group.return_from(run)
            await asyncio.sleep(BETWEEN_SECONDS)
            await group.move_again()
            await asyncio.sleep(BETWEEN_SECONDS)
            await group.complete()
        return group.commands, await _ended(sides, flows, started), group.complaints


async def _by_flag(
    sides: Sides, programs: Mapping[str, list[str]], flows: Mapping[str, list[Flow]], folder: Path
) -> Steps:
    every = [flow for part in flows.values() for flow in part]
    with ExitStack() as stack:
        started = await _started(stack, sides, programs, flows, folder)
        done = await by_runbook(sides, every, folder.with_suffix(".run"), Strategy.REPLICATE)
        step = Command(FLAGGED, done.began, time.time_ns() // 1000)
        return [step], await _ended(sides, flows, started), done.complaints


async def _started(
    stack: ExitStack,
    sides: Sides,
    programs: Mapping[str, list[str]],
    flows: Mapping[str, list[Flow]],
    folder: Path,
    document: str = "",
) -> dict[str, Applications]:
    started = running_each(stack, programs, sides.blue.require_service_url(), flows, folder, document)
    await asyncio.sleep(WARM_SECONDS)
    return started


async def _ended(sides: Sides, flows: Mapping[str, list[Flow]], started: Mapping[str, Applications]) -> Seen:
    await asyncio.sleep(AFTER_SECONDS)
    for applications in started.values():
        applications.stop()
    await asyncio.sleep(READ_ON_SECONDS)
    gone = set()
    with suppress(NotFound):
        _, gone = await missing_on_green(sides, [flow for part in flows.values() for flow in part])
    return {name: applications.end() for name, applications in started.items()}, len(gone)


def _flows(programs: Mapping[str, object]) -> dict[str, list[Flow]]:
    count = TOPICS // len(programs)
    flows: dict[str, list[Flow]] = {}
    for name in programs:
        namespace = NamespaceName("moved", f"{name.split()[0].lower()}-{uuid.uuid4().hex[:6]}")
        flows[name] = [
            Flow(TopicName(namespace, f"t{number}"), RATE, type_, client=f"{name}/{number // 4}")
            for number, type_ in enumerate((TYPES * count)[:count])
        ]
    return flows


def _row(step: Command, until: int, flows: Mapping[str, Sequence[Flow]], events: Mapping[str, Events]) -> str:
    twice = breaks = 0
    silences: list[float] = []
    for name, found in events.items():
        for index, flow in enumerate(flows[name]):
            answer, key = found.answers[index], (index, "work")
            (times,) = writers(answer, 0)
            silences.append(silence(times, step.began, until))
            got, arrived = found.received.get(key, []), found.arrived.get(key, [])
            first, last = bisect_left(arrived, step.began), bisect_left(arrived, until)
            before, after = reading(answer, got[:first]), reading(answer, got[:last])
            twice += after.twice - before.twice
            # Two consumers of a shared subscription have no order between them.
            breaks += after.order_breaks - before.order_breaks if flow.type != "Shared" else 0
    silences.sort()
    seconds = (step.ended - step.began) / 1e6
    middle, longest = silences[len(silences) // 2], silences[-1]
    return f"{step.name:12} {seconds:10.1f} {twice:7,} {breaks:12} {middle:14.2f} {longest:10.2f}"


def _totals(flows: Mapping[str, Sequence[Flow]], events: Mapping[str, Events]) -> tuple[int, int]:
    """What nobody got, and producers that are stuck."""
    lost = stuck = 0
    for name, found in events.items():
        for index in range(len(flows[name])):
            answer = found.answers[index]
            lost += reading(answer, found.received.get((index, "work"), [])).missing
            stuck += is_stuck(writers(answer, 0)[0], found.stopped)
    return lost, stuck
