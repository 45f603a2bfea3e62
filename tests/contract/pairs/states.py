"""The states in which a procedure may find a namespace: each is made by real commands, for many namespaces at once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from tests.contract.pairs.world import Link, World
from tests.support.replication import know_each_other
from tests.support.shell import Said, Shell

from pulsar_fleet.clients.store import CLIENTS_VARIABLE
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.model import Strategy

OUTCOMES = Path(__file__).with_name("outcomes.json")
"""How each pair ended when the page was made: `state / procedure` → outcome and reason."""
DONE = 0
BOTH = ("blue", "green")
Worlds = Sequence[World]


def succeeded(said: Said) -> Said:
    assert said.state == DONE, said.out[-3000:] + said.err[-3000:]
    return said


def many(option: str, values: Sequence[object]) -> tuple[object, ...]:
    return tuple(word for value in values for word in (option, value))


def namespaces(worlds: Worlds) -> tuple[object, ...]:
    return many("--namespaces", [world.namespace for world in worlds])


def selected(worlds: Worlds) -> tuple[object, ...]:
    return many("--select", [world.namespace.tenant for world in worlds])


def links(world: World, *pairs: tuple[str, str], topics: Sequence[TopicName] = ()) -> set[Link]:
    return {Link(source, target, topic, topic) for source, target in pairs for topic in topics or world.topics}


async def fresh(shell: Shell, worlds: Worlds) -> None:
    """Only blue has it."""


async def onboarded(shell: Shell, worlds: Worlds) -> None:
    """Green has everything but its messages."""
    succeeded(await run(shell, "onboard", *BOTH, *selected(worlds), "--yes"))


async def reconciled(shell: Shell, worlds: Worlds) -> None:
    """Onboarded, and policies were kept equal twice, with a change between."""
    await onboarded(shell, worlds)
    await repair(shell, worlds)
    for world in worlds:
        await world.admins["blue"].post(f"/namespaces/{world.namespace.path}/messageTTL", 172_800)
    await repair(shell, worlds)


async def repair(shell: Shell, worlds: Worlds) -> None:
    succeeded(await run(shell, "reconcile", *BOTH, *selected(worlds), "--mode", "repair", "--yes"))


async def replicated(shell: Shell, worlds: Worlds) -> None:
    """Blue and green replicate it to each other."""
    succeeded(await run(shell, "replicate", *BOTH, *namespaces(worlds), "--yes"))
    for world in worlds:
        world.links |= links(world, ("blue", "green"), ("green", "blue"))


async def replicated_to_a_third(shell: Shell, worlds: Worlds) -> None:
    """The same, and c only receives."""
    succeeded(await run(shell, "replicate", *BOTH, "--receive-only", "c", *namespaces(worlds), "--yes"))
    for world in worlds:
        world.links |= links(world, ("blue", "green"), ("green", "blue"), ("blue", "c"), ("green", "c"))


async def replicated_one_way(shell: Shell, worlds: Worlds) -> None:
    """Blue replicates it to green, which only receives."""
    succeeded(await run(shell, "replicate", "blue", "--receive-only", "green", *namespaces(worlds), "--yes"))
    for world in worlds:
        world.links |= links(world, BOTH)


async def replicated_by_topic(shell: Shell, worlds: Worlds) -> None:
    """One of its topics is replicated, by a list of its own."""
    topics = many("--topics", [world.orders for world in worlds])
    succeeded(await run(shell, "replicate", *BOTH, *topics, "--yes"))
    for world in worlds:
        world.links |= links(world, ("blue", "green"), ("green", "blue"), topics=[world.orders])


async def lists_by_hand(shell: Shell, worlds: Worlds) -> None:
    """Somebody has given one topic a list of its own by plain calls, on blue only."""
    for world in worlds:
        green, tenant = world.admins["green"], world.namespace.tenant
        await know_each_other(world.admins["blue"], green)
        allowed = {"adminRoles": ["owner"], "allowedClusters": [*BOTH]}
        await world.admins["blue"].post(f"/tenants/{tenant}", allowed)
        await green.put(f"/tenants/{tenant}", allowed)
        await green.put_namespace(
            world.namespace, {"replication_clusters": ["green"], "message_ttl_in_seconds": 86_400}
        )
        await green.create_topic(world.orders)
        await world.admins["blue"].post(f"/{world.orders.path}/replication", [*BOTH])
        world.links |= links(world, ("blue", "green"), topics=[world.orders])


async def made_by_hand(shell: Shell, worlds: Worlds) -> None:
    """Somebody has made it on green by plain calls: without policies and permissions, with one topic."""
    for world in worlds:
        green, tenant = world.admins["green"], world.namespace.tenant
        await green.put(f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": ["green"]})
        await green.put_namespace(world.namespace, {"replication_clusters": ["green"]})
        await green.create_topic(world.orders)


async def served_inside(shell: Shell, worlds: Worlds) -> None:
    """A shadow topic on blue serves one of its topics to readers."""
    for world in worlds:
        command = ("serve-read-only", "blue", "--topics", world.orders, "--namespace", world.readers)
        succeeded(await run(shell, *command, "--yes"))
        world.links.add(Link("blue", "blue", world.orders, TopicName(world.readers, world.orders.local)))


async def served_elsewhere(shell: Shell, worlds: Worlds) -> None:
    """c has a read-only copy of one of its topics."""
    topics = many("--topics", [world.orders for world in worlds])
    succeeded(await run(shell, "serve-read-only", "blue", *topics, "--other-cluster", "c", "--yes"))
    for world in worlds:
        world.links |= links(world, ("blue", "c"), topics=[world.orders])


async def aborted(shell: Shell, worlds: Worlds) -> None:
    """A migration was stopped before its cut-over, and aborted."""
    now = datetime.now(UTC)
    closed = "/".join(f"{now + timedelta(hours=hours):%Y-%m-%dT%H:%M}" for hours in (-1, 1))
    options = (*namespaces(worlds), "--strategy", Strategy.REPLICATE, "--yes", "--json", "--freeze-windows", closed)
    stopped = await asyncio.to_thread(lambda: shell.interrupted("migrate", *BOTH, *options, after="wait_for_window"))
    (ran,) = stopped.document["runs"]
    succeeded(await run(shell, "abort", ran["run"], "--yes"))
    for world in worlds:
        world.run = ran["run"]


def migrated(strategy: Strategy) -> State:
    async def make(shell: Shell, worlds: Worlds) -> None:
        await migrate(shell, worlds, strategy)

    goes_on = (
        "its owner has connected its application to green"
        if strategy is Strategy.REPOINT
        else "its application goes on with blue's address"
    )
    make.__doc__ = f"Moved to green by *{strategy}*; {goes_on}."
    return make


async def migrate(shell: Shell, worlds: Worlds, strategy: Strategy) -> None:
    if strategy is Strategy.REDIRECT:
        for world in worlds:
            await asyncio.to_thread(world.use, 0, None)
    command = ("migrate", *BOTH, *namespaces(worlds), "--strategy", strategy)
    said = succeeded(await run(shell, *command, "--yes", "--json"))
    for world in worlds:
        world.run = said.document["runs"][0]["run"]
        if strategy is Strategy.REPOINT:
            world.place = "green"
        await asyncio.to_thread(world.use, 10, 4)


async def moved(shell: Shell, worlds: Worlds) -> None:
    """Replicated with its history; its application has followed a connection document to green."""
    succeeded(await run(shell, "replicate", *BOTH, *namespaces(worlds), "--history", "--yes"))
    for world in worlds:
        world.links |= links(world, ("blue", "green"), ("green", "blue"))
    shell.environment[CLIENTS_VARIABLE] = str(shell.folder / "clients")
    group = f"pairs-{uuid.uuid4().hex[:6]}"
    succeeded(await run(shell, "clients", "set", group, "blue", "--new", "--yes"))
    succeeded(await run(shell, "move-clients", *BOTH, "--group", group, *namespaces(worlds), "--yes"))
    for world in worlds:
        world.place = "green"
        await asyncio.to_thread(world.use, 10, 4)


async def completed(shell: Shell, worlds: Worlds) -> None:
    """The same, and the move was completed by *complete_move*."""
    await moved(shell, worlds)
    said = succeeded(await run(shell, "migrate", *BOTH, *namespaces(worlds), "--yes", "--json"))
    for world in worlds:
        world.run = said.document["runs"][0]["run"]
        world.links = set()
        await asyncio.to_thread(world.use, 10, 4)


async def failed_back(shell: Shell, worlds: Worlds) -> None:
    """Moved to green, used there, and moved back."""
    await migrate(shell, worlds, Strategy.REPLICATE)
    for world in worlds:
        # What was replicated to green cannot be replicated back: it is read there first.
        await asyncio.to_thread(world.use, 0, None)
    command = ("fail-back", *BOTH, *namespaces(worlds), "--allow-removal")
    succeeded(await run(shell, *command, "--strategy", Strategy.REDIRECT, "--yes"))


async def rebuilt(shell: Shell, worlds: Worlds) -> None:
    """Kept equal, then deleted on green and created there again, empty."""
    await reconciled(shell, worlds)
    for world in worlds:
        green, path = world.admins["green"], f"/namespaces/{world.namespace.path}"
        for topic in (world.orders.path, f"{world.events.path}/partitions"):
            await green.delete(f"/{topic}", force=True)
        await green.delete(path, force=False)
        await green.put_namespace(world.namespace, {"replication_clusters": ["green"]})


async def frozen(shell: Shell, worlds: Worlds) -> None:
    """The process of a migration was killed while messages were copied."""
    # One run each: the first command that takes over a dead run of them all would restore the others.
    for world in worlds:
        options = (*namespaces([world]), "--strategy", Strategy.REPLICATE, "--yes", "--json")
        before = {run.run_id for run in Ledger.open().migrations()}
        await asyncio.to_thread(partial(shell.killed, "migrate", *BOTH, *options, after="start_replication"))
        (world.run,) = {run.run_id for run in Ledger.open().migrations()} - before


async def followed(shell: Shell, worlds: Worlds) -> None:
    """Onboarded; changes of policies travel by events, and one has."""
    await onboarded(shell, worlds)
    command = ("sync-metadata", *BOTH, *selected(worlds), "--yes")
    succeeded(await run(shell, *command))
    for world in worlds:
        await world.admins["blue"].post(f"/namespaces/{world.namespace.path}/messageTTL", 172_800)
    succeeded(await run(shell, *command))


async def run(shell: Shell, *words: object) -> Said:
    return await asyncio.to_thread(shell.run, *words)


State = Callable[[Shell, Worlds], Awaitable[None]]
STATES: dict[str, State] = {
    "fresh": fresh,
    "onboarded": onboarded,
    "reconciled": reconciled,
    "replicated": replicated,
    "replicated to a third": replicated_to_a_third,
    "replicated one way": replicated_one_way,
    "replicated by topic": replicated_by_topic,
    "made by hand": made_by_hand,
    "lists by hand": lists_by_hand,
    "served inside": served_inside,
    "served elsewhere": served_elsewhere,
    "aborted": aborted,
    "redirected": migrated(Strategy.REDIRECT),
    "switched": migrated(Strategy.REPLICATE),
    "repointed": migrated(Strategy.REPOINT),
    "moved": moved,
    "completed": completed,
    "failed back": failed_back,
    "rebuilt": rebuilt,
    "followed": followed,
    "frozen": frozen,
}


def name_of(state: str, procedure: str) -> NamespaceName:
    """A tenant of its own for each pair."""
    return NamespaceName(f"{state}.{procedure}.{uuid.uuid4().hex[:4]}".replace(" ", "-"), "n")
