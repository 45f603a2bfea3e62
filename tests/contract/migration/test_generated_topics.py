"""Generated namespaces: what could be read on blue can be read on green, or the run was refused before any change.

PULSAR_FLEET_GENERATED_RUNS: how many namespaces, 8 unless set: half a minute each. PULSAR_FLEET_GENERATED_FIRST: the
first seed, which is part of the test's name: with it and one run a failure is repeated.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import ATTACH_VARIABLE
from tests.support.generated_estate import RESISTS, build, lift_limits, set_limits
from tests.support.generated_topics import GeneratedNamespace, Kind, generate
from tests.support.kinds import StartClusters
from tests.support.moved_namespace import MovedNamespace
from tests.support.readable_messages import Readable, differences, read_all

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

log = logging.getLogger(__name__)

FIRST = int(os.environ.get("PULSAR_FLEET_GENERATED_FIRST", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("PULSAR_FLEET_GENERATED_RUNS", "8")))
# Inactive topics stay: a broker may delete one without subscriptions, with all that it holds, at any time.
SETTINGS = {"transactionCoordinatorEnabled": "true", "brokerDeleteInactiveTopicsEnabled": "false"}


@pytest.fixture(scope="module")
def transactional(
    tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[tuple[ClusterConnection, ClusterConnection]]:
    """Blue and green with transactions; a running sandbox that has them on request."""
    names = ("blue", "green")
    if running := os.environ.get(ATTACH_VARIABLE):
        sandbox = Sandbox.attach(running)
    else:
        folder = tmp_path_factory.mktemp("transactional")
        sandbox = start_clusters(folder, clusters=names, settings=dict.fromkeys(names, SETTINGS))
    with sandbox:
        blue, green = (
            ClusterConnection(name=name, admin_url=sandbox[name].admin_url, service_url=sandbox[name].service_url)
            for name in names
        )
        yield blue, green


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Counter[str]]:
    """How many runs and topics ended in which way."""
    counts: Counter[str] = Counter()
    yield counts
    log.warning("generated namespaces: %s", dict(counts))


@pytest.fixture
async def moved(
    transactional: tuple[ClusterConnection, ClusterConnection],
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> AsyncIterator[MovedNamespace]:
    """A namespace on blue with a topic `live`, and the run that moves it."""
    blue, green = transactional
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        moved = MovedNamespace.at(on_blue, on_green, new_namespace(), tmp_path)
        await moved.make()
        yield moved
        await moved.close()


@pytest.mark.parametrize("seed", SEEDS, ids="seed-{}".format)
async def test_what_was_readable_stays_readable(
    seed: int, moved: MovedNamespace, outcomes: Counter[str], tmp_path: Path
) -> None:
    generated = generate(seed)
    log.info("%s", generated)
    await build(moved, generated, tmp_path)
    before = await read_all(moved.blue, moved.namespace, generated)
    await set_limits(moved, generated)
    policies = await moved.blue.namespace(moved.namespace)
    try:
        moves = await moved.until_cut_over(None)
    except PreconditionFailed as refusal:
        if generated.refusal is None or generated.refusal not in str(refusal):
            raise
        await require_nothing_changed(moved, generated, policies, before)
        outcome = "refused"
    else:
        assert generated.refusal is None, f"{generated.refusal} was not reported"
        expected = Strategy.REDIRECT if generated.kind is Kind.DRAINED else Strategy.REPLICATE
        assert moves.moves[0].strategy is expected, moves.moves[0].reason
        outcome = await cut_over(moved, generated, moves)
        await lift_limits(moved, generated)
        after = await read_all(moved.green, moved.namespace, generated, before)
        assert differences(before, after, kept=kept_partitions(moved, generated)) == []
    outcomes.update({f"{outcome} runs": 1, f"{outcome} topics": len(generated.topics)})


async def cut_over(moved: MovedNamespace, generated: GeneratedNamespace, moves: Moves) -> str:
    """To the end of the run; says whether it was incomplete meanwhile."""
    if generated.kind is not Kind.RESISTING:
        await moved.cut_over(moves)
        await moved.finish(moves)
        assert moved.phase == Phase.FINISHED
        return "moved"
    await moved.blue.delete(f"/{moved.topic(RESISTS).path}", force=True)
    await moved.make_shadow(RESISTS, of="live")
    reader = await asyncio.to_thread(moved.client.subscribe, str(moved.topic(RESISTS)), RESISTS)
    await moved.cut_over(moves)
    with pytest.raises(PreconditionFailed, match=f"is incomplete: 1 of .*\n  {moved.topic(RESISTS)}: "):
        await moved.finish(moves)
    assert moved.phase == Phase.INCOMPLETE
    await asyncio.to_thread(reader.close)
    await moved.finish(moves)
    assert moved.phase in (Phase.CLEANED, Phase.FINISHED)
    return "incomplete"


async def require_nothing_changed(
    moved: MovedNamespace, generated: GeneratedNamespace, policies: JsonObject | None, before: dict[str, Readable]
) -> None:
    """The gates refused the run: blue is as it was, and serves everybody; green has nothing of it."""
    assert moved.phase is None
    assert await moved.blue.namespace(moved.namespace) == policies
    assert moved.namespace.tenant not in await moved.green.tenants()
    await lift_limits(moved, generated)
    after = await read_all(moved.blue, moved.namespace, generated, before)
    assert differences(before, after, kept=kept_partitions(moved, generated)) == []


def kept_partitions(moved: MovedNamespace, generated: GeneratedNamespace) -> frozenset[str]:
    """Those of which a broker may delete nothing."""
    return frozenset(
        str(partition)
        for topic in generated.topics
        if generated.retains(topic)
        for partition in moved.topic(topic.name).partitions(topic.partitions)
    )
