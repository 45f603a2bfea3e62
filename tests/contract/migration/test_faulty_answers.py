"""Steps whose calls have no effect, or no answer: no change counts as made, and nothing unread as fine."""

from __future__ import annotations

import pytest
from tests.support.moved_namespace import MovedNamespace
from tests.support.proxy import CallFault, answer, behind

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.links.cluster_lists import end_replication
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.cutover.redirect import Redirect, store_redirect
from pulsar_fleet.migration.cutover.termination import wait_producers_left
from pulsar_fleet.migration.drain.remediate import RemedyContext, remediate
from pulsar_fleet.migration.drain.state import Incident, IncidentKind, Remedy
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.prepare.overrides import QUIESCED_RATE, restore_publish_rates, throttle_producers

pytestmark = pytest.mark.cluster

RATE = {"publishThrottlingRateInMsg": 4000, "publishThrottlingRateInByte": -1}
ELSEWHERE = Redirect({"brokerServiceUrl": "pulsar://green.example:6650"}, ())


async def test_a_redirect_that_is_not_kept_is_refused(on_blue: AdminClient) -> None:
    async with behind(on_blue, CallFault("POST .*/migrate", answer(204))) as (admin, proxy):
        with pytest.raises(PreconditionFailed, match="blue did not keep the redirect to pulsar://green"):
            await store_redirect(admin, "blue", ELSEWHERE)
        assert proxy.calls("POST .*/migrate") == 1


async def test_producers_are_waited_for_while_a_broker_does_not_answer(moved: MovedNamespace) -> None:
    async with behind(moved.blue, CallFault("GET .*/live/stats", answer(500), times=1)) as (admin, proxy):
        await wait_producers_left(admin, [moved.topic("live")], 20)
        assert proxy.calls("GET .*/live/stats") == 2


async def test_a_publish_rate_that_cannot_be_restored_is_an_error(moved: MovedNamespace) -> None:
    live = moved.topic("live")
    await moved.blue.post(f"/{live.path}/publishRate", RATE)
    await frozen(moved, Strategy.REDIRECT)
    await throttle_producers(moved.blue, moved.namespace, moved.original, QUIESCED_RATE)
    async with behind(moved.blue, CallFault(f"(POST|DELETE) .*{live.path}/publishRate", answer(500))) as (admin, _):
        with pytest.raises(Unavailable):
            await restore_publish_rates(admin, moved.namespace, moved.original)
    assert await moved.blue.get(f"/namespaces/{moved.namespace.path}/publishRate") is None
    assert await restore_publish_rates(moved.blue, moved.namespace, moved.original) == (f"publish rate of {live}",)
    assert await restore_publish_rates(moved.blue, moved.namespace, moved.original) == ()


async def test_the_flag_is_set_again_when_a_topic_cannot_be_loaded(moved: MovedNamespace) -> None:
    moves = await moved.until_cut_over(Strategy.REDIRECT)
    await moved.cut_over(moves)
    incident = Incident(
        kind=IncidentKind.UNLOADED, namespace=str(moved.namespace), subject="", sentence="", remedy=Remedy.RELOAD
    )
    async with behind(moved.blue, CallFault("GET .*/live/stats", answer(500))) as (admin, proxy):
        context = RemedyContext(
            blue=admin,
            green=moved.green,
            move=moves.moves[0],
            redirect=ELSEWHERE,
            before=moved.original,
            run=moved.run,
        )
        assert await remediate(incident, context) is None
        assert proxy.calls("POST .*/migration") == 2
    assert (await moved.blue.namespace(moved.namespace) or {})["migrated"]


async def test_a_second_call_looks_whether_a_replicator_still_runs(moved: MovedNamespace) -> None:
    await steps.start_replication(moved.sides, moved.run, await frozen(moved, Strategy.REPLICATE))
    async with behind(moved.blue) as (admin, proxy):
        assert await end_replication(admin, "blue", moved.namespace, "green", ["blue"])
        asked = proxy.calls("GET .*/live/stats")
        assert not await end_replication(admin, "blue", moved.namespace, "green", ["blue"])
        assert proxy.calls("GET .*/live/stats") > asked


async def frozen(moved: MovedNamespace, strategy: Strategy) -> Moves:
    """Up to the point where the original settings of blue are stored."""
    reference, _ = await steps.check_gates(moved.sides, moved.run, [moved.namespace], strategy)
    moves = Moves.from_json(moved.run.artefacts.read_json(reference))
    await steps.prepare_green(moved.sides, moved.run, moves)
    await steps.freeze_blue(moved.sides, moved.run, moves)
    return moves
