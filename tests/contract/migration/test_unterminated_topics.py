"""Topics that the flag does not terminate: one that its owner has ended, a shadow, one that is deleted in between."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.moved_namespace import MovedNamespace
from tests.support.waits import monitor_until_drained

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.polling import is_kept
from pulsar_fleet.ledger.rows import RecordedVerdict
from pulsar_fleet.migration import steps
from pulsar_fleet.migration.abort import abort_migration
from pulsar_fleet.migration.cutover.redirect import is_flagged
from pulsar_fleet.migration.model import Phase, Strategy
from pulsar_fleet.preflight.waivers import Waiver

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.mark.parametrize("strategy", [Strategy.REDIRECT, Strategy.REPLICATE], ids=str)
async def test_a_topic_that_its_owner_terminated_ends_on_green_too(moved: MovedNamespace, strategy: Strategy) -> None:
    feed = moved.topic("feed")
    await moved.blue.create_topic(feed)
    await moved.blue.create_subscription(feed, "archive")
    await moved.publish("feed", 5)
    await moved.blue.post(f"/{feed.path}/terminate")
    if strategy is Strategy.REDIRECT:
        await moved.blue.post(f"{feed.subscription_path('archive')}/skip_all")
    moves = await moved.until_cut_over(strategy)
    await moved.cut_over(moves)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    assert "terminatedPosition" in await moved.green.internal_info(feed)
    unread = (await moved.green.stats(feed))["subscriptions"]["archive"]["msgBacklog"]
    assert unread == (5 if strategy is Strategy.REPLICATE else 0)
    assert "terminatedPosition" not in await moved.green.internal_info(moved.topic("live"))


async def test_an_ended_topic_that_never_had_a_message_is_copied(moved: MovedNamespace) -> None:
    """Loaded again it has no ledger, and no cursor of it can be set to the earliest position."""
    feed = moved.topic("feed")
    await moved.blue.create_topic(feed)
    await moved.blue.create_subscription(feed, "archive")
    await moved.blue.post(f"/{feed.path}/terminate")
    await moved.blue.put(f"/{feed.path}/unload")
    moves = await moved.until_cut_over(Strategy.REPLICATE)
    await moved.cut_over(moves)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    assert "terminatedPosition" in await moved.green.internal_info(feed)
    assert "archive" in (await moved.green.stats(feed))["subscriptions"]


async def test_a_topic_that_blue_empties_behind_the_flag_is_copied(moved: MovedNamespace) -> None:
    """Nobody has to read its messages, so blue removes them when it has terminated the topic."""
    read = await make_read(moved)
    moves = await moved.until_cut_over(Strategy.REPLICATE)
    await moved.cut_over(moves)
    assert await is_emptied(moved.blue, read)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    assert verdict_of(moved).verdict == "copied"
    assert str(read) in verdict_of(moved).summary


@pytest.mark.long
@pytest.mark.migration
async def test_blue_may_remove_what_came_after_the_first_proof(moved: MovedNamespace) -> None:
    """Whether it empties the topic is chance; its copies on green are no messages of a client of green."""
    read = await make_read(moved)
    moves = await moved.until_cut_over(Strategy.REPLICATE)
    await moved.publish("read", 3)
    await moved.blue.put(f"/{read.path}/unload")
    await moved.cut_over(moves)
    emptied = await is_emptied(moved.blue, read)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    assert verdict_of(moved).verdict == ("copied" if emptied else "equal")


@pytest.mark.parametrize("drained", [False, True], ids=["before the drain", "after it"])
async def test_what_blue_unloads_behind_the_flag_is_loaded_for_proof(moved: MovedNamespace, drained: bool) -> None:
    """As a restarted broker does: it answers "already migrated" to every question about the topic."""
    feed = moved.topic("feed")
    await moved.blue.create_topic(feed)
    await moved.blue.create_subscription(feed, "archive")
    await moved.publish("feed", 5)
    moves = await moved.until_cut_over(Strategy.REPLICATE)
    await moved.cut_over(moves)
    if drained:
        await steps.verify_subscriptions(moved.sides, moved.run, moves)
        await monitor_until_drained(moved.sides, moved.run, moves, seconds=60, poll_seconds=0.5)
    await moved.blue.put(f"/{feed.path}/unload")
    with pytest.raises(Conflict, match="already migrated"):
        await moved.blue.internal_stats(feed)
    if drained:
        await steps.verify_messages(moved.sides, moved.run, moves)
    else:
        await moved.finish(moves)
    assert moved.phase in (Phase.VERIFIED, Phase.FINISHED)
    assert await is_flagged(moved.blue, moves.moves[0])


async def test_a_shadow_topic_is_refused_before_anything_changes(moved: MovedNamespace) -> None:
    await retain_everything(moved)
    await moved.make_shadow("shadow", of="live")
    with pytest.raises(PreconditionFailed, match="shadow-stays"):
        await steps.check_gates(moved.sides, moved.run, [moved.namespace], None)
    waiver = Waiver(id="shadow-stays", resource=str(moved.topic("shadow")), who="ann", why="its readers are gone")
    _, findings = await steps.check_gates(moved.sides, moved.run, [moved.namespace], None, waivers=[waiver])
    assert "shadow-stays" in {finding.id for finding in findings}


@pytest.mark.parametrize(
    "strategy", [Strategy.REDIRECT, pytest.param(Strategy.REPLICATE, marks=pytest.mark.long)], ids=str
)
async def test_one_topic_that_resists_stops_no_other(moved: MovedNamespace, strategy: Strategy) -> None:
    """It becomes a shadow topic behind the gates; the run ends incomplete, and complete when its reader has left."""
    late = moved.topic("late")
    await moved.blue.create_topic(late)
    await retain_everything(moved)
    moves = await moved.until_cut_over(strategy)
    await moved.blue.delete(f"/{late.path}", force=True)
    await moved.make_shadow("late", of="live")
    reader = await asyncio.to_thread(moved.client.subscribe, str(late), "late")
    await moved.cut_over(moves)
    with pytest.raises(PreconditionFailed, match=f"1 of 2 partitions is not terminated on blue.*\n  {late}: .*shadow"):
        await moved.finish(moves)
    assert moved.phase == Phase.INCOMPLETE
    assert {row.phase for row in moved.run.ledger.phases(moved.run.id)} >= {Phase.DRAINED, Phase.VERIFIED}
    await asyncio.to_thread(reader.close)
    await moved.finish(moves)
    assert moved.phase in (Phase.CLEANED, Phase.FINISHED)


@pytest.mark.parametrize("strategy", [Strategy.REDIRECT, Strategy.REPLICATE], ids=str)
async def test_a_topic_that_is_deleted_after_the_flag_stops_nothing(moved: MovedNamespace, strategy: Strategy) -> None:
    late = await make_late(moved, copied=strategy is Strategy.REPLICATE)
    moves = await moved.until_cut_over(strategy)
    await moved.cut_over(moves)
    await moved.blue.delete(f"/{late.path}", force=True)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED
    if strategy is Strategy.REPLICATE:
        assert (await moved.green.stats(late))["subscriptions"]["archive"]["msgBacklog"] == 5


async def test_a_copied_topic_that_is_deleted_before_the_flag_is_named(moved: MovedNamespace) -> None:
    late = await make_late(moved, copied=True)
    moves = await moved.until_cut_over(Strategy.REPLICATE)
    await moved.blue.delete(f"/{late.path}", force=True)
    with pytest.raises(PreconditionFailed, match=f"{late} had messages .* was deleted on blue since. Nothing was flag"):
        await moved.cut_over(moves)
    await abort_migration(moved.sides, moved.run, moves)
    assert await moved.blue.topics(moved.namespace) == (moved.topic("live"),)
    assert moved.phase == Phase.ABORTED


async def test_an_unread_topic_that_is_deleted_before_the_flag_is_empty(moved: MovedNamespace) -> None:
    late = await make_late(moved, copied=False)
    moves = await moved.until_cut_over(Strategy.REDIRECT)
    await moved.blue.delete(f"/{late.path}", force=True)
    await moved.cut_over(moves)
    await moved.finish(moves)
    assert moved.phase == Phase.FINISHED


async def make_read(moved: MovedNamespace) -> TopicName:
    """A topic whose messages nothing retains and nobody has to read, in a full ledger."""
    read = moved.topic("read")
    await moved.blue.create_topic(read)
    await moved.publish("read", 5)
    await moved.blue.put(f"/{read.path}/unload")
    return read


async def is_emptied(admin: AdminClient, topic: TopicName) -> bool:
    """Whether the broker removes all messages within 10 s of being asked to."""

    async def emptied() -> bool:
        await admin.post(f"/{topic.path}/trim")
        return not any(ledger["entries"] for ledger in (await admin.internal_stats(topic))["ledgers"])

    return await is_kept(emptied)


def verdict_of(moved: MovedNamespace) -> RecordedVerdict:
    (verdict,) = [row for row in moved.run.ledger.verdicts(moved.run.id) if row.scope == str(moved.namespace)]
    return verdict


async def make_late(moved: MovedNamespace, *, copied: bool) -> TopicName:
    """A second topic; with a subscription and unread messages where it is copied."""
    late = moved.topic("late")
    await moved.blue.create_topic(late)
    if copied:
        await moved.blue.create_subscription(late, "archive")
        await moved.publish("late", 5)
    return late


async def retain_everything(moved: MovedNamespace) -> None:
    """With less the broker deletes data of a shadow topic's source."""
    retention = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    await moved.blue.post(f"/namespaces/{moved.namespace.path}/retention", retention)
