"""One whole migration in a process of its own: what each step costs in admin calls, seconds and memory."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.waits import monitor_until_drained

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import DRAIN_STATE
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.prepare.target import prepare
from pulsar_fleet.migration.proof.steps import verify_copy, verify_messages, verify_subscriptions
from pulsar_fleet.migration.steps import (
    check_gates,
    clean_up_blue,
    cut_over,
    freeze_blue,
    recheck_gates,
    replication_progress,
    restore_blue,
    start_replication,
)
from pulsar_fleet.migration.subscriptions.transfer_plan import plan_transfers

POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CountingSides(Sides):
    """Adds up the calls of every client that a step opens."""

    calls_made: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[AdminClient, AdminClient]]:
        async with Sides.open(self) as (blue, green):
            try:
                yield blue, green
            finally:
                self.calls_made.append(blue.calls + green.calls)


class Kinds:
    """Counts all admin calls by kind."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        original, counts = BrokerHttp.call, self.seen

        async def call(http: BrokerHttp, method: str, path: str, **settings: Any) -> Any:
            counts[f"{method} {_kind(path)}"] += 1
            return await original(http, method, path, **settings)

        BrokerHttp.call = call  # type: ignore[method-assign]

    def take(self) -> dict[str, int]:
        taken = dict(self.seen.most_common())
        self.seen.clear()
        return taken


def _kind(path: str) -> str:
    topic = re.fullmatch(r"/admin/v\d/(?:persistent|schemas)/[^/]+/[^/]+/[^/]+(/.*)?", path)
    if topic is None:
        return re.sub(r"/(namespaces|tenants|clusters|persistent)/.*?(/[a-zA-Z]+)?$", r"/\1/…\2", path)
    domain = "schema" if "/schemas/" in path else "topic"
    return domain + re.sub(r"/subscription/[^/]+", "/subscription", topic[1] or "")


async def migrate(sides: CountingSides, run: Run, names: list[NamespaceName], report: Callable[..., None]) -> None:
    """The tasks of the runbook, one after the other."""
    kinds = Kinds()

    async def step(name: str, doing: Awaitable[Any]) -> Any:
        sides.calls_made.clear()
        _reset_peak()
        began, before = time.perf_counter(), _monitor_calls(run)
        result = await doing
        calls = sum(sides.calls_made) + _monitor_calls(run) - before
        report(step=name, calls=calls, seconds=time.perf_counter() - began, peak_mb=_peak_mb(), kinds=kinds.take())
        return result

    reference, _ = await step("check_gates", check_gates(sides, run, names, None))
    moves = Moves.from_json(run.artefacts.read_json(reference))
    await step("plan_transfers", _plan_transfers(sides, run, moves))
    await step("prepare_green", prepare(sides, run, moves))
    await step("recheck_gates", recheck_gates(sides, run, moves, expected=Expectations()))
    await step("freeze_blue", freeze_blue(sides, run, moves))
    before = find_original_settings(run)
    assert before is not None
    await step("start_replication", start_replication(sides, run, moves))
    await step("wait_replicated", _replicated(sides, run, moves))
    await step("verify_copy", verify_copy(sides, run, moves))
    await step("cut_over", cut_over(sides, run, moves, before, proof_max_age_minutes=60))
    await step("verify_subscriptions", verify_subscriptions(sides, run, moves))
    report(signal="cut_over")
    await step("wait_drained", monitor_until_drained(sides, run, moves, seconds=400, poll_seconds=POLL_SECONDS))
    await _end(step, sides, run, moves, before)
    report(strategies=dict(Counter(move.strategy.value for move in moves.moves)), polls=_drain_state(run)["polls"])


async def _end(
    step: Callable[..., Awaitable[Any]], sides: CountingSides, run: Run, moves: Moves, before: OriginalSettings
) -> None:
    await step("verify_messages", verify_messages(sides, run, moves))
    await step("clean_up_blue", clean_up_blue(sides, run, moves, before))
    await step("restore_blue", restore_blue(sides, run, before, delete_topics=False))


async def _plan_transfers(sides: Sides, run: Run, moves: Moves) -> None:
    async with sides.open() as (blue, _green):
        await plan_transfers(blue, run, moves)


async def _replicated(sides: Sides, run: Run, moves: Moves) -> None:
    while not (await replication_progress(sides, run, moves))[0]:
        await asyncio.sleep(POLL_SECONDS)


def _drain_state(run: Run) -> Any:
    kept = run.artefacts.find(run.id, DRAIN_STATE)
    return run.artefacts.read_json(kept) if kept else {"calls": 0, "polls": 0}


def _monitor_calls(run: Run) -> int:
    """The monitor opens its own clients, and stores their number of calls."""
    return int(_drain_state(run)["calls"])


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def main() -> None:
    """Arguments: two connections as JSON, a folder, and the namespaces; a line of JSON for each step."""
    blue, green = (ClusterConnection(**json.loads(text)) for text in sys.argv[1:3])
    folder, names = sys.argv[3], [NamespaceName.parse(text) for text in sys.argv[4:]]
    run = Run("bench", Ledger.open(f"sqlite:///{folder}/ledger.db"), Artefacts.open(f"{folder}/artefacts"))

    def told(**what: Any) -> None:
        print(json.dumps(what), flush=True)

    asyncio.run(migrate(CountingSides(blue, green), run, names, told))


if __name__ == "__main__":
    main()
