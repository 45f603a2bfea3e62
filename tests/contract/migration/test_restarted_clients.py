"""After a migration an application restarts with the old address: it goes on where it was, on the other cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

import pulsar
import pytest
from tests.support.migration import forget_migrations
from tests.support.moved_namespace import MovedNamespace
from tests.support.restarted_clients import RestartedClient, publish, read_all, restart

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.versions import REDIRECTS_WITHOUT_WAITING
from pulsar_fleet.migration.cleanup import read_leftovers
from pulsar_fleet.migration.model import Phase, Strategy
from pulsar_fleet.migration.preflight.view import Expectations
from pulsar_fleet.migration.repoint.steps import repoint_progress

pytestmark = [pytest.mark.cluster, pytest.mark.versions, pytest.mark.timeout(300)]
redirects = pytest.mark.needs_pulsar("4.0", "it redirects no single namespace")
redirects_at_once = pytest.mark.needs_pulsar(
    "4.0.12", "its brokers stand still when several clients of unloaded topics are redirected at once"
)

STORED = [f"before-{number}" for number in range(20)]
ACKNOWLEDGED = 12
LATER = [f"after-{number}" for number in range(5)]
KINDS = (
    pulsar.ConsumerType.Exclusive,
    pulsar.ConsumerType.Shared,
    pulsar.ConsumerType.Failover,
    pulsar.ConsumerType.KeyShared,
)
EARLIEST, LATEST = POSITIONS = (pulsar.InitialPosition.Earliest, pulsar.InitialPosition.Latest)
RESTARTS = 3

Expected = dict[RestartedClient, Counter[str]]


def clients_of(moved: MovedNamespace) -> list[RestartedClient]:
    """One for each type and initial position, one of a topic with partitions, two by pattern."""
    return [
        *(
            RestartedClient(moved.topic(f"{kind.name}-{position.name}".lower()), kind, position)
            for kind in KINDS
            for position in POSITIONS
        ),
        RestartedClient(moved.topic("parts")),
        RestartedClient(moved.topic("every-earliest"), by_pattern=True),
        RestartedClient(moved.topic("every-latest"), by_pattern=True, position=LATEST),
    ]


def topics_of(clients: Iterable[RestartedClient]) -> list[TopicName]:
    return [client.topic for client in clients]


async def make(moved: MovedNamespace, clients: Sequence[RestartedClient], acknowledged: int) -> Expected:
    """Topics on blue whose subscriptions have acknowledged some messages; nobody is connected. What each lacks."""
    for client in clients:
        if client.topic.local == "parts":
            await moved.blue.create_partitioned_topic(client.topic, 3)
        else:
            await moved.blue.create_topic(client.topic)
        await moved.blue.create_subscription(client.topic, client.subscription)
    await asyncio.to_thread(publish, moved.blue.connection, topics_of(clients), STORED)
    calls = (asyncio.to_thread(client.acknowledge, moved.blue.connection, acknowledged) for client in clients)
    return {
        client: Counter(STORED) - Counter(texts)
        for client, texts in zip(clients, await asyncio.gather(*calls), strict=True)
    }


async def require_continued(moved: MovedNamespace, lacking: Expected) -> None:
    """Restart the applications with the old address, three times: each message once, none again, none missed."""
    blue, green = moved.blue.connection, moved.green.connection
    await asyncio.to_thread(publish, green, topics_of(lacking), LATER)
    expected = {client: count + Counter(LATER) for client, count in lacking.items()}
    for _ in range(RESTARTS):
        assert await restart(blue, expected) == {}
        expected = {client: Counter() for client in lacking}


async def require_as_on_green(moved: MovedNamespace, topic: TopicName) -> None:
    """A subscription that is new, and a reader, get through blue what they get through green."""
    blue, green = moved.blue.connection, moved.green.connection
    new, other = (RestartedClient(topic, subscription=name) for name in ("new", "other"))
    through_green = Counter(await asyncio.to_thread(other.consume, green, len(LATER)))
    assert await restart(blue, {new: through_green}) == {}
    read = Counter(await asyncio.to_thread(read_all, green, topic, len(LATER)))
    assert Counter(await asyncio.to_thread(read_all, blue, topic, read.total())) == read


@pytest.mark.long
@redirects_at_once
@pytest.mark.parametrize(
    ("strategy", "acknowledged"), [(Strategy.REDIRECT, len(STORED)), (Strategy.REPLICATE, ACKNOWLEDGED)]
)
async def test_clients_that_restart_through_blue_go_on_where_they_were(
    moved: MovedNamespace, strategy: Strategy, acknowledged: int
) -> None:
    lacking = await make(moved, clients_of(moved), acknowledged)
    moves = await moved.until_cut_over(strategy)
    await moved.cut_over(moves)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    await require_continued(moved, lacking)
    await require_as_on_green(moved, next(iter(lacking)).topic)
    # Each task after the cut-over may be cleared: nothing is loaded again, nothing more is removed.
    await moved.finish(moves)
    assert (await read_leftovers(moved.blue, moves.moves[0])).loaded == ()
    await require_continued(moved, {client: Counter() for client in lacking})


@redirects_at_once
@pytest.mark.long
async def test_clients_that_restart_go_on_after_a_failback_and_another_move(
    moved: MovedNamespace,
) -> None:
    lacking = await make(moved, clients_of(moved), len(STORED))
    moves = await moved.until_cut_over(Strategy.REDIRECT)
    await moved.cut_over(moves)
    await moved.finish(moves)
    await require_continued(moved, lacking)
    way = moved
    for _ in range(2):
        await way.restore()
        way = way.returned()
        await way.reopen()
        moves = await way.until_cut_over(Strategy.REDIRECT, Expectations(is_failback=True))
        await way.cut_over(moves)
        await way.finish(moves)
        assert way.phase == Phase.FINISHED
        await require_continued(way, lacking)
        await require_as_on_green(way, next(iter(lacking)).topic)
    await way.restore()
    await forget_migrations(way.blue, way.green)


@redirects
async def test_what_is_unread_stays_loaded_and_an_ended_topic_does_not(moved: MovedNamespace) -> None:
    live, ended = moved.topic("live"), moved.topic("ended")
    await moved.blue.create_topic(ended)
    await asyncio.to_thread(publish, moved.blue.connection, [ended], STORED)
    await moved.blue.post(f"/{ended.path}/terminate")
    moves = await moved.until_cut_over(Strategy.REDIRECT)
    await moved.cut_over(moves)
    await moved.finish(moves, unload=False)
    left = await read_leftovers(moved.blue, moves.moves[0])
    assert set(left.loaded) == {str(live), str(ended)}
    assert "blue still serves 2 of them: an application that restarts through it" in left.text("blue")

    # As an application does that restarts before the clean-up, and stops before it has read everything.
    await moved.blue.create_subscription(live, "late")
    await moved.finish(moves)
    left = await read_leftovers(moved.blue, moves.moves[0])
    assert left.subscriptions == (f"{live} · late",)
    document = moved.run.stored("findings.json") or []
    unloads = REDIRECTS_WITHOUT_WAITING.holds(await moved.blue.version())
    assert ("restart-repeats" in {finding["id"] for finding in document}) is not unloads
    assert set(left.loaded) == ({str(live)} if unloads else {str(live), str(ended)})


@pytest.mark.long
async def test_clients_that_restart_where_nothing_redirects_repeat_nothing(moved: MovedNamespace) -> None:
    """Their subscriptions stay there, at their end; connected to the other cluster, they miss nothing."""
    lacking = await make(moved, clients_of(moved), ACKNOWLEDGED)
    moves = await moved.until_cut_over(Strategy.REPOINT)
    await repoint_progress(moved.sides, moved.run, moves)
    await moved.cut_over(moves)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    for _ in range(RESTARTS):
        assert await restart(moved.blue.connection, {client: Counter() for client in lacking}) == {}
    await asyncio.to_thread(publish, moved.green.connection, topics_of(lacking), LATER)
    expected = {client: count + Counter(LATER) for client, count in lacking.items()}
    assert await restart(moved.green.connection, expected) == {}
