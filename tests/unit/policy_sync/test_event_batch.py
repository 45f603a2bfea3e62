"""What becomes of a batch of events, and what a run says about it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import EventType, MetadataChangeEvent, ResourceType
from pulsar_fleet.policy_sync.events.event_topic import Received
from pulsar_fleet.policy_sync.events.fleet import Outages
from pulsar_fleet.policy_sync.events.follower import _Follower
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.results import Batch, SyncSummary, Tally, Waiting
from pulsar_fleet.policy_sync.events.versions import Version
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions
from pulsar_fleet.policy_sync.merge.view import Item
from pulsar_fleet.report.document import Outcome
from pulsar_fleet.report.metadata import failure, headline, lines, metadata_report, metrics

ITEM: Item = (Resource.NAMESPACE, "acme/orders")


def received(name: str, **times: int) -> Received:
    event = MetadataChangeEvent(
        type=EventType.MODIFIED,
        resource=ResourceType.NAMESPACES,
        resource_name=name,
        data={
            "values": dict.fromkeys(times, 1),
            "times": {field: [at, "red"] for field, at in times.items()},
            "made_with": {},
        },
        source_cluster="red",
        update_time=max(times.values()),
    )
    return holding(event.encode())


def holding(content: bytes) -> Received:
    message: Any = object()
    return Received(message, content)


def test_only_who_brought_what_failed_is_put_away() -> None:
    first, second = received("acme/orders", ttl=1), received("acme/orders", quota=2)
    batch = Batch.of([first, second], Request().includes, frozenset())
    batch.finish(ITEM, {"quota": Version(2, "red")}, "too much")
    assert (batch.applied, batch.refused) == ([first], {second: "too much"})


def test_an_excluded_event_is_dropped_and_one_held_by_a_migration_retried() -> None:
    own, busy, other = (
        received("pulsar-fleet/metadata", ttl=1),
        received("acme/moving", ttl=1),
        received("acme/a", ttl=1),
    )
    batch = Batch.of([own, busy, other], Request().includes, {"acme/moving"})
    assert (batch.dropped, batch.postponed, list(batch.events)) == ([own], [busy], [(Resource.NAMESPACE, "acme/a")])
    assert batch.waiting == {(Resource.NAMESPACE, "acme/moving"): "its namespace is in a migration"}


def test_a_cluster_that_lacks_a_part_is_reported_incomplete() -> None:
    lacking = found(lacks=("acme/a: it is in a migration on green",))
    assert "INCOMPLETE: blue" in headline(lacking)
    assert metadata_report(lacking).outcome is Outcome.ATTENTION
    assert "once this has ended: acme/a: it is in a migration on green" in metadata_report(lacking).markdown()


def test_a_run_says_what_waits_for_what_and_since_when() -> None:
    waits = Waiting(since="2026-11-22T05:00:00+00:00", why="blue does not answer")
    waiting = found(waiting={"namespace acme/a": waits, "namespace acme/b": waits})
    line = (
        "blue: events of 2 resources wait since 2026-11-22T05:00:00+00:00, first namespace acme/a: blue does not answer"
    )
    assert line in metadata_report(waiting).markdown()


async def test_a_follower_says_once_what_waits_and_when_nothing_does() -> None:
    participant: Any = SimpleNamespace(own="green", waiting={})
    outages: Any = None
    said: list[str] = []
    follower = _Follower(
        participant=participant,
        tally=Tally(),
        outages=outages,
        stopped=asyncio.Event(),
        say=said.append,
        snapshot_due=False,
    )
    waits = Waiting(since="2026-11-22T05:00:00+00:00", why="blue does not answer")
    for waiting in ({}, {ITEM: waits}, {ITEM: waits}, {}, {}):
        participant.waiting = waiting
        follower._report_waiting()
    assert said == [
        "green: events of 1 resource wait since 2026-11-22T05:00:00+00:00, first namespace acme/orders: blue does not "
        "answer",
        "green: no event waits any more",
    ]


def test_no_event_stops_the_others() -> None:
    stray, other = holding(b"\x00"), received("acme/a", ttl=1)
    batch = Batch.of([stray, other], Request().includes, frozenset())
    assert ("not a MetadataChangeEvent" in batch.refused[stray], len(batch.events)) == (True, 1)


def found(**changes: Any) -> SyncSummary:
    return SyncSummary(
        fleet=("blue", "green"),
        clusters={"blue": Tally(**{"active": True, **changes})},
        behind={},
        since={},
        behind_seconds={},
        changed=(),
        seconds=1.0,
    )


def test_a_run_in_which_all_went_well_has_nothing_for_a_person() -> None:
    quiet = found(published=2, applied=1)
    assert headline(quiet) == "2 events published, 1 applied on blue"
    assert (lines(quiet), failure(quiet)) == ([], "")


def test_a_run_says_what_it_put_away_and_who_is_behind_since_when() -> None:
    bad = replace(
        found(refused=1, reasons=["too much"]),
        behind={"pulsar_green": "it does not answer"},
        since={"green": "2026-11-22T05:00:00+00:00"},
        behind_seconds={"green": 61.0},
    )
    assert "1 NOT APPLIED, BEHIND: pulsar_green" in headline(bad)
    assert failure(bad) == (
        "1 event dead-lettered, first: too much; pulsar_green is behind: it does not answer; "
        "green is unreachable since 2026-11-22T05:00:00+00:00"
    )
    assert "green: unreachable since 2026-11-22T05:00:00+00:00" in metadata_report(bad).markdown()
    gauges = {name: value for name, value in metrics(bad).items() if "behind" in name}
    assert gauges == {"clusters_behind": 1, "behind_seconds.blue": 0, "behind_seconds.green": 61}


def test_a_run_says_which_cluster_its_events_wait_for() -> None:
    waiting = found(unsent={"green": 3})
    assert "3 events wait on blue for green" in metadata_report(waiting).markdown()
    assert (metrics(waiting)["unsent.green"], metrics(waiting)["unsent.blue"]) == (3, 0)


def test_a_waiting_deletion_is_listed_and_a_refused_one_fails_the_run() -> None:
    command = "pulsar-fleet sync-metadata pulsar_blue --propagate-deletes approve --allow 3f2a91c0"
    batch = PendingDeletions(id="3f2a91c0", resources=("tenant acme: deleted on green",), command=command)
    waiting = found(pending_deletions=batch, kept_edits=["the edit wins"], new_topics=["orders: 3 partitions"])
    report = metadata_report(waiting).markdown()
    for text in (command, "tenant acme: deleted on green", "the edit wins", "blue: new topic orders: 3 partitions"):
        assert text in report
    assert (metrics(waiting)["pending_deletions"], failure(waiting)) == (1, "")
    refused = found(not_deleted=["topic x: has a backlog"], deleted=2)
    assert (failure(refused), metrics(refused)["deleted"]) == ("not deleted: topic x: has a backlog", 2)


def test_edits_that_whole_documents_took_back_are_said() -> None:
    assert "2 edits LOST to whole documents" in headline(found(lost=2))


def test_an_outage_is_as_old_as_its_first_report_until_the_cluster_answers(records: Path) -> None:
    ledger, topic = Run.open("sync/1").ledger, Request().event_topic
    run, follower = Outages(ledger, topic), Outages(ledger, topic)
    assert follower.begin("never_seen")[0] == "never_seen"
    run.end("pulsar_green", "green")
    follower.end("localhost:8080", "green")
    first = follower.begin("localhost:8080")
    assert (first[0], run.begin("pulsar_green")) == ("green", first)
    run.end("pulsar_green", "green")
    assert follower.begin("localhost:8080")[1] > first[1]


def test_a_run_beside_a_follower_says_that_it_left_the_events_to_it() -> None:
    assert "a follower is active" in lines(found(active=False))[0]
