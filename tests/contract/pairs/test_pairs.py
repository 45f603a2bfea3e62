"""Each procedure on a namespace in each state: what applications get, what else changed, what the doctor says of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.pairs.procedures import PROCEDURES, Procedure
from tests.contract.pairs.states import BOTH, OUTCOMES, STATES, name_of, run, succeeded
from tests.contract.pairs.world import CLUSTERS, Link, World, changed, changed_lists
from tests.support.fleets import connection, shell_of
from tests.support.kinds import StartClusters
from tests.support.shell import Said, Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.failback.steps import close_reopened, reopen
from pulsar_fleet.migration.model import Phase
from pulsar_sandbox import Sandbox

RECORD = "PULSAR_FLEET_RECORD_PAIRS"
"""Set: how each pair ended, and why, is written to the file from which `make docs` makes the page."""
ERROR, REFUSED, PARTLY = 1, 4, 5
Outcome = dict[str, Any]
MIGRATED = frozenset({"namespace-migrated"})

pytestmark = [pytest.mark.long, pytest.mark.pairs, pytest.mark.fleet]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    if running := os.environ.get("PULSAR_FLEET_TEST_SANDBOX"):
        yield Sandbox.attach(running)
        return
    # When a broker deletes inactive topics is chance here: contract/migration/test_inactive_topics.py has it.
    settings = {name: {"brokerDeleteInactiveTopicsFrequencySeconds": "36000"} for name in CLUSTERS}
    with start_clusters(tmp_path_factory.mktemp("pairs"), clusters=CLUSTERS, settings=settings) as sandbox:
        yield sandbox


@pytest.fixture
def shell(three: Sandbox, records: Path) -> Shell:
    return shell_of(records, ("blue", "green"), {cluster.name: connection(cluster) for cluster in three})


@pytest.fixture
async def admins(three: Sandbox) -> AsyncIterator[dict[str, AdminClient]]:
    async with AsyncExitStack() as stack:
        yield {cluster.name: await stack.enter_async_context(AdminClient(connection(cluster))) for cluster in three}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.timeout(3600)
async def test_procedures_on_a_namespace_that_is(state: str, shell: Shell, admins: dict[str, AdminClient]) -> None:
    chosen = [name for name in PROCEDURES if re.search(os.environ.get("PULSAR_FLEET_PAIRS", ""), name)]
    worlds = {name: World(admins, name_of(state, name)) for name in chosen}
    for world in worlds.values():
        await world.make()
        await asyncio.to_thread(world.use)
    await STATES[state](shell, [*worlds.values()])
    found = {f"{state} / {name}": await pair(shell, worlds[name], PROCEDURES[name]) for name in chosen}
    assert {name: wrong for name, (_, wrong) in found.items() if wrong} == {}
    recorded, outcomes = json.loads(OUTCOMES.read_text()), {name: outcome for name, (outcome, _) in found.items()}
    if os.environ.get(RECORD):
        OUTCOMES.write_text(json.dumps(dict(sorted({**recorded, **outcomes}.items())), indent=1) + "\n")
    else:
        assert {name: one for name, one in outcomes.items() if not is_same(one, recorded[name])} == {}


@pytest.mark.parametrize("state", ["replicated one way", "lists by hand"])
async def test_a_list_that_stops_a_failback_is_set_by_the_printed_call(
    state: str, shell: Shell, admins: dict[str, AdminClient]
) -> None:
    """Its topics are removed on blue, and brokers refuse to remove a topic that is replicated (422, observed)."""
    world = await moved_from(state, shell, admins)
    back = ("fail-back", *BOTH, "--namespaces", world.namespace, "--allow-removal", "--strategy", "redirect", "--yes")
    before, said = await world.facts(), await run(shell, *back)
    assert (said.state, blockers(said)) == (REFUSED, ["replicated-from-blue"])
    if state == "replicated one way":
        left = await run(shell, "replicate", "blue", "--leaving", "green", "--namespaces", world.namespace, "--yes")
        assert (left.state, blockers(left)) == (REFUSED, ["namespace-migrated"]), left.out + left.err
    assert not changed(before, await world.facts())
    (path,) = re.findall(r"POST /admin/v2(\S+) \[\"blue\"\]", said.out + said.err)
    await admins["blue"].post(path, ["blue"])
    succeeded(await run(shell, *back))
    assert await asyncio.to_thread(world.finish) == []


@pytest.mark.parametrize("recreated", [False, True])
async def test_a_reopening_that_is_undone_delivers_nothing_again(
    recreated: bool, three: Sandbox, shell: Shell, admins: dict[str, AdminClient]
) -> None:
    """Blue's topics are loaded then, and if none was recreated have all that was read, without its subscriptions."""
    world = await moved_from("fresh", shell, admins)
    returned = Run.open("returned")
    returned.ledger.start_run(returned.id, "fail_back_namespaces", {})
    returned.ledger.enter_phase(returned.id, str(world.namespace), Phase.REOPENED)
    sides = Sides(*(connection(three[name]) for name in BOTH))
    if recreated:
        await reopen(sides, returned, [world.namespace])
    else:
        await set_flag(admins["blue"], world.namespace, migrated=False)
    assert await close_reopened(sides, returned, [world.namespace]) == (str(world.namespace),)
    returned.ledger.finish_run(returned.id, "failed")
    assert await asyncio.to_thread(world.finish) == []
    assert await asyncio.to_thread(world.finish) == []
    back = ("fail-back", *BOTH, "--namespaces", world.namespace, "--allow-removal", "--strategy", "redirect", "--yes")
    succeeded(await run(shell, *back))
    assert await asyncio.to_thread(world.finish) == []


async def moved_from(state: str, shell: Shell, admins: dict[str, AdminClient]) -> World:
    """A namespace that was moved to green in this state, whose application has read everything."""
    world = World(admins, name_of(state, "moved"))
    await world.make()
    await asyncio.to_thread(world.use, 20, None)
    await STATES[state](shell, [world])
    await asyncio.to_thread(world.use, 5, 3)
    await STATES["switched"](shell, [world])
    await asyncio.to_thread(world.use, 0, None)
    return world


def is_same(outcome: Outcome, recorded: Outcome) -> bool:
    """Whether it ended in the same way, for a reason that the page has: what clients do just then may add one."""
    shared = {*outcome["because"]} & {*recorded["because"]}
    return outcome["outcome"] == recorded["outcome"] and bool(shared or not recorded["because"])


async def pair(shell: Shell, world: World, procedure: Procedure) -> tuple[Outcome, list[str]]:
    """How it ended, with the reason where it did not go, and all that is wrong."""
    before, wrong = await world.facts(), list[str]()
    words = procedure.words(world)
    worked = set(world.links) - set(await world.broken(world.links))
    if procedure.dry:
        await run(shell, *words, "--dry-run")
        wrong += [f"the dry run changes {one}" for one in changed(before, await world.facts())]
    with world.live() if procedure.live else nullcontext():
        said = await run(shell, *words, *(("--yes",) if procedure.asks else ()))
    goes, refused = said.state in procedure.done, said.state in (ERROR, REFUSED)
    after = await world.facts()
    wrong += [f"changes {one}" for one in changed(before, after, procedure.changes if goes else ())]
    if procedure.equals:
        wrong += [f"begins or ends replication: {one}" for one in changed_lists(before, after)]
    if not goes and not refused:
        wrong.append(f"exit {said.state}: {sentence(said, world)}")
    if goes and procedure.repoints:
        world.place = procedure.repoints
    wrong += await asyncio.to_thread(world.finish, procedure.twice if goes else 0)
    lasting = (worked - procedure.ends(world)) | procedure.starts(world) if goes else worked
    if goes and procedure.repoints:
        # What applications publish there now goes on to where it went.
        lasting = {replace(link, source=procedure.repoints) for link in lasting if link.target not in BOTH}
    broken = await world.broken(lasting)
    wrong += [f"no longer delivers: {link}" for link in broken]
    wrong += await doctor(shell, world, lasting, broken, MIGRATED if goes and procedure.migrates else frozenset())
    ended = ("goes in part" if said.state == PARTLY else "goes") if goes else "refuses" if refused else "fails"
    return {"outcome": ended, "because": [] if goes else blockers(said) or [sentence(said, world)]}, wrong


async def doctor(shell: Shell, world: World, links: set[Link], broken: list[Link], known: frozenset[str]) -> list[str]:
    """Where its word differs from what was counted.

    :param known: faults that it should have although messages arrive: producers are redirected.
    """
    between = {link for link in links if link.source != link.target}
    if not between:
        return []
    only = [name for name in CLUSTERS if name not in {link.source for link in between}]
    named = {name for link in between for name in (link.source, link.target)}
    receives = [word for name in only if name in named for word in ("--receive-only", name)]
    said = await run(shell, "doctor", *sorted(named), *receives, "--select", world.namespace, "--json")
    faults = sorted({one["id"] for one in said.document["diagnoses"] if one.get("severity") == "fault"} - known)
    bad = [link for link in broken if link in between]
    if bad and not faults:
        return [f"the doctor has no fault, exit {said.state}"]
    return [f"the doctor sees {', '.join(faults)} where all links deliver"] if faults and not bad else []


def blockers(said: Said) -> list[str]:
    return sorted(set(re.findall(r"BLOCKER (\S+)", said.out + said.err)))


def sentence(said: Said, world: World) -> str:
    """The first one of what it says last, without the names and times of the test."""
    last = ((said.err or said.out).strip().splitlines() or [""])[-1]
    named = re.sub(r"cli/[\w-]+", "RUN", last.replace(world.namespace.tenant, "acme"))
    return re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]*\d", "TIME", named).partition(". ")[0]
