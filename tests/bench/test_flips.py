"""Flips of topics under traffic: by hand, as the documentation says, and by the runbook, each on new clusters.

Plain, partitioned and geo-replicated topics, all four types of subscription, Java clients that send batches of 20 ms.
Deduplication is on: Java producers reconnect half a minute after the switch and send once more what is under way.
PULSAR_FLEET_BENCH_FLIPS: how often (default 1). PULSAR_FLEET_BENCH_RATE: messages/s and topic (default 250).
PULSAR_FLEET_BENCH_TOPICS: how many (default 24), a third of each kind.
PULSAR_FLEET_BENCH_BOOKIE: seconds for which blue's bookie stands still in each namespace's flip (default 0), on
clusters of two brokers.
PULSAR_FLEET_BENCH_QUIET: seconds of quiet to compare, a list (default: those of the runbook).
PULSAR_FLEET_BENCH_LEDGER: entries of a ledger (default: the brokers'), so that terminations meet its roll-over.
PULSAR_FLEET_BENCH_VERSION: of both clusters (default: that of the sandbox).
PULSAR_FLEET_BENCH_BUSY: busy loops beside it, each takes a core (default 0). In flight: the publishes that blue's
broker could not store because their topic had been terminated meanwhile, by its log.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.bench.applications import Events, Flow, is_stuck, reading, running, silence, writers
from tests.bench.busy_cores import busy
from tests.bench.clients_built import java_command
from tests.bench.flip_traffic import (
    Flipped,
    by_hand,
    by_runbook,
    fenced,
    make,
    missing_on_green,
    new_sides,
    replicate_by_hand,
)
from tests.bench.paused_bookie import paused_bookie

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.request import QUIESCE_SECONDS
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, jars_for

FLIPS = int(os.environ.get("PULSAR_FLEET_BENCH_FLIPS", "1"))
RATE = int(os.environ.get("PULSAR_FLEET_BENCH_RATE", "250"))
BUSY = int(os.environ.get("PULSAR_FLEET_BENCH_BUSY", "0"))
QUIET = [float(text) for text in os.environ.get("PULSAR_FLEET_BENCH_QUIET", str(QUIESCE_SECONDS)).split(",")]
TOPICS = int(os.environ.get("PULSAR_FLEET_BENCH_TOPICS", "24"))
BOOKIE = float(os.environ.get("PULSAR_FLEET_BENCH_BOOKIE", "0"))
LEDGER = os.environ.get("PULSAR_FLEET_BENCH_LEDGER", "")
SETTINGS = (
    {"managedLedgerMaxEntriesPerLedger": LEDGER, "managedLedgerMinLedgerRolloverTimeMinutes": "0"} if LEDGER else {}
)
# With full ledgers all the time, green would delete the copy before its cursors are set: a gate refuses it.
RETAINED = {"retention_policies": {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}} if LEDGER else {}
TYPES = (("Exclusive", "Failover", "Shared", "Key_Shared") * TOPICS)[: TOPICS // 3]
DEDUPLICATED = {"deduplicationEnabled": True}
WARM_SECONDS = 8.0
AFTER_SECONDS = 20.0
_TERMINATED = "Managed ledger was already terminated"


@dataclass(slots=True)
class Sum:
    """What the flips of one way did, added up; silences by kind in seconds, of the partitions that are not stuck."""

    topics: int = 0
    in_flight: int = 0
    fenced: int = 0
    stuck: int = 0
    gone: int = 0
    lost: int = 0
    twice: int = 0
    predicted: int = 0
    mispredicted: int = 0
    order_breaks: int = 0
    plain: list[float] = field(default_factory=list)
    partitioned: list[float] = field(default_factory=list)
    copied: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def text(self) -> str:
        """One row of the table."""
        ordered = sorted([*self.plain, *self.partitioned, *self.copied]) or [0.0]
        middle, longest = ordered[len(ordered) // 2], ordered[-1]
        kinds = "/".join(f"{max(seconds, default=0):.2f}" for seconds in (self.plain, self.partitioned, self.copied))
        return (
            f"{self.topics:6} {self.in_flight:9} {self.fenced:6} {self.stuck:5} {self.gone:9} {self.lost:5} "
            f"{self.twice:5} {self.predicted:9} {self.order_breaks:6}   {middle:6.2f} {longest:7.2f}  {kinds:14}   "
            f"{'/'.join(f'{rate:,.0f}' for rate in self.rates)}"
        )


HEAD = (
    f"{'':24} topics in flight fenced stuck consumers  lost twice predicted  order   silence, s     longest: plain/  "
    "messages/s\n"
    f"{'':24}                                   gone                   breaks   middle longest  parted/copied    before"
)


@pytest.mark.timeout(600 * FLIPS * (1 + len(QUIET)))
async def test_flips(tmp_path: Path) -> None:
    java = java_command(jars_for(DEFAULT_VERSION))
    ways = {"by hand": None, **{f"runbook, quiet {quiet:g} s": quiet for quiet in QUIET}}
    sums = {way: Sum() for way in ways}
    print(f"\n{FLIPS} flips of {len(TYPES) * 3} topics at {RATE} messages/s each, Java {DEFAULT_VERSION}\n{HEAD}")
    for number in range(FLIPS):
        for way, quiet in ways.items():
            folder = tmp_path / f"{number}-{way[:2]}{1000 * (quiet or 0):.0f}"
            with new_sides(folder, brokers=2 if BOOKIE else 1, **SETTINGS) as sides, busy(BUSY):
                result = await flip(sides, java, folder, quiet)
                result.in_flight = terminated_under_way(folder)
            print(f"{f'{number + 1}: {way}':24} {result.text()}", *result.complaints, sep="\n    ", flush=True)
            _add(sums[way], result)
    for way, total in sums.items():
        print(f"{f'all: {way}':24} {total.text()}", flush=True)
    for way in list(sums)[1:]:
        done = sums[way]
        assert (done.in_flight, done.fenced, done.stuck, done.gone, done.lost) == (0, 0, 0, 0, 0), way
        assert done.order_breaks == 0, way
        assert (done.mispredicted, done.complaints) == (0, [])


def terminated_under_way(folder: Path) -> int:
    """The publishes that a broker could not store because their topic had been terminated meanwhile."""
    logs = [log.read_text(errors="replace") for log in folder.rglob("pulsar.log")]
    return sum(_TERMINATED in line and "Failed to persist" in line for log in logs for line in log.splitlines())


async def flip(sides: Sides, java: list[str], folder: Path, quiet: float | None) -> Sum:
    """Flip new namespaces; by hand without `quiet`."""
    simple, replicated = _flows("moved")
    flows = [*simple, *replicated]
    await _warm(sides, java, folder)
    await make(sides.blue, flows, DEDUPLICATED | RETAINED)
    if quiet is None:
        await replicate_by_hand(sides, replicated)
    url = sides.blue.require_service_url()
    with running(java, url, flows, folder.with_suffix(".events")) as applications:
        await asyncio.sleep(WARM_SECONDS)
        names = {flow.topic.namespace for flow in flows}
        async with paused_bookie(folder, sides.blue, names, BOOKIE) if BOOKIE else nullcontext():
            done = await _flip(sides, simple, replicated, folder, quiet)
        await asyncio.sleep(AFTER_SECONDS)
        applications.stop()
        await asyncio.sleep(6)
        missing = await missing_on_green(sides, flows)
        closed = fenced(url, flows)
        events = applications.end()
    total = Sum(topics=len(flows), fenced=len({TopicName.parse(text).parent for text in closed}), gone=len(missing[1]))
    total.rates.append(events.rate(done[0].began))
    total.complaints += [text for flipped in done[: 1 if quiet is None else 2] for text in flipped.complaints]
    for index, flow in enumerate(flows):
        _count(total, events, index, flow, done[flow in simple], alive=(flow.topic, "work") not in missing[1])
    return total


async def _flip(
    sides: Sides, simple: Sequence[Flow], replicated: Sequence[Flow], folder: Path, quiet: float | None
) -> list[Flipped]:
    """Of the replicated flows, and of the others."""
    if quiet is None:
        return [await by_hand(sides, [*simple, *replicated], replicated)] * 2
    # What is copied goes first: the longer it runs, the more there is to prove.
    copied = by_runbook(sides, replicated, folder.with_suffix(".geo"), Strategy.REPLICATE, quiesce_seconds=quiet)
    return [await copied, await by_runbook(sides, simple, folder.with_suffix(".simple"), quiesce_seconds=quiet)]


async def _warm(sides: Sides, java: list[str], folder: Path) -> None:
    """Let green serve clients as a cluster in use does: a broker that has just started answers the first ones late."""
    flows = _flows("others")[0]
    await make(sides.green, flows, DEDUPLICATED)
    with running(java, sides.green.require_service_url(), flows, folder.with_suffix(".warm")):
        await asyncio.sleep(WARM_SECONDS)


def _flows(tenant: str) -> tuple[list[Flow], list[Flow]]:
    names = [NamespaceName(tenant, f"{kind}-{uuid.uuid4().hex[:6]}") for kind in ("plain", "parted", "geo")]
    plain, parted, geo = (
        [
            # Applications of four topics each: a Java client costs 5 % of a core before it does anything.
            Flow(TopicName(name, f"t{number}"), RATE, type_, partitions, client=f"{name.name}/{number // 4}")
            for number, type_ in enumerate(TYPES)
        ]
        for name, partitions in zip(names, (0, 2, 0), strict=True)
    )
    return [*plain, *parted], geo


def _count(total: Sum, events: Events, index: int, flow: Flow, done: Flipped, *, alive: bool) -> None:
    answer = events.answers[index]
    parts = writers(answer, flow.partitions)
    stuck = [is_stuck(times, events.stopped) for times in parts]
    total.stuck += any(stuck)
    silences = [silence(times, done.began) for times, bad in zip(parts, stuck, strict=True) if not bad]
    kind = "partitioned" if flow.partitions else "copied" if flow.topic.namespace.name.startswith("geo") else "plain"
    getattr(total, kind).extend(silences)
    got = reading(answer, events.received.get((index, "work"), []))
    total.lost += got.missing if alive else 0
    total.twice += got.twice
    # Two consumers of a shared subscription have no order between them.
    total.order_breaks += got.order_breaks if flow.type != "Shared" else 0
    predicted = done.predicted[flow.topic]
    total.predicted += predicted
    total.mispredicted += got.twice != predicted


def _add(total: Sum, result: Sum) -> None:
    for name in Sum.__slots__:
        setattr(total, name, getattr(total, name) + getattr(result, name))
