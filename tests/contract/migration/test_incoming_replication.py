"""A third cluster replicates into the namespace that moves: refused, and moved with nothing lost after the remedy."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

import pulsar
import pytest
from tests.support.applications import Publisher, Subscriber
from tests.support.kinds import StartClusters
from tests.support.proxy import Proxy
from tests.support.replication import know_each_other, wait_linked
from tests.support.shell import Shell
from tests.support.waits import monitor_until_drained, wait_replicated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.overrides import PROPERTY, is_held
from pulsar_fleet.cluster.statistics import cursors_in_stats, replicator_cursor
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.abort import abort_migration
from pulsar_fleet.migration.artefacts import FINDINGS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.namespace_cutover import CutOverResult, NamespaceCutOver
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.prepare.dead_runs import find_overrides, restore_overrides
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.third_clusters import Incoming
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.preflight.waivers import Waiver
from pulsar_sandbox import Sandbox

INBOUND = "replicates-into-blue"
RECORDS = "files"
WAIVER = Waiver(id=INBOUND, who="Ada", why="to see what the run does")
PER_SECOND = 60.0
SELDOM = "clusterMigrationCheckDurationSeconds"


@dataclass
class World:
    """A namespace on blue with applications, into which `far` replicates what its own producers publish."""

    blue: AdminClient
    green: AdminClient
    far: AdminClient
    run: Run
    namespace: NamespaceName

    both_ways: bool = False
    own_lists: bool = False

    def __post_init__(self) -> None:
        self.events, self.audit = TopicName(self.namespace, "events"), TopicName(self.namespace, "audit")
        self.partitions = [*self.events.partitions(3), self.audit]
        self.sides = Sides(self.blue.connection, self.green.connection, 5.0)
        self.led = replace(self.sides, thirds=(self.far.connection,))
        self.on_far = [
            Subscriber(self.events, "billing-of-far"),
            Subscriber(self.audit, "ledger-of-far", pulsar.ConsumerType.Failover),
        ]
        self.of_far = [
            Publisher(self.events, ["a", "b", "c"], per_second=PER_SECOND),
            Publisher(self.audit, ["d"], per_second=PER_SECOND / 2),
        ]
        self.of_blue = [
            Publisher(self.events, ["e", "f", "g"], per_second=PER_SECOND),
            Publisher(self.audit, ["h"], per_second=PER_SECOND / 2),
        ]
        self.subscribers = [
            Subscriber(self.events, "billing"),
            Subscriber(self.events, "fraud", pulsar.ConsumerType.KeyShared),
            Subscriber(self.audit, "ledger", pulsar.ConsumerType.Failover),
        ]

    async def make(self) -> None:
        tenant, path = f"/tenants/{self.namespace.tenant}", f"/namespaces/{self.namespace.path}"
        for admin, other in ((self.blue, "far"), (self.far, "blue")):
            own = await admin.cluster_name()
            await admin.put(tenant, {"adminRoles": [], "allowedClusters": [own, other]})
            await admin.put_namespace(self.namespace, {"replication_clusters": [own]})
            await admin.create_partitioned_topic(self.events, 3)
            await admin.create_topic(self.audit)
        owners = [f"/{topic.path}" for topic in (self.events, self.audit)] if self.own_lists else [path]
        for owner in owners:
            await self.far.post(f"{owner}/replication", ["far", "blue"])
        await wait_linked(self.far, self.partitions, "blue")
        if self.both_ways:
            for subscriber in self.on_far:
                subscriber.start(self.far.connection)
            await self.blue.post(f"{path}/replication", ["blue", "far"])
            await wait_linked(self.blue, self.partitions, "far")
        for application in (*self.subscribers, *self.of_blue):
            application.start(self.blue.connection)
        for publisher in self.of_far:
            publisher.start(self.far.connection)
        await asyncio.sleep(2)

    async def check(
        self, run: Run, strategy: Strategy, waivers: Sequence[Waiver] = (), sides: Sides | None = None
    ) -> Moves:
        reference, _ = await steps.check_gates(
            sides or self.sides, run, [self.namespace], strategy, expected=Expectations(), waivers=waivers
        )
        return Moves.from_json(run.artefacts.read_json(reference))

    async def pause_far(self) -> None:
        """What the remedy says, on far, whose producers start again after the cut-over."""
        for publisher in self.of_far:
            await asyncio.to_thread(publisher.stop)
        async with asyncio.timeout(30):
            for part in self.partitions:
                while (await self.far.stats(part))["replication"]["blue"]["replicationBacklog"]:
                    await asyncio.sleep(0.1)
        await self.replicate_to_green()

    async def replicate_to_green(self) -> None:
        tenant = f"/tenants/{self.namespace.tenant}"
        await self.far.post(tenant, {"adminRoles": [], "allowedClusters": ["far", "blue", "green"]})
        await self.far.post(f"/namespaces/{self.namespace.path}/replication", ["far", "green"])

    async def continue_on_green(self) -> int:
        """What the page says for producers that do not stop; returns how many messages may come twice."""
        before = self.published()
        await asyncio.sleep(1)  # a replicator confirms a message after green has it
        for part in self.partitions:
            cursor = cursors_in_stats(await self.far.internal_stats(part))[replicator_cursor("blue")]
            done = cursor.mark_delete
            position = {"ledgerId": done.ledger, "entryId": done.entry + 1, "partitionIndex": -1}
            await self.far.put(f"/{part.path}/subscription/{replicator_cursor('green')}", position)
        await self.replicate_to_green()
        await wait_linked(self.far, self.partitions, "green")
        return self.published() - before

    def published(self) -> int:
        return sum(len(publisher.sent) for publisher in self.of_far)

    async def passed(self) -> Moves:
        """The gates' answer when blue's statistics no longer have the connection."""
        async with asyncio.timeout(100):
            while True:
                try:
                    return await self.check(self.run, Strategy.REDIRECT)
                except PreconditionFailed:
                    assert blockers(self.run) == {INBOUND}
                    await asyncio.sleep(3)

    async def prepare(self, moves: Moves, sides: Sides | None = None) -> None:
        sides = sides or self.sides
        await steps.prepare_green(sides, self.run, moves)
        await steps.recheck_gates(sides, self.run, moves, expected=Expectations(), waivers=[WAIVER])
        await steps.freeze_blue(sides, self.run, moves)
        await steps.start_replication(sides, self.run, moves)
        await wait_replicated(sides, self.run, moves, seconds=60, poll_seconds=0.5, progress=str)
        await steps.verify_copy(sides, self.run, moves)

    async def move(self, moves: Moves, sides: Sides | None = None) -> None:
        await self.prepare(moves, sides)
        await self.switch(moves, sides or self.sides)

    async def switch(self, moves: Moves, sides: Sides) -> None:
        original = find_original_settings(self.run)
        assert original is not None
        await steps.cut_over(sides, self.run, moves, original, proof_max_age_minutes=60)
        await monitor_until_drained(sides, self.run, moves, seconds=60, poll_seconds=1)
        await steps.verify_messages(sides, self.run, moves)
        await steps.clean_up_blue(sides, self.run, moves, original)
        await steps.restore_blue(sides, self.run, original, delete_topics=False)

    async def settle_later(self, *, twice: int = 0) -> None:
        """As `settle`, after two more seconds of traffic."""
        await asyncio.sleep(2)
        await self.settle(twice=twice)

    async def settle(self, *, twice: int = 0) -> None:
        """Stop publishing; every subscription gets everything of both clusters, in the order of each key."""
        for publisher in (*self.of_far, *self.of_blue):
            await asyncio.to_thread(publisher.stop)
        for subscriber in self.readers:
            publishers = [
                publisher for publisher in (*self.of_far, *self.of_blue) if publisher.topic == subscriber.topic
            ]
            sent = [message for publisher in publishers for message in publisher.sent]
            async with asyncio.timeout(30):
                while subscriber.received.lost(sent):
                    await asyncio.sleep(0.2)
            assert subscriber.received.out_of_order() == []
            assert subscriber.received.twice() <= twice, subscriber.subscription
        assert [error for application in self.applications for error in application.errors] == []

    async def lists_and_overrides(self) -> tuple[set[str], JsonObject, JsonObject]:
        document = await self.far.namespace(self.namespace) or {}
        return {*document["replication_clusters"]}, document["replicatorDispatchRate"], document["properties"]

    @property
    def readers(self) -> list[Subscriber]:
        return [*self.subscribers, *(self.on_far if self.both_ways else ())]

    @property
    def applications(self) -> list[Publisher | Subscriber]:
        return [*self.of_far, *self.of_blue, *self.readers]


def blockers(run: Run) -> set[str]:
    findings = [Finding.from_json(document) for document in run.stored(FINDINGS)]
    return {finding.id for finding in findings if finding.severity is Severity.BLOCKER}


@pytest.fixture(scope="module")
def three(
    tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters, request: pytest.FixtureRequest
) -> Iterator[Sandbox]:
    """Blue, green and far; far may have a version of its own, and blue check flags as seldom as `SELDOM` says."""
    options: dict[str, Any] = {}
    if kind := getattr(request, "param", ""):
        options = {"settings": {"blue": {SELDOM: "60"}}} if kind == SELDOM else {"version": {"far": kind}}
    with start_clusters(tmp_path_factory.mktemp("three"), clusters=("blue", "green", "far"), **options) as sandbox:
        yield sandbox


def opened(folder: Path) -> Run:
    return Run("moved", Ledger.open(f"sqlite:///{folder / 'ledger.db'}"), Artefacts.open(str(folder / RECORDS)))


@pytest.fixture
async def world(
    three: Sandbox, new_namespace: Callable[[], NamespaceName], tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[World]:
    run = opened(tmp_path)
    async with AsyncExitStack() as stack:
        blue, green, far = [
            await stack.enter_async_context(
                AdminClient(
                    ClusterConnection(name=name, admin_url=three[name].admin_url, service_url=three[name].service_url)
                )
            )
            for name in ("blue", "green", "far")
        ]
        await know_each_other(far, blue)
        await know_each_other(far, green)
        kind = getattr(request, "param", "")
        world = World(blue, green, far, run, new_namespace(), bool(kind), own_lists=kind == "own lists")
        await world.make()
        yield world
        for application in world.applications:
            await asyncio.to_thread(application.stop)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_third_cluster_that_replicates_to_green_first_loses_nothing(world: World) -> None:
    with pytest.raises(PreconditionFailed, match=rf"{INBOUND}[\s\S]*far's replication backlog to blue is 0"):
        await world.check(world.run, Strategy.REDIRECT)
    await world.pause_far()
    await world.move(await world.passed())
    for publisher in world.of_far:
        publisher.start(world.far.connection)
    await wait_linked(world.far, world.partitions, "green")
    # A redirected replicator can be refused half a minute after it connected; these do not go through blue.
    await asyncio.sleep(35)
    for part in world.partitions:
        assert (await world.far.stats(part))["replication"]["green"]["connected"]
    await world.settle()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", ["both ways"], indirect=True)
async def test_the_run_leads_a_third_clusters_replication_to_green(world: World) -> None:
    moves = await world.check(world.run, Strategy.REDIRECT, sides=world.led)
    await world.move(moves, world.led)
    assert await world.lists_and_overrides() == ({"far", "green"}, {}, {})
    await world.settle_later()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", ["both ways"], indirect=True)
@pytest.mark.parametrize(("three", "twice"), [("3.0.7", 0), ("4.0.7", 50), ("5.0.1", 0)], indirect=["three"])
async def test_a_third_cluster_of_another_version_is_led(world: World, twice: int) -> None:
    """Topics of 4.0.7 are unloaded, see `start_replicators`: who reconnects repeats what was under way."""
    await world.move(await world.check(world.run, Strategy.REDIRECT, sides=world.led), world.led)
    assert await world.lists_and_overrides() == ({"far", "green"}, {}, {})
    await world.settle_later(twice=twice)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("world", ["both ways"], indirect=True)
async def test_commands_lead_a_third_cluster_there_and_back(world: World, records: Path) -> None:
    shell = Shell.between(records, world.blue.connection, world.green.connection)
    what = ("--namespaces", world.namespace, "--strategy", "redirect", "--yes", "--json")
    far = ("--third-clusters", world.far.connection.admin_url)
    without, away = shell.at_once(
        ("migrate", *shell.sides, *what), ("migrate", *shell.sides, *what, "--third-clusters", "http://127.0.0.1:9")
    )
    assert (without.state, "name a connection to far in third_clusters" in without.err) == (4, True)
    assert (away.state, away.document["runs"][0]["error"]["code"]) == (1, "unavailable")
    assert "The third cluster 'http://127.0.0.1:9' does not answer" in away.err
    there = await asyncio.to_thread(shell.run, "migrate", *shell.sides, *what, *far)
    assert there.state == 0, there.err
    assert await world.lists_and_overrides() == ({"far", "green"}, {}, {})
    # Blue refuses a producer that comes back over its old connection, until its process is restarted (observed).
    for publisher in world.of_blue:
        await asyncio.to_thread(publisher.restart, world.green.connection)
    await asyncio.sleep(2)
    back = await asyncio.to_thread(shell.run, "fail-back", *shell.sides, *what, *far, "--allow-removal")
    assert back.state == 0, back.err
    assert await world.lists_and_overrides() == ({"far", "blue"}, {}, {})
    await world.settle_later()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", ["own lists"], indirect=True)
async def test_topics_with_lists_of_their_own_are_led(world: World) -> None:
    await world.move(await world.check(world.run, Strategy.REDIRECT, sides=world.led), world.led)
    assert await world.lists_and_overrides() == ({"far"}, {}, {})
    for topic in (world.events, world.audit):
        assert {*await world.far.get(f"/{topic.path}/replication")} == {"far", "green"}
    await world.settle_later()


class KillAt(Proxy):
    """Kills a process when the broker has answered its first call of a kind."""

    def __init__(self, upstream: str, call: str) -> None:
        super().__init__(upstream)
        self.pid, self._call = 0, call

    async def _forward(self, head: bytes, body: bytes) -> bytes:
        answered = await super()._forward(head, body)
        if self.pid and re.match(self._call, head.decode()):
            pid, self.pid = self.pid, 0
            os.kill(pid, signal.SIGKILL)
        return answered


def cut_over_alone(sides: Sides, folder: Path) -> None:
    run = opened(folder)
    moves, original = find_moves(run), find_original_settings(run)
    assert moves is not None
    assert original is not None
    asyncio.run(steps.cut_over(sides, run, moves, original, proof_max_age_minutes=60))


async def killed_in_the_cut_over(world: World, call: str, folder: Path) -> Moves:
    """What moves; the process that cuts it over was killed by its first call of a kind to far."""
    moves = await world.check(world.run, Strategy.REDIRECT, sides=world.led)
    await world.prepare(moves, world.led)
    async with KillAt(world.far.connection.admin_url, call) as proxy:
        sides = replace(world.led, thirds=(replace(world.far.connection, admin_url=proxy.url),))
        process = get_context("forkserver").Process(target=cut_over_alone, args=(sides, folder))
        process.start()
        proxy.pid = process.pid or 0
        await asyncio.to_thread(process.join, 120)
    assert process.exitcode == -signal.SIGKILL
    return moves


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", ["", "both ways"], indirect=True, ids=["one-way", "both-ways"])
@pytest.mark.parametrize(
    ("call", "twice"),
    [
        (r"POST \S*/namespaces/\S*/replicatorDispatchRate", 0),
        # Lifted behind the flag, the replicators follow the redirect, and repeat what was under way.
        (r"PUT \S*/subscription/pulsar\.repl\.green", 20),
        (r"POST \S*/replication ", 0),
    ],
    ids=["held", "begun", "led"],
)
async def test_a_run_that_is_killed_while_it_leads_loses_nothing(
    world: World, call: str, twice: int, tmp_path: Path
) -> None:
    moves = await killed_in_the_cut_over(world, call, tmp_path)
    _, rate, properties = await world.lists_and_overrides()
    assert (is_held(rate["far"]), {*properties}) == (True, {PROPERTY})
    left = await find_overrides(world.far, ended=world.run.id)
    assert [one.overridden for one in left.namespaces] == [("dispatch rate of replicators",)]
    # What somebody does who finds it at night: `pulsar-fleet restore far`.
    await restore_overrides(world.far, ended=world.run.id)
    assert (await world.lists_and_overrides())[1:] == ({}, {})
    await world.switch(moves, world.led)
    assert await world.lists_and_overrides() == ({"far", "green"}, {}, {})
    await world.settle_later(twice=twice)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("world", ["both ways"], indirect=True)
@pytest.mark.parametrize(
    ("three", "twice", "lifted"), [("4.0.7", 50, False), ("4.0.7", 50, True), ("4.2.4", 0, False)], indirect=["three"]
)
async def test_an_abort_lets_a_third_cluster_go_on_as_before(
    world: World, twice: int, lifted: bool, tmp_path: Path
) -> None:
    moves = await killed_in_the_cut_over(world, r"POST \S*/namespaces/\S*/replicatorDispatchRate", tmp_path)
    if lifted:
        # As a process leaves it that dies before it has started the replicators again.
        await world.far.delete(f"/namespaces/{world.namespace.path}/replicatorDispatchRate")
    aborted = await abort_migration(world.led, world.run, moves)
    assert any(line.endswith("on far") for line in aborted.overrides) is not lifted
    assert await world.lists_and_overrides() == ({"far", "blue"}, {}, {})
    await world.settle_later(twice=twice)


@pytest.fixture
async def further(world: World, tmp_path: Path, start_clusters: StartClusters) -> AsyncIterator[AdminClient]:
    """A cluster that replicates into the namespace as far does, from a producer of its own."""
    with start_clusters(tmp_path / "further", clusters=("further",)) as sandbox:
        cluster = sandbox["further"]
        connection = ClusterConnection(name="further", admin_url=cluster.admin_url, service_url=cluster.service_url)
        async with AdminClient(connection) as admin:
            await know_each_other(admin, world.blue)
            await know_each_other(admin, world.green)
            names = ["further", "blue"]
            await admin.put(f"/tenants/{world.namespace.tenant}", {"adminRoles": [], "allowedClusters": names})
            await admin.put_namespace(world.namespace, {"replication_clusters": ["further"]})
            await admin.post(f"/namespaces/{world.namespace.path}/allowedClusters", names)
            await admin.create_topic(world.audit)
            await admin.post(f"/namespaces/{world.namespace.path}/replication", names)
            await wait_linked(admin, [world.audit], "blue")
            world.of_far.append(Publisher(world.audit, ["z"], per_second=PER_SECOND / 2))
            world.of_far[-1].start(connection)
            world.led = replace(world.led, thirds=(*world.led.thirds, connection))
            yield admin
            await asyncio.to_thread(world.of_far[-1].stop)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_several_third_clusters_are_led(world: World, further: AdminClient) -> None:
    """One of them allows its namespace certain clusters only: brokers refuse all others in its list."""
    await world.move(await world.check(world.run, Strategy.REDIRECT, sides=world.led), world.led)
    assert await world.lists_and_overrides() == ({"far", "green"}, {}, {})
    document = await further.namespace(world.namespace) or {}
    assert ({*document["replication_clusters"]}, document["properties"]) == ({"further", "green"}, {})
    assert {*document["allowed_clusters"]} == {"further", "blue", "green"}
    await world.settle_later()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_of_several_third_clusters_the_others_go_on_when_one_is_gone(world: World, further: AdminClient) -> None:
    moves = await world.check(world.run, Strategy.REDIRECT, sides=world.led)
    await world.prepare(moves, world.led)
    for third, name in ((further, "further"), (world.far, "far")):
        held = await Incoming.find(third, name, world.namespace, old="blue", new="green")
        assert held is not None
        await held.hold(world.run, world.led)
    gone = replace(world.far.connection, admin_url="http://127.0.0.1:9")
    without = replace(world.led, thirds=(gone, further.connection), retry_seconds=1.0)
    aborted = await abort_migration(without, world.run, moves)
    assert any("third cluster" in line and "does not answer" in line for line in aborted.kept)
    assert ((await further.namespace(world.namespace)) or {})["replicatorDispatchRate"] == {}
    left = await find_overrides(world.far, ended=world.run.id)
    assert [one.overridden for one in left.namespaces] == [("dispatch rate of replicators",)]
    await restore_overrides(world.far, ended=world.run.id)
    await world.settle_later()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("three", [SELDOM], indirect=True)
async def test_a_flag_that_has_terminated_nothing_leads_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The namespace may stay on blue then, and so does what far replicates into it."""
    moves = await world.check(world.run, Strategy.REDIRECT, sides=world.led)
    await world.prepare(moves, world.led)
    original = find_original_settings(world.run)
    assert original is not None

    async def fails(*_: object, **__: object) -> NoReturn:
        _, rate, _ = await world.lists_and_overrides()
        assert is_held(rate["far"])
        await world.blue.post(f"/namespaces/{world.namespace.path}/migration", True)
        raise PreconditionFailed("nothing is terminated")

    monkeypatch.setattr(NamespaceCutOver, "redirect", fails)
    with pytest.raises(PreconditionFailed, match=r"^nothing is terminated$"):
        await steps.cut_over(world.led, world.run, moves, original, proof_max_age_minutes=60)
    assert await world.lists_and_overrides() == ({"far", "blue"}, {}, {})
    await abort_migration(world.led, world.run, moves)
    await world.settle_later()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_topic_that_far_makes_while_it_is_held_is_led_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, redirect = TopicName(world.namespace, "late"), NamespaceCutOver.redirect
    publisher = Publisher(late, ["l"], per_second=PER_SECOND)

    async def publishes(*args: Any, **options: Any) -> CutOverResult:
        await world.far.create_topic(late)
        publisher.start(world.far.connection)
        await wait_linked(world.far, [late], "blue")
        return await redirect(*args, **options)

    monkeypatch.setattr(NamespaceCutOver, "redirect", publishes)
    await world.move(await world.check(world.run, Strategy.REDIRECT, sides=world.led), world.led)
    await asyncio.to_thread(publisher.stop)
    assert await world.lists_and_overrides() == ({"far", "green"}, {}, {})
    subscribers = [Subscriber(late, "all"), Subscriber(late, "all")]
    for subscriber, admin in zip(subscribers, (world.blue, world.green), strict=True):
        subscriber.start(admin.connection)
    async with asyncio.timeout(30):
        while set(publisher.sent) - {message for subscriber in subscribers for message in subscriber.received.messages}:
            await asyncio.sleep(0.2)
    for subscriber in subscribers:
        await asyncio.to_thread(subscriber.stop)
    await world.settle()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_replicator_follows_the_redirect_and_goes_on_to_green(world: World) -> None:
    await world.move(await world.check(world.run, Strategy.REDIRECT, [WAIVER]))
    await asyncio.sleep(35)  # until green may refuse it
    twice = await world.continue_on_green()
    await asyncio.sleep(1)
    await world.settle(twice=twice)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_copy_that_lacks_messages_of_the_third_cluster_is_not_cut_over(world: World) -> None:
    moves = await world.check(world.run, Strategy.REPLICATE, [WAIVER])
    with pytest.raises(PreconditionFailed, match="replicated from a third cluster"):
        await world.prepare(moves)
    assert not (await world.blue.namespace(world.namespace) or {}).get("migrated")
    await world.settle()
