"""The checks of a failback, the verification of transferred cursors, and what an abort does not remove."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.migration_view import REDIRECT, view, with_facts, with_green, with_policies_of, with_survey
from tests.support.remedies import require_harmless

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.abort import without_used_topics
from pulsar_fleet.migration.artefacts import MOVES, WAVE_MOVES
from pulsar_fleet.migration.cleanup import Leftovers
from pulsar_fleet.migration.failback.checks import FailbackNamespace, LeftoverTopic, check
from pulsar_fleet.migration.failback.steps import unfinished_runs
from pulsar_fleet.migration.model import Move, Moves, Strategy
from pulsar_fleet.migration.preflight import gates
from pulsar_fleet.migration.preflight.view import Expectations, View, without_leftovers
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan

CLUSTERS = {"blue": "blue", "green": "green"}
ORDERS = NamespaceName("acme", "orders")
EVENTS = TopicName(ORDERS, "events")
TERMINATED = LeftoverTopic(topic=EVENTS, partitions=2, terminated=True, subscriptions=(), clients=(), entries=500)
HOME = FailbackNamespace(
    namespace=ORDERS,
    blue={"migrated": True},
    green={"migrated": False},
    strategy=Strategy.REDIRECT,
    topics={EVENTS: 2},
    leftovers=(TERMINATED,),
    verdict="equal",
)


EXCHANGED = replace(
    HOME,
    blue={"migrated": False},
    green={"migrated": True},
    left_green=True,
    leftovers=(replace(TERMINATED, terminated=False, subscriptions=("billing",), clients=("producer p-1",)),),
)


def ids(namespace: FailbackNamespace, *, allow_removal: bool = True, **unhealthy: str) -> list[str]:
    return [finding.id for finding in check((namespace,), unhealthy, allow_removal=allow_removal, clusters=CLUSTERS)]


def test_a_finished_migration_can_go_back_when_the_removal_is_allowed() -> None:
    assert ids(HOME) == []
    assert ids(HOME, allow_removal=False) == ["removal-not-allowed"]


@pytest.mark.parametrize(
    ("namespace", "finding"),
    [
        (replace(HOME, blue=None), "namespace-missing"),
        (replace(HOME, leftovers=(replace(TERMINATED, terminated=False),)), "open-on-blue"),
        (replace(HOME, leftovers=(replace(TERMINATED, subscriptions=("billing",)),)), "still-draining"),
        (replace(HOME, leftovers=(replace(TERMINATED, clients=("producer p-1",)),)), "clients-on-blue"),
        (replace(HOME, green={"migrated": True}), "both-flagged"),
        (replace(HOME, verdict="different"), "no-proof"),
        (replace(HOME, replicates_to={"acme/orders": ("green",)}, only_green=("green",)), "replicated-from-blue"),
        (replace(HOME, other_runs=("migrate_namespaces/manual",)), "other-run"),
        (replace(HOME, strategy=Strategy.REPLICATE, replicated=(EVENTS,)), "history-cannot-return"),
        # Seen from the wrong side, with all that would be wrong there.
        (replace(EXCHANGED, verdict=None, other_runs=("migrate_namespaces/manual",)), "clusters-exchanged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_check_stops_the_failback(namespace: FailbackNamespace, finding: str) -> None:
    assert ids(namespace) == [finding]


EMPTY = replace(TERMINATED, terminated=False, entries=0)


@pytest.mark.parametrize(
    ("namespace", "advice", "call"),
    [
        (replace(HOME, leftovers=(replace(EMPTY, entries=1),)), "take the namespace out", False),
        (replace(HOME, leftovers=(replace(EMPTY, clients=("producer p-1",)),)), "take the namespace out", False),
        (replace(HOME, leftovers=(EMPTY,)), "if no application uses it on blue, delete it there", False),
        (replace(HOME, leftovers=(replace(TERMINATED, clients=("consumer c-1",)),)), "they are redirected", False),
        (
            replace(HOME, blue={}, leftovers=(replace(TERMINATED, clients=("consumer c-1",)),)),
            "blue does not redirect this namespace",
            False,
        ),
        (replace(HOME, green={"migrated": True}), "clear the flag on green", True),
        (replace(HOME, green={"migrated": True}, left_green=True), "leave the flag", False),
        (replace(HOME, green={"migrated": True}, left_green=None), "leave the flag", False),
    ],
    ids=str,
)
def test_what_is_advised_harms_nothing_in_this_state(namespace: FailbackNamespace, advice: str, call: bool) -> None:
    finding = check((namespace,), {}, allow_removal=True, clusters=CLUSTERS)[0]
    assert advice in finding.remedy
    assert bool(finding.call) is call
    require_harmless(finding)


NEAREST = {
    "namespace-missing": replace(HOME, blue={}),
    "open-on-blue": replace(HOME, leftovers=(replace(TERMINATED, terminated=False),), reopened=True),
    "still-draining": replace(HOME, leftovers=(replace(TERMINATED, entries=7),)),
    "clients-on-blue": replace(HOME, leftovers=(replace(TERMINATED, clients=()),)),
    "both-flagged": replace(HOME, green={"migrated": False}, left_green=True),
    "no-proof": replace(HOME, verdict="different", leftovers=(replace(TERMINATED, entries=0),)),
    "other-run": replace(HOME, other_runs=()),
    "history-cannot-return": replace(HOME, replicated=(EVENTS,)),
    "clusters-exchanged": replace(EXCHANGED, left_green=None),
    "removal-not-allowed": replace(HOME, leftovers=(replace(EMPTY, entries=5),)),
    "blue-broker-unhealthy": HOME,
}
"""By finding: the state nearest to its fault in which its remedy would be wrong."""


@pytest.mark.parametrize("id_", NEAREST)
def test_a_remedy_is_not_printed_in_the_nearest_state_where_it_is_wrong(id_: str) -> None:
    assert id_ not in ids(NEAREST[id_], allow_removal=False)


def test_the_removal_is_allowed_only_after_a_verification() -> None:
    unverified = check((replace(HOME, verdict=None),), {}, allow_removal=False, clusters=CLUSTERS)
    assert [finding.remedy.startswith("first do what no-proof says") for finding in unverified] == [False, True]


def test_an_unhealthy_broker_of_blue_stops_the_failback() -> None:
    assert ids(HOME, **{"blue-1:8080": "no leader"}) == ["blue-broker-unhealthy"]


def test_topics_recreated_by_an_earlier_attempt_of_the_run_do_not_stop_it() -> None:
    opened = replace(TERMINATED, terminated=False, subscriptions=("billing",), entries=0)
    assert ids(replace(HOME, leftovers=(opened,), reopened=True)) == []


# The gates, from green to blue.


def back(*, strategy: Strategy = Strategy.REDIRECT) -> View:
    """A namespace that goes back: its first cluster is flagged, redirects, and has terminated topics."""
    stored = {"migrated": False, "migratedClusterUrl": REDIRECT}
    viewed = with_green(
        with_policies_of(view(prepares=True, strategy=strategy), green={"migrated": True}), redirect=stored
    )
    terminated = tuple(replace(topic, terminated=True) for topic in viewed.green.snapshot.topics)
    viewed = with_green(viewed, snapshot=replace(viewed.green.snapshot, topics=terminated))
    return replace(with_survey(viewed, home=frozenset(REDIRECT.values())), expected=Expectations(is_failback=True))


def gates_of(viewed: View) -> set[str]:
    return {finding.id for finding in gates.check(viewed)}


def test_leftovers_of_a_migration_do_not_stop_its_failback() -> None:
    viewed = back()
    assert {"namespace-migrated", "topic-terminated-on-target"} <= gates_of(viewed)
    assert gates_of(replace(viewed, survey=without_leftovers(viewed.survey))) == set()


def test_a_migration_after_a_failback_is_refused_with_the_form_to_use() -> None:
    viewed = replace(back(), connections=("pulsar_blue", "http://green:8080"))
    remedies = {finding.id: finding.remedy for finding in gates.check(viewed)}
    form = '{"blue": "http://green:8080", "green": "pulsar_blue", "namespaces": ["acme/orders"]}'
    command = "pulsar-fleet fail-back http://green:8080 pulsar_blue --namespaces acme/orders --dry-run."
    for id_ in ("namespace-migrated", "topic-terminated-on-target"):
        assert "Move it with fail_back_namespaces instead" in remedies[id_]
        assert form in remedies[id_]
        assert remedies[id_].endswith(command)
    unread = with_policies_of(viewed, blue={"migrated": True})
    assert not any(command in finding.remedy for finding in gates.check(unread))


def test_a_redirect_on_green_that_leads_to_blue_does_not_stop_a_failback() -> None:
    viewed = with_green(view(), redirect={"migrated": False, "migratedClusterUrl": REDIRECT})
    assert gates_of(viewed) == {"redirect-left-on-green"}
    assert gates_of(with_survey(viewed, home=frozenset(REDIRECT.values()))) == set()


@pytest.mark.parametrize(("strategy", "stops"), [(Strategy.REDIRECT, False), (Strategy.REPLICATE, True)])
def test_clients_that_are_on_blue_already_stop_only_a_replicated_failback(strategy: Strategy, stops: bool) -> None:
    viewed = with_facts(back(strategy=strategy), green_clients={"Pulsar-Java-v4.2.4": 1})
    viewed = replace(viewed, survey=without_leftovers(viewed.survey))
    assert ("green-in-use" in gates_of(viewed)) is stops


def test_an_unfinished_run_conflicts_on_every_namespace_of_its_selection(tmp_path: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    for run, scope in (("tenant", ["acme"]), ("other", ["acme/audit"]), ("own", ["acme/orders"]), ("ended", ["all"])):
        ledger.start_run(run, "migrate_namespaces", {"namespaces": scope})
    ledger.finish_run("ended", "success")
    # A wave that was continued by hand names no namespace of its own.
    for run, first in (("wave 2", "ended"), ("wave 3", "other"), ("wave 4", "lost")):
        ledger.start_run(run, "migrate_namespaces", {"namespaces": [], "continues": first})
    assert unfinished_runs(ledger, "own", ORDERS) == ("tenant", "wave 2")


def test_a_run_moves_its_wave_and_else_all_that_it_checked(tmp_path: Path) -> None:
    run = Run("r", Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"), Artefacts.open(str(tmp_path / "kept")))
    assert find_moves(run) is None
    for name, count in ((MOVES, 2), (WAVE_MOVES, 1)):
        names = [NamespaceName("acme", f"n{number}") for number in range(count)]
        moves = tuple(Move(name_, Strategy.REDIRECT, "", {}, {}) for name_ in names)
        run.artefacts.write_json("r", name, Moves("blue", "green", moves).to_json())
        assert len((find_moves(run) or Moves("", "", ())).moves) == count


def test_blue_is_finished_only_without_leftovers() -> None:
    assert "1 terminated topic left there refuse producers" in Leftovers(topics=("t",)).text("blue", redirects=False)
    assert "and no client is left on blue; 1 terminated topic left there to redirect clients" in Leftovers(
        topics=(str(EVENTS),)
    ).text("blue")
    assert "is still in use: 1 subscription and 0 clients are left" in Leftovers(
        subscriptions=("events · audit",)
    ).text("blue")


# Abort.


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


def test_an_abort_keeps_topics_in_use_and_their_namespaces() -> None:
    other = TopicName(ORDERS, "other")
    created = [(Resource.TOPIC, str(EVENTS)), (Resource.TOPIC, str(other)), (Resource.NAMESPACE, str(ORDERS))]
    changes = tuple(deletion(*resource) for resource in [*created, (Resource.TENANT, "acme")])
    plan = Plan(source="green", target="green", changes=changes)
    remaining, kept = without_used_topics(plan, {EVENTS})
    assert [change.name for change in remaining.changes] == [str(other)]
    assert len(kept) == 3
    assert without_used_topics(plan, set())[0] == plan


@pytest.mark.parametrize(
    ("clusters", "verdict", "advised"),
    [
        (("green",), "equal", True),
        (("green",), None, False),
        (("c",), "equal", False),
        (("c", "green"), "equal", False),
    ],
)
def test_a_list_is_set_by_hand_only_where_nothing_can_be_lost(
    clusters: tuple[str, ...], verdict: str | None, advised: bool
) -> None:
    listed = replace(HOME, replicates_to={"acme/orders": clusters}, only_green=("green",), verdict=verdict)
    found = check((listed,), {}, allow_removal=True, clusters=CLUSTERS)
    (finding,) = [one for one in found if one.id == "replicated-from-blue"]
    assert bool(finding.call) is advised
