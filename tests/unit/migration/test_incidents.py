"""What goes wrong after a switch is recognised by what both sides show, and treated within limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drain_states import FIRST, ORDERS, SECOND, seen, stats

from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.migration.drain.detect import recognise
from pulsar_fleet.migration.drain.incident import Incident, Kind, Situation, Treatment
from pulsar_fleet.migration.drain.permissions import lacking
from pulsar_fleet.migration.drain.remediate import GAP_SECONDS, NAMESPACE_TRIES, TRIES, Treated, is_exhausted, may_treat
from pulsar_fleet.migration.drain.state import NamespaceWatch
from pulsar_fleet.migration.stats.clients import vanished
from pulsar_fleet.migration.stats.partition_state import Absence

BEFORE = stats("p-1", billing=(7, ["c-1"]))
PLACES = {FIRST: ("b:1", "0x0_0x1"), SECOND: ("b:1", "0x1_0x2")}
NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


def situation(**changes: Any) -> Situation:
    """Everybody has arrived, and nothing is left; then what is said otherwise."""
    roster = TopicStats.of(FIRST, BEFORE).clients
    bare = Situation(
        namespace=ORDERS,
        waited=40.0,
        before={FIRST: roster},
        blue={FIRST: seen(stats())},
        green={FIRST: seen(BEFORE)},
    )
    return replace(bare, **changes)


def found(**changes: Any) -> list[tuple[Kind, Treatment]]:
    return [(incident.kind, incident.treatment) for incident in recognise(situation(**changes))]


def test_a_namespace_that_arrives_shows_no_incident() -> None:
    assert found() == []


GONE = {FIRST: seen(Absence.UNLOADED)}
SILENT = {"blue b:1": 20.0}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"blue": GONE}, (Kind.UNLOADED, Treatment.RECOVER)),
        ({"blue": GONE, "places": PLACES, "live": {"b:1"}}, (Kind.OWNER_CHANGED, Treatment.RECOVER)),
        ({"blue": GONE, "places": PLACES, "live": {"b:2"}}, (Kind.BROKER_RESTARTED, Treatment.RECOVER)),
        ({"blue": GONE, "restarted": {"b:1"}}, (Kind.BROKER_RESTARTED, Treatment.RECOVER)),
        (
            {"blue": {**GONE, SECOND: seen(Absence.UNLOADED)}, "places": PLACES, "live": {"b:1"}},
            (Kind.OWNER_CHANGED, Treatment.RECOVER),
        ),
        (
            {"blue": {FIRST: seen(stats(), broker="b:2")}, "places": PLACES},
            (Kind.OWNER_CHANGED, Treatment.ASK_EACH),
        ),
        ({"blue": {FIRST: seen(Absence.UNSEEN)}}, (Kind.UNCOUNTED, Treatment.ASK_EACH)),
        ({"green": {FIRST: seen(Absence.GONE)}}, (Kind.GREEN_MISSING, Treatment.PERSON)),
        ({"green_exists": False}, (Kind.GREEN_MISSING, Treatment.PERSON)),
        ({"flagged": False}, (Kind.FLAG_RESET, Treatment.REFLAG)),
        ({"redirected": False}, (Kind.REDIRECT_LOST, Treatment.STORE_REDIRECT)),
        ({"ungranted": ("app",)}, (Kind.GRANTS_MISSING, Treatment.GRANT)),
        ({"silent": SILENT}, (Kind.BROKER_SILENT, Treatment.WAIT)),
        ({"silent": {"blue b:1": 61.0}}, (Kind.BROKER_GONE, Treatment.PERSON)),
        ({"closed": {FIRST}}, (Kind.FENCED, Treatment.UNLOAD)),
        (
            {"closed": {FIRST}, "blue": {FIRST: seen(stats(billing=(3, ["c-1"])))}},
            (Kind.FENCED, Treatment.RECOVER),
        ),
        ({"closed": {FIRST}, "blue": {FIRST: seen(Absence.SILENT)}}, (Kind.FENCED, Treatment.PERSON)),
        ({"green": {FIRST: seen(stats("p-1"))}}, (Kind.VANISHED, Treatment.PERSON)),
        ({"blue": {FIRST: seen(stats(billing=(3, [])))}}, (Kind.NOBODY_READS, Treatment.PERSON)),
    ],
)
def test_each_incident_is_told_from_the_others(changes: dict[str, Any], expected: tuple[Kind, Treatment]) -> None:
    assert expected in found(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"waited": 10.0},
        {"ungranted": ("app",)},
        {"flagged": False},
        {"green": {FIRST: seen(Absence.SILENT)}},
        {"blue": {FIRST: seen(stats(billing=(0, ["c-1"])))}},
    ],
    ids=["in time", "not let in", "not sent", "green silent", "still on blue"],
)
def test_a_client_is_not_called_dead_while_something_else_explains_it(changes: dict[str, Any]) -> None:
    late = {"green": {FIRST: seen(stats("p-1"))}, **changes}
    assert Kind.VANISHED not in [kind for kind, _ in found(**late)]


def test_an_application_that_only_a_person_can_restart_is_named_with_its_topic() -> None:
    (incident,) = recognise(situation(green={FIRST: seen(stats("p-1"))}))
    assert incident.sentence == (
        'Restart the application of consumer "c-1" (10.0.0.1:3, Pulsar-Java-v4.2.4) on '
        "persistent://acme/orders/events-partition-0, subscription 'billing': it was on blue and has been on neither "
        "side for 40 s."
    )


@given(NAMES, NAMES, NAMES)
def test_exactly_as_many_clients_have_vanished_as_are_too_few(
    before: list[str], blue: list[str], green: list[str]
) -> None:
    sides = [TopicStats.of(FIRST, stats(*names)).clients for names in (before, blue, green)]
    missing = vanished(*sides)
    assert len(missing) <= max(0, len(before) - len(blue) - len(green)) or not {*blue, *green} <= {*before}
    assert {one.name for one in missing} <= {*before} - {*blue, *green}
    if not blue and not green:
        assert len(missing) == len(before)


def test_an_unload_under_the_flag_is_no_remedy_while_messages_are_unread() -> None:
    reread = recognise(situation(closed={FIRST}, blue={FIRST: seen(stats(billing=(1, ["c-1"])))}))
    assert Treatment.UNLOAD not in [incident.treatment for incident in reread]


def test_the_flag_is_not_set_again_over_topics_that_it_would_strand() -> None:
    assert (Kind.FLAG_RESET, Treatment.WAIT) in found(flagged=False, blue=GONE)


INCIDENT = Incident(
    kind=Kind.FLAG_RESET, namespace="acme/orders", subject="acme/orders", sentence="", treatment=Treatment.REFLAG
)


@given(st.lists(st.floats(0, 1e5), max_size=6), st.floats(0, 2e5))
def test_a_remedy_is_tried_twice_at_most_and_never_at_once(tries: list[float], now: float) -> None:
    done = [Treated(INCIDENT.id, "acme/orders", at) for at in tries]
    if may_treat(INCIDENT, done, now):
        assert len(done) < TRIES
        assert all(now - one.at >= GAP_SECONDS for one in done)
    assert is_exhausted(INCIDENT, done) is (len(done) >= TRIES)


def test_a_namespace_that_does_not_heal_is_left_to_a_person() -> None:
    others = [Treated(f"other-{number}", "acme/orders", 0.0) for number in range(NAMESPACE_TRIES)]
    assert not may_treat(INCIDENT, others, 1e6)
    assert may_treat(replace(INCIDENT, namespace="acme/audit"), others, 1e6)


@pytest.mark.parametrize("treatment", [Treatment.ASK_EACH, Treatment.WAIT, Treatment.PERSON])
def test_what_only_a_person_can_do_is_never_tried(treatment: Treatment) -> None:
    assert not may_treat(replace(INCIDENT, treatment=treatment), [], 0.0)


def test_rights_are_added_on_green_and_never_taken_away() -> None:
    blue = {
        "auth_policies": {
            "namespace_auth": {"app": ["produce", "consume"], "old": ["consume"]},
            "destination_auth": {str(FIRST): {"one": ["produce"]}},
            "subscription_auth_roles": {"billing": ["b"]},
        }
    }
    green = {"auth_policies": {"namespace_auth": {"app": ["functions"], "old": ["consume"], "new": ["consume"]}}}
    calls = {grant.call.path: grant.call.body for grant in lacking(ORDERS, blue, green)}
    assert calls == {
        "/namespaces/acme/orders/permissions/app": ["consume", "functions", "produce"],
        f"/{FIRST.path}/permissions/one": ["produce"],
        "/namespaces/acme/orders/permissions/subscription/billing": ["b"],
    }
    assert lacking(ORDERS, blue, blue) == ()


def test_an_incident_that_is_not_seen_any_more_is_over_and_stays_known() -> None:
    one = NamespaceWatch.begin(0.0)
    one.meet([INCIDENT], 1.0)
    one.meet([], 9.0)
    (record,) = one.incidents.values()
    assert (record["first"], record["last"], record["outcome"]) == (1.0, 1.0, "over")
