"""The run of a command: its id, its records, and the plan for two clusters."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cli.clusters import ReachedCluster
from pulsar_fleet.cli.text import compared_line
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.onboarding.steps import plan_onboarding, probe_target_schemas, read_findings, read_plan, take_snapshot
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.waivers import Waiver


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPair:
    """The result of planning two clusters.

    :param line: what was compared, and the missing permissions of the roles, if any.
    """

    plan: Plan
    findings: tuple[Finding, ...]
    line: str


def new_run_id(command: str) -> str:
    """`cli/plan-20261121T160000-9f3c`: the time, and a suffix for runs that start in the same second."""
    return f"cli/{command}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


@contextmanager
def recorded_run(run_id: str, command: str, conf: JsonObject) -> Iterator[Run]:
    """The records of a run; the ledger stores the request and whether the block succeeded."""
    run = Run.open(run_id)
    run.ledger.start_run(run_id, command, conf)
    try:
        yield run
    except BaseException:
        run.ledger.finish_run(run_id, "failed")
        raise
    run.ledger.finish_run(run_id, "succeeded")


async def plan_pair(
    source: ReachedCluster,
    target: ReachedCluster,
    selection: Selection,
    run: Run,
    *,
    subscriptions: bool = True,
    lag_hours: int = 0,
    waivers: Sequence[Waiver] = (),
) -> PlannedPair:
    """Read both clusters, check and plan with the same steps as the DAG; nothing is changed."""
    began = time.monotonic()
    ours, theirs = await asyncio.gather(
        take_snapshot(
            source.connection,
            selection,
            run.artefacts,
            run.id,
            name="source",
            must_exist=not selection.everything,
        ),
        take_snapshot(target.connection, selection, run.artefacts, run.id, name="target"),
    )
    planned = plan_onboarding(
        ours,
        theirs,
        run.artefacts,
        run.id,
        subscriptions=subscriptions,
        lag_seconds=lag_hours * 3600,
        answers=await probe_target_schemas(target.connection, ours, theirs, run.artefacts),
        waivers=waivers,
    )
    compared = compared_line(ours, theirs, time.monotonic() - began)
    return PlannedPair(
        plan=read_plan(run.artefacts, planned),
        findings=read_findings(run.artefacts, planned),
        line="\n\n".join(text for text in (compared, ours.rights, theirs.rights) if text),
    )
