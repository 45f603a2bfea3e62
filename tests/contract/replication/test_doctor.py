"""The doctor on real clusters: bad states are named by their cause, and healthy ones are not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from tests.support.doctor_bad_states import BAD_STATES, SOUTH, WEST
from tests.support.doctor_healthy_states import HEALTHY_STATES, RECEIVE_ONLY
from tests.support.doctor_world import World, know_all, seed_states, world_of
from tests.support.fleets import connection
from tests.support.kinds import StartClusters

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.replication.doctor.model import Diagnosis, Examination, ReplicatorState, Severity
from pulsar_sandbox import Sandbox

NAMES = ("north", "south", "west")
SETTINGS = {
    WEST: {"createTopicToRemoteClusterForReplication": "false"},
    SOUTH: {"backlogQuotaCheckIntervalInSeconds": "2"},
}
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("doctor"), clusters=NAMES, settings=SETTINGS) as sandbox:
        yield sandbox


@dataclass
class Examined:
    """What the doctor said, before and after its calls were sent.

    :param tenants: state → its tenant.
    """

    tenants: dict[str, str]
    before: Examination
    after: Examination

    def named(self, state: str, examination: Examination) -> list[Diagnosis]:
        """The diagnoses of a state that a person must know."""
        if state in BAD_STATES and BAD_STATES[state].cluster:
            return [row for row in examination.diagnoses if row.id == state]
        rows = (row for row in examination.diagnoses if row.severity is not Severity.INFO)
        return [row for row in rows if is_of(self.tenants[state], row.resource)]

    def is_healed(self, state: str) -> bool:
        """Whether the second examination neither names the state nor has a replicator of it that does not work."""
        named = state in {row.id for row in self.named(state, self.after)}
        return not named and not any(row.state.is_fault for row in self.rows(state, self.after))

    def rows(self, state: str, examination: Examination) -> list[ReplicatorState]:
        """The replicators of a state that are not healthy."""
        return [row for row in examination.replicators if is_of(self.tenants[state], row.topic)]


def is_of(tenant: str, resource: str) -> bool:
    return tenant in re.split(r"[/ ]", resource)


def tenants(world: World, states: Iterable[str]) -> dict[str, str]:
    return {state: f"{world.namespace(state).tenant}" for state in states}


@pytest.fixture(scope="module")
def healthy(sandbox: Sandbox) -> Examined:
    """Every healthy state at once, examined while its clients are connected."""

    async def run(connections: Sequence[ClusterConnection]) -> Examined:
        async with world_of(connections) as world:
            await know_all(world)
            await seed_states(world, HEALTHY_STATES)
            both = [state for state in HEALTHY_STATES if state not in RECEIVE_ONLY]
            before = await world.examine(*both)
            receiving = await world.examine(*RECEIVE_ONLY, receive_only=frozenset({SOUTH}))
            return Examined(tenants(world, HEALTHY_STATES), before, receiving)

    return asyncio.run(run([connection(cluster) for cluster in sandbox]))


@pytest.mark.parametrize("state", HEALTHY_STATES)
def test_a_healthy_state_raises_no_alarm(healthy: Examined, state: str) -> None:
    examination = healthy.after if state in RECEIVE_ONLY else healthy.before
    assert healthy.named(state, examination) == []
    assert healthy.rows(state, examination) == []
    assert examination.is_complete


@pytest.fixture(scope="module")
def examined(sandbox: Sandbox) -> Examined:
    """Every bad state at once, examined, healed by the calls that suffice, and examined again."""

    async def run(connections: Sequence[ClusterConnection]) -> Examined:
        async with world_of(connections) as world:
            await know_all(world)
            await seed_states(world, {name: state.seed for name, state in BAD_STATES.items()})
            before = await world.examine(*BAD_STATES)
            healable = [row for row in before.diagnoses if (state := BAD_STATES.get(row.id)) and state.by_calls]
            for row in healable:
                await world.send_calls(row.calls)
            by_calls = [state for state, bad in BAD_STATES.items() if bad.by_calls]
            names = tenants(world, BAD_STATES)
            async with asyncio.timeout(150):
                while True:
                    result = Examined(names, before, await world.examine(*by_calls, connect_seconds=0))
                    if all(result.is_healed(state) for state in by_calls):
                        return result
                    await asyncio.sleep(2)

    return asyncio.run(run([connection(cluster) for cluster in sandbox]))


# Of the two topics of a state, the one that shares the connection of the limited one is held back too.
CONSEQUENCES = {"target-publish-limited": {"connection-held-back"}}


@pytest.mark.parametrize("state", BAD_STATES)
def test_a_bad_state_is_named_by_its_cause(examined: Examined, state: str) -> None:
    rows = examined.named(state, examined.before)
    assert state in {row.id for row in rows}
    faults = {row.id for row in rows if row.severity is Severity.FAULT}
    assert faults <= {state, *CONSEQUENCES.get(state, ())}, [row.text() for row in rows]


@pytest.mark.parametrize("state", [state for state, bad in BAD_STATES.items() if bad.by_calls])
def test_the_printed_calls_heal_where_calls_suffice(examined: Examined, state: str) -> None:
    assert examined.is_healed(state), examined.named(state, examined.after)


def test_receive_only_is_what_the_request_says(examined: Examined, healthy: Examined) -> None:
    """Without it, a list on one side is a warning."""
    assert {row.id for row in examined.named("one-way", examined.before)} == {"one-way"}
    assert healthy.after.diagnoses == ()
