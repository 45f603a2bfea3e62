"""What each client does when its topics are flipped, by hand and by the runbook, and when it follows a document.

Written to docs/client_matrix.md.

PULSAR_FLEET_BENCH_CLIENTS: those whose name begins so, a list (default Java,Python,Go; each is moved by itself).
PULSAR_FLEET_BENCH_VERSION: of both clusters (default 4.2.4).
PULSAR_FLEET_BENCH_FLIPS: how often, added up (default 1). PULSAR_FLEET_BENCH_RATE: messages/s and topic (default 100).
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.bench.applications import (
    CHUNKED,
    TRANSACTED,
    Events,
    Flow,
    is_stuck,
    reading,
    running_each,
    silence,
    writers,
)
from tests.bench.clients_built import commands
from tests.bench.flip_traffic import by_hand, by_runbook, fenced, make, missing_on_green, new_sides
from tests.bench.followed import following
from tests.bench.matrix_page import with_rows

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.preflight.waivers import Waiver

GROUPS = os.environ.get("PULSAR_FLEET_BENCH_CLIENTS", "Java,Python,Go").split(",")
FLIPS = int(os.environ.get("PULSAR_FLEET_BENCH_FLIPS", "1"))
RATE = int(os.environ.get("PULSAR_FLEET_BENCH_RATE", "100"))
PAGE = Path(__file__).parents[2] / "docs" / "client_matrix.md"
TYPES = ("Exclusive", "Failover", "Shared", "Key_Shared")
DEDUPLICATED = ", deduplication on"
HAND, RUNBOOK = "by hand", "runbook"
FOLLOWING, EXACTLY = "by document", "by document, exact"
FOLLOWS = ("Java", "Python")
KINDS = (CHUNKED, TRANSACTED)
CHUNKED_RATE = 10
BETWEEN_SECONDS = 8.0
TRANSACTIONS = {"transactionCoordinatorEnabled": "true"}
WARM_SECONDS = 6.0
READ_ON_SECONDS = 6.0
# A Go producer is silent for its operation time-out, 30 s by default.
AFTER_SECONDS = {"Go": 45.0, "Java": 20.0}
# Their readers stop at the redirect, which the gates do not let pass.
STALLING = ("Python", "Java 3.0", "Go")
WAIVED = [Waiver(id="reader-stalls", who="the bench", why="what the reader does is to be seen")]


@dataclass(slots=True)
class Seen:
    """What one kind of reading did, added up over its topics."""

    topics: int = 0
    gone: int = 0
    missing: int = 0
    twice: int = 0
    order_breaks: int = 0

    def text(self, *, ordered: bool) -> str:
        """A cell of the table."""
        faults = [f"**{self.gone} of {self.topics} gone**"] if self.gone else []
        faults += [f"**{self.missing:,} not read**"] if self.missing else []
        faults += [f"{self.twice:,} twice"] if self.twice else []
        faults += [f"**{self.order_breaks} order breaks**"] if ordered and self.order_breaks else []
        return "; ".join(faults) or "ok"


@dataclass(slots=True)
class Row:
    """A client and a way to flip it."""

    client: str
    way: str
    topics: int = 0
    fenced: int = 0
    stuck: int = 0
    failed: int = 0
    silences: list[float] = field(default_factory=list)
    groups: dict[str, Seen] = field(default_factory=dict)

    def text(self) -> str:
        """The row of the table."""
        producers = [f"**{self.stuck} of {self.topics} stuck**"] if self.stuck else [f"{self.topics} followed"]
        producers += [f"**{self.fenced} stay fenced**"] if self.fenced else []
        producers += [f"{self.failed:,} sends failed"] if self.failed else []
        silent = f"{max(self.silences):.1f} s" if self.silences else "–"
        columns = (*TYPES, "pattern", "reader")
        columns += (CHUNKED, TRANSACTED) if self.way in (FOLLOWING, EXACTLY) else ()
        seen = [(self.groups.get(name), name not in ("Shared", "pattern")) for name in columns]
        cells = [totals.text(ordered=ordered) if totals else "–" for totals, ordered in seen]
        return f"| {' | '.join([self.client, self.way, '; '.join(producers), silent, *cells])} |"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("group", GROUPS)
async def test_clients(tmp_path: Path, group: str) -> None:
    clients = {client: command for client, command in commands().items() if client.startswith(group)}
    if group == "Go":
        clients |= {client + DEDUPLICATED: command for client, command in clients.items()}
    rows: dict[tuple[str, str], Row] = {}
    for number in range(FLIPS):
        for way in (HAND, RUNBOOK):
            folder = tmp_path / f"{number}-{way}".replace(" ", "-")
            with new_sides(folder) as sides:
                complaints = await flip(sides, clients, folder, way, rows)
            print(f"\n{number + 1}: {way}", *complaints, sep="\n    ", flush=True)
    lines = [rows[client, way].text() for client in clients for way in (HAND, RUNBOOK)]
    print(*lines, sep="\n", flush=True)
    PAGE.write_text(with_rows(PAGE.read_text(), "matrix", lines))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("way", [FOLLOWING, EXACTLY])
@pytest.mark.parametrize("group", [group for group in GROUPS if group.startswith(FOLLOWS)])
async def test_clients_that_follow(tmp_path: Path, group: str, way: str) -> None:
    """Each is moved, and returns."""
    clients = {client: command for client, command in commands().items() if client.startswith(group)}
    clients |= {client + DEDUPLICATED: command for client, command in list(clients.items())[:1]}
    folder = tmp_path / "followed"
    rows: dict[tuple[str, str], Row] = {}
    with new_sides(folder, **TRANSACTIONS) as sides:
        flows = {client: _followed_flows(client, way) for client in clients}
        for client, client_flows in flows.items():
            await make(sides.blue, client_flows, _policies(client))
        namespaces = [client_flows[0].topic.namespace for client_flows in flows.values()]
        began = time.time_ns() // 1000
        with (
            following(sides, folder.with_suffix(".run"), namespaces, exact=way == EXACTLY) as moved,
            ExitStack() as stack,
        ):
            started = running_each(stack, clients, sides.blue.require_service_url(), flows, folder, moved.document)
            await asyncio.sleep(WARM_SECONDS)
            await moved.replicate()
            if run := await moved.move_again():
                await asyncio.sleep(BETWEEN_SECONDS)
                await moved.return_from(run)
            await asyncio.sleep(AFTER_SECONDS["Java"])
            for applications in started.values():
                applications.stop()
            await asyncio.sleep(READ_ON_SECONDS)
            for client, applications in started.items():
                row = rows.setdefault((client, way), Row(client, way))
                _count(row, applications.end(), flows[client], began, set())
    lines = [row.text() for row in rows.values()]
    print(*lines, *moved.complaints, sep="\n", flush=True)
    PAGE.write_text(with_rows(PAGE.read_text(), "followed", lines))
    assert moved.complaints == []


async def flip(
    sides: Sides, clients: Mapping[str, list[str]], folder: Path, way: str, rows: dict[tuple[str, str], Row]
) -> list[str]:
    """Flip new namespaces, one of each client, and add what was seen to the rows; returns what the runbook said."""
    flows = {client: _flows(NamespaceName("bench", f"c{uuid.uuid4().hex[:8]}")) for client in clients}
    every = [flow for client_flows in flows.values() for flow in client_flows]
    for client, client_flows in flows.items():
        await make(sides.blue, client_flows, _policies(client))
    with ExitStack() as stack:
        started = running_each(stack, clients, sides.blue.require_service_url(), flows, folder)
        await asyncio.sleep(WARM_SECONDS)
        after = max(AFTER_SECONDS.get(client.split(" ")[0], 20.0) for client in clients)
        if way == HAND:
            done = await by_hand(sides, every)
        else:
            done = await by_runbook(
                sides, every, folder.with_suffix(".run"), drain_seconds=after, waivers=_waivers(clients)
            )
        await asyncio.sleep(after)
        for applications in started.values():
            applications.stop()
        await asyncio.sleep(READ_ON_SECONDS)
        _, gone = await missing_on_green(sides, every)
        closed = {TopicName.parse(text) for text in fenced(sides.blue.require_service_url(), every)}
        for client, applications in started.items():
            row = rows.setdefault((client, way), Row(client, way))
            _count(row, applications.end(), flows[client], done.began, gone)
            row.fenced += sum(flow.topic in closed for flow in flows[client])
    return done.complaints


def _waivers(clients: Mapping[str, object]) -> list[Waiver]:
    return WAIVED if any(client.startswith(STALLING) for client in clients) else []


def _flows(name: NamespaceName) -> list[Flow]:
    flows = [Flow(TopicName(name, type_.lower()), RATE, type_) for type_ in TYPES]
    flows += [Flow(TopicName(name, f"pattern-{number}"), RATE, pattern="pattern") for number in range(2)]
    return flows + [Flow(TopicName(name, f"read-{number}"), RATE, reader=True) for number in range(2)]


def _followed_flows(client: str, way: str) -> list[Flow]:
    name = NamespaceName("bench", f"f{uuid.uuid4().hex[:8]}")
    flows = _flows(name)
    if client.startswith("Java"):
        flows.append(Flow(TopicName(name, CHUNKED), CHUNKED_RATE, "Exclusive", kind=CHUNKED))
    if client.startswith("Java") and way == FOLLOWING:
        # Producers that are held cannot commit: with `exact` every transaction would be timed out, and awaited.
        flows.append(Flow(TopicName(name, TRANSACTED), RATE, "Exclusive", kind=TRANSACTED))
    return flows


def _policies(client: str) -> Mapping[str, object]:
    return {"deduplicationEnabled": True} if client.endswith(DEDUPLICATED) else {}


def _column(flow: Flow) -> str:
    return flow.kind if flow.kind in KINDS else flow.type


def _count(row: Row, events: Events, flows: Sequence[Flow], began: int, gone: set[tuple[TopicName, str]]) -> None:
    for index, flow in enumerate(flows):
        answer = events.answers[index]
        (times,) = writers(answer, 0)
        row.topics += 1
        row.failed += len(answer.failed)
        if is_stuck(times, events.stopped):
            row.stuck += 1
        else:
            row.silences.append(silence(times, began))
        group = "work" if flow.type else flow.pattern or "reader"
        totals = row.groups.setdefault(_column(flow) or group, Seen())
        got = reading(answer, events.received.get((index, group), []))
        is_gone = (flow.topic, group) in gone
        totals.topics += 1
        totals.gone += is_gone
        # What waits for a consumer that is gone is not lost.
        totals.missing += 0 if is_gone else got.missing
        totals.twice += got.twice
        totals.order_breaks += got.order_breaks
