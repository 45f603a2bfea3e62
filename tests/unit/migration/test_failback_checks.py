"""The interlocks of the way back, the proof of placements, and what a stop leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.migration_view import REDIRECT, view, with_facts, with_green, with_policies_of, with_survey

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.abort import unused_only
from pulsar_fleet.migration.artefacts import MOVES, WAVE_MOVES
from pulsar_fleet.migration.cleanup import Remains
from pulsar_fleet.migration.failback.checks import Returning, Stale, check
from pulsar_fleet.migration.failback.steps import rivals
from pulsar_fleet.migration.model import Move, Moves, Strategy
from pulsar_fleet.migration.preflight import gates
from pulsar_fleet.migration.preflight.view import Expectations, View, without_remains
from pulsar_fleet.migration.subscriptions.checkpoint import Placed
from pulsar_fleet.migration.subscriptions.verify import Compared, misplaced
from pulsar_fleet.migration.waves.steps import known_moves
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards.model import Hazard
from pulsar_fleet.planning.plan import Action, Change, Plan

ORDERS = NamespaceName("acme", "orders")
EVENTS = TopicName(ORDERS, "events")
CLOSED = Stale(topic=EVENTS, partitions=2, closed=True, subscriptions=(), clients=(), entries=500)
HOME = Returning(
    namespace=ORDERS,
    blue={"migrated": True},
    green={"migrated": False},
    strategy=Strategy.REDIRECT,
    topics={EVENTS: 2},
    stale=(CLOSED,),
    verdict="equal",
)


def ids(one: Returning, *, allow_removal: bool = True, **unhealthy: str) -> list[str]:
    return [finding.id for finding in check((one,), unhealthy, allow_removal=allow_removal)]


def test_a_finished_migration_may_be_turned_round_when_the_removal_is_allowed() -> None:
    assert ids(HOME) == []
    assert ids(HOME, allow_removal=False) == ["removal-not-allowed"]


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (replace(HOME, blue=None), "namespace-missing"),
        (replace(HOME, stale=(replace(CLOSED, closed=False),)), "open-on-blue"),
        (replace(HOME, stale=(replace(CLOSED, subscriptions=("billing",)),)), "still-draining"),
        (replace(HOME, stale=(replace(CLOSED, clients=("producer p-1",)),)), "clients-on-blue"),
        (replace(HOME, green={"migrated": True}), "both-flagged"),
        (replace(HOME, verdict="different"), "never-proven"),
        (replace(HOME, rivals=("migrate_namespaces/manual",)), "other-run"),
        (replace(HOME, strategy=Strategy.REPLICATE, copied=(EVENTS,)), "history-cannot-return"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_interlock_stops_the_way_back(one: Returning, found: str) -> None:
    assert ids(one) == [found]


def test_a_broker_of_blue_that_is_not_well_stops_it_too() -> None:
    assert ids(HOME, **{"blue-1:8080": "no leader"}) == ["blue-broker-unhealthy"]


def test_what_an_earlier_try_of_the_same_run_opened_is_no_obstacle() -> None:
    opened = replace(CLOSED, closed=False, subscriptions=("billing",), entries=0)
    assert ids(replace(HOME, stale=(opened,), reopened=True)) == []


# The gates, the other way round.


def back(*, strategy: Strategy = Strategy.REDIRECT) -> View:
    """A namespace on its way back: green, which was left, is flagged, redirects, and holds what was closed."""
    stored = {"migrated": False, "migratedClusterUrl": REDIRECT}
    found = with_green(
        with_policies_of(view(prepares=True, strategy=strategy), green={"migrated": True}), redirect=stored
    )
    closed = tuple(replace(one, terminated=True) for one in found.green.snapshot.topics)
    found = with_green(found, snapshot=replace(found.green.snapshot, topics=closed))
    return replace(with_survey(found, home=frozenset(REDIRECT.values())), expected=Expectations(returns=True))


def gates_of(found: View) -> set[str]:
    return {finding.id for finding in gates.check(found)}


def test_what_a_migration_left_is_no_obstacle_to_its_way_back() -> None:
    found = back()
    assert {"namespace-migrated", "topic-terminated-on-target"} <= gates_of(found)
    assert gates_of(replace(found, survey=without_remains(found.survey))) == set()


def test_a_redirect_on_green_that_leads_back_to_blue_is_no_obstacle() -> None:
    found = with_green(view(), redirect={"migrated": False, "migratedClusterUrl": REDIRECT})
    assert gates_of(found) == {"redirect-left-on-green"}
    assert gates_of(with_survey(found, home=frozenset(REDIRECT.values()))) == set()


@pytest.mark.parametrize(("strategy", "stops"), [(Strategy.REDIRECT, False), (Strategy.REPLICATE, True)])
def test_who_is_back_already_stops_the_way_back_only_where_a_copy_would_be_spoiled(
    strategy: Strategy, stops: bool
) -> None:
    found = with_facts(back(strategy=strategy), green_clients={"Pulsar-Java-v4.2.4": 1})
    found = replace(found, survey=without_remains(found.survey))
    assert ("green-in-use" in gates_of(found)) is stops


def test_a_run_that_has_not_ended_is_a_rival_for_all_that_its_selection_means(tmp_path: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    for run, scope in (("tenant", ["acme"]), ("other", ["acme/audit"]), ("own", ["acme/orders"]), ("ended", ["all"])):
        ledger.start_run(run, "migrate_namespaces", {"namespaces": scope})
    ledger.finish_run("ended", "success")
    assert rivals(ledger, "own", ORDERS) == ("tenant",)


def test_a_run_moves_its_wave_and_else_all_that_it_checked(tmp_path: Path) -> None:
    run = Run("r", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "kept")))
    assert known_moves(run) is None
    for name, count in ((MOVES, 2), (WAVE_MOVES, 1)):
        moves = tuple(Move(NamespaceName("acme", f"n{each}"), Strategy.REDIRECT, "", {}, {}) for each in range(count))
        run.artefacts.write_json("r", name, Moves("blue", "green", moves).to_json())
        assert len((known_moves(run) or Moves("", "", ())).moves) == count


# Placements.

PLACED = Placed(topic=str(EVENTS), subscription="audit", unread=40, carried=0, redelivered=3)
NAME = (PLACED.topic, PLACED.subscription)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Compared(redelivered=3, skipped=0), ""),
        (Compared(redelivered=9, skipped=0, by_entries=False), ""),
        (Compared(redelivered=2, skipped=0), "2 would come again, stated were 3"),
        (Compared(redelivered=3, skipped=1), "1 would be skipped"),
        (Compared(redelivered=3, skipped=0, settings=("property 'team' differs",)), "property 'team' differs"),
        (Compared(redelivered=0, skipped=0, reason="green has no such subscription"), "green has no such subscription"),
    ],
)
def test_a_subscription_must_continue_exactly_as_stated(found: Compared, words: str) -> None:
    wrong, moved = misplaced([PLACED], {NAME: found}, set())
    assert (bool(wrong), moved) == (bool(words), ())
    assert all(words in one for one in wrong)


def test_one_that_blue_removed_must_have_read_everything() -> None:
    assert misplaced([replace(PLACED, unread=0, redelivered=0)], {}, set()) == ((), ())
    assert len(misplaced([PLACED], {}, set())[0]) == 1


def test_one_that_is_consumed_already_is_named_and_not_judged() -> None:
    wrong, moved = misplaced([PLACED], {NAME: Compared(redelivered=0, skipped=9)}, {NAME})
    assert (wrong, len(moved)) == ((), 1)


def test_blue_is_finished_only_when_nothing_lives_there() -> None:
    assert "is finished with it; its 1 closed topics stay" in Remains(topics=(str(EVENTS),)).text("blue")
    assert "is not finished: 1 subscriptions" in Remains(subscriptions=("events · audit",)).text("blue")


# Stop.


def deletion(resource: Resource, name: str) -> Change:
    return Change(
        resource=resource,
        name=name,
        field="",
        action=Action.DELETE,
        calls=(),
        before={},
        after=None,
        hazard=Hazard.DESTRUCTIVE,
        reason="the run created it",
    )


def test_a_stop_leaves_topics_in_use_and_what_they_lie_in() -> None:
    other = TopicName(ORDERS, "other")
    made = [(Resource.TOPIC, str(EVENTS)), (Resource.TOPIC, str(other)), (Resource.NAMESPACE, str(ORDERS))]
    plan = Plan(
        source="green", target="green", changes=tuple(deletion(*one) for one in [*made, (Resource.TENANT, "acme")])
    )
    left, kept = unused_only(plan, {EVENTS})
    assert [change.name for change in left.changes] == [str(other)]
    assert len(kept) == 3
    assert unused_only(plan, set())[0] == plan
