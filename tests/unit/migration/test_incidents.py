"""Incidents after a cutover are detected from the facts of both clusters, and remediated within limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drain_states import FIRST, ORDERS, SECOND, move_of, seen, stats

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, Role, TopicStats, absent_clients
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.drain.detect import detect_incidents, missing_grants
from pulsar_fleet.migration.drain.remediate import (
    ATTEMPT_INTERVAL_SECONDS,
    MAX_ATTEMPTS,
    MAX_NAMESPACE_ATTEMPTS,
    Attempt,
    is_exhausted,
    may_attempt,
)
from pulsar_fleet.migration.drain.state import DrainFacts, Incident, IncidentKind, NamespaceState, Remedy
from pulsar_fleet.migration.facts import Absence
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.subscriptions.checkpoint import departed_consumers, store_gate_clients

BEFORE = stats("p-1", billing=(7, ["c-1"]))
CLUSTERS = {"blue": "east", "green": "west", "prepare_green": "prepare_blue"}
OWNERS = {FIRST: ("b:1", "0x0_0x1"), SECOND: ("b:1", "0x1_0x2")}
NAMES = st.lists(st.sampled_from("abcdef"), unique=True)


def facts(**changes: Any) -> DrainFacts:
    """All clients are on green and blue has no backlog, except for the changes."""
    connected = TopicStats.of(FIRST, BEFORE).clients
    bare = DrainFacts(
        namespace=ORDERS,
        seconds=40.0,
        clusters=CLUSTERS,
        before={FIRST: connected},
        blue={FIRST: seen(stats())},
        green={FIRST: seen(BEFORE)},
    )
    return replace(bare, **changes)


def found(**changes: Any) -> list[tuple[IncidentKind, Remedy]]:
    return [(incident.kind, incident.remedy) for incident in detect_incidents(facts(**changes))]


def test_a_namespace_that_arrives_shows_no_incident() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("versions", "named"),
    [(("4.2.4",), True), (("4.0.7", "4.0.14"), True), (("4.2.5",), False), (("4.1.9",), False), ((), False)],
)
def test_a_fenced_topic_names_the_defect_of_its_brokers(versions: tuple[str, ...], named: bool) -> None:
    states = {FIRST: seen(stats(billing=(4, ["c-1"])))}
    (incident,) = detect_incidents(
        facts(fenced={FIRST}, blue=states, green={FIRST: seen(stats(billing=(0, ["c-1"])))}, versions=versions)
    )
    assert ("apache/pulsar#26678 (fixed in 4.0.14, 4.2.5, 5.0.0)" in incident.sentence) is named
    assert incident.id == f"topic-fenced:{FIRST}"


@pytest.mark.parametrize("persistent", [True, False])
def test_only_non_persistent_consumers_are_explained_by_their_defect(persistent: bool) -> None:
    topic = TopicName.parse(str(FIRST) if persistent else str(FIRST).replace("persistent", "non-persistent", 1))
    consumer = ConnectedClient(
        topic=str(topic),
        role=Role.CONSUMER,
        subscription="s",
        name="c-1",
        address="",
        version="Pulsar-Java-v4",
        since="",
    )
    states = {topic: seen(stats())}
    (incident,) = detect_incidents(facts(before={topic: (consumer,)}, blue=states, green=states, versions=("4.0.7",)))
    assert incident.kind is IncidentKind.CLIENT_MISSING
    assert ("apache/pulsar#26075" in incident.sentence) is not persistent


GONE = {FIRST: seen(Absence.UNLOADED)}
UNREACHABLE = {"blue b:1": 20.0}
READ_TO_THE_END = {"blue": {FIRST: seen(stats(billing=(0, ["c-1"])))}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"blue": GONE}, (IncidentKind.UNLOADED, Remedy.RELOAD)),
        ({"blue": GONE, "owners": OWNERS, "live": {"b:1"}}, (IncidentKind.BUNDLE_MOVED, Remedy.RELOAD)),
        ({"blue": GONE, "owners": OWNERS, "live": {"b:2"}}, (IncidentKind.BROKER_RESTARTED, Remedy.RELOAD)),
        ({"blue": GONE, "restarted": {"b:1"}}, (IncidentKind.BROKER_RESTARTED, Remedy.RELOAD)),
        (
            {"blue": {**GONE, SECOND: seen(Absence.UNLOADED)}, "owners": OWNERS, "live": {"b:1"}},
            (IncidentKind.BUNDLE_MOVED, Remedy.RELOAD),
        ),
        (
            {"blue": {FIRST: seen(stats(), broker="b:2")}, "owners": OWNERS},
            (IncidentKind.BUNDLE_MOVED, Remedy.READ_PARTITIONS),
        ),
        ({"blue": {FIRST: seen(Absence.UNLISTED)}}, (IncidentKind.STATISTICS_INCOMPLETE, Remedy.READ_PARTITIONS)),
        ({"green": {FIRST: seen(Absence.GONE)}}, (IncidentKind.GREEN_MISSING, Remedy.OPERATOR)),
        ({"green_exists": False}, (IncidentKind.GREEN_MISSING, Remedy.OPERATOR)),
        ({"flagged": False}, (IncidentKind.FLAG_RESET, Remedy.SET_FLAG)),
        ({"redirected": False}, (IncidentKind.REDIRECT_LOST, Remedy.STORE_REDIRECT)),
        ({"roles_without_permission": ("app",)}, (IncidentKind.PERMISSIONS_MISSING, Remedy.GRANT)),
        ({"unreachable": UNREACHABLE}, (IncidentKind.BROKER_UNREACHABLE, Remedy.WAIT)),
        ({"unreachable": {"blue b:1": 61.0}}, (IncidentKind.BROKER_OUTAGE, Remedy.OPERATOR)),
        ({"fenced": {FIRST}}, (IncidentKind.FENCED, Remedy.UNLOAD)),
        (
            {"fenced": {FIRST}, "blue": {FIRST: seen(stats(billing=(3, ["c-1"])))}},
            (IncidentKind.FENCED, Remedy.RELOAD),
        ),
        ({"fenced": {FIRST}, "blue": {FIRST: seen(Absence.UNREACHABLE)}}, (IncidentKind.FENCED, Remedy.OPERATOR)),
        ({"green": {FIRST: seen(stats("p-1"))}}, (IncidentKind.CLIENT_MISSING, Remedy.OPERATOR)),
        ({"blue": {FIRST: seen(stats(billing=(3, [])))}}, (IncidentKind.NO_CONSUMERS, Remedy.OPERATOR)),
        ({**READ_TO_THE_END, "flags_cluster": True}, (IncidentKind.CONSUMERS_WAIT, Remedy.RECONNECT)),
    ],
)
def test_each_kind_of_incident_is_detected(changes: dict[str, Any], expected: tuple[IncidentKind, Remedy]) -> None:
    assert expected in found(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 10.0},
        {"roles_without_permission": ("app",)},
        {"flagged": False},
        {"green": {FIRST: seen(Absence.UNREACHABLE)}},
        {"blue": {FIRST: seen(stats(billing=(0, ["c-1"])))}},
    ],
    ids=["in time", "no permission", "no redirect", "green unreachable", "still on blue"],
)
def test_a_client_is_not_missing_while_something_else_explains_it(changes: dict[str, Any]) -> None:
    late = {"green": {FIRST: seen(stats("p-1"))}, **changes}
    assert IncidentKind.CLIENT_MISSING not in [kind for kind, _ in found(**late)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"flags_cluster": True, "seconds": 1.0},
        {"flags_cluster": True, "blue": {FIRST: seen(stats(billing=(1, ["c-1"])))}},
        {"flags_cluster": True, "blue": {FIRST: seen(stats(billing=(0, [])))}},
    ],
    ids=["redirected one by one", "not yet", "reads", "left"],
)
def test_consumers_do_not_wait_while_the_broker_may_redirect_them(changes: dict[str, Any]) -> None:
    assert IncidentKind.CONSUMERS_WAIT not in [kind for kind, _ in found(**{**READ_TO_THE_END, **changes})]


EXECUTED = {
    IncidentKind.UNLOADED: "test_faults",
    IncidentKind.BUNDLE_MOVED: "test_faults",
    IncidentKind.BROKER_RESTARTED: "test_faults",
    IncidentKind.FENCED: "test_remedies",
    IncidentKind.FLAG_RESET: "test_remedies",
    IncidentKind.REDIRECT_LOST: "test_remedies",
    IncidentKind.PERMISSIONS_MISSING: "test_remedies",
    IncidentKind.CONSUMERS_WAIT: "test_whole_cluster",
}
"""Kinds whose remedy is executed on real clusters → the module in tests/contract/migration."""
BY_HAND = {
    IncidentKind.CLIENT_MISSING: ({"green": {FIRST: seen(stats("p-1"))}}, "Restart the application of"),
    IncidentKind.NO_CONSUMERS: ({"blue": {FIRST: seen(stats(billing=(3, [])))}}, "Restart a consumer of"),
    IncidentKind.GREEN_MISSING: ({"green_exists": False}, "clear the task prepare_blue"),
    IncidentKind.BROKER_OUTAGE: ({"unreachable": {"blue b:1": 61.0}}, "start it, or restart it if it hangs"),
    IncidentKind.FENCED: (
        {"fenced": {FIRST}, "blue": {FIRST: seen(Absence.UNREACHABLE)}},
        "Its backlog is not known: do not unload it",
    ),
}
"""What a person does: the facts, and the instruction with its precondition."""
WAITING = {IncidentKind.STATISTICS_INCOMPLETE, IncidentKind.BROKER_UNREACHABLE, IncidentKind.NOT_TERMINATED}
"""Nothing is advised; the cut-over itself reports partitions that are not terminated (`unterminated_text`)."""


def test_every_kind_of_incident_has_a_case() -> None:
    assert set(IncidentKind) == set(EXECUTED) | set(BY_HAND) | WAITING


@pytest.mark.parametrize("kind", BY_HAND)
def test_what_a_person_has_to_do_is_in_the_sentence(kind: IncidentKind) -> None:
    changes, instruction = BY_HAND[kind]
    texts = [incident.sentence for incident in detect_incidents(facts(**changes)) if incident.kind is kind]
    assert [instruction in text for text in texts] == [True]


def test_an_application_to_restart_is_named_with_its_topic() -> None:
    (incident,) = detect_incidents(facts(green={FIRST: seen(stats("p-1"))}))
    assert incident.sentence == (
        'Restart the application of consumer "c-1" (10.0.0.1:3, Pulsar-Java-v4.2.4) on '
        "persistent://acme/orders/events-partition-0, subscription 'billing': it was on east and has been on neither "
        "cluster for 40 s."
    )


def test_a_client_that_may_have_aborted_is_not_only_restarted() -> None:
    clients = [replace(client, version="Pulsar-CPP-v4.2.0") for client in facts().before[FIRST]]
    (incident,) = detect_incidents(facts(before={FIRST: tuple(clients)}, green={FIRST: seen(stats("p-1"))}))
    assert "take the Python logger, or the log level Debug, from its client first" in incident.sentence


@given(NAMES, NAMES, NAMES)
def test_as_many_clients_are_missing_as_are_too_few(before: list[str], blue: list[str], green: list[str]) -> None:
    sides = [TopicStats.of(FIRST, stats(*names)).clients for names in (before, blue, green)]
    missing = absent_clients(*sides)
    assert len(missing) <= max(0, len(before) - len(blue) - len(green)) or not {*blue, *green} <= {*before}
    assert {client.name for client in missing} <= {*before} - {*blue, *green}
    if not blue and not green:
        assert len(missing) == len(before)


def test_an_unload_under_the_flag_is_no_remedy_while_messages_are_unread() -> None:
    reread = detect_incidents(facts(fenced={FIRST}, blue={FIRST: seen(stats(billing=(1, ["c-1"])))}))
    assert Remedy.UNLOAD not in [incident.remedy for incident in reread]


def test_the_flag_is_not_set_again_over_topics_that_it_would_strand() -> None:
    assert (IncidentKind.FLAG_RESET, Remedy.WAIT) in found(flagged=False, blue=GONE)


INCIDENT = Incident(
    kind=IncidentKind.FLAG_RESET, namespace="acme/orders", subject="acme/orders", sentence="", remedy=Remedy.SET_FLAG
)


@given(st.lists(st.floats(0, 1e5), max_size=6), st.floats(0, 2e5))
def test_a_remedy_is_attempted_twice_at_most_and_never_at_once(tries: list[float], now: float) -> None:
    done = [Attempt(INCIDENT.id, "acme/orders", at) for at in tries]
    if may_attempt(INCIDENT, done, now):
        assert len(done) < MAX_ATTEMPTS
        assert all(now - attempt.at >= ATTEMPT_INTERVAL_SECONDS for attempt in done)
    assert is_exhausted(INCIDENT, done) is (len(done) >= MAX_ATTEMPTS)


def test_a_namespace_that_does_not_recover_is_left_to_an_operator() -> None:
    others = [Attempt(f"other-{number}", "acme/orders", 0.0) for number in range(MAX_NAMESPACE_ATTEMPTS)]
    assert not may_attempt(INCIDENT, others, 1e6)
    assert may_attempt(replace(INCIDENT, namespace="acme/audit"), others, 1e6)


@pytest.mark.parametrize("remedy", [Remedy.READ_PARTITIONS, Remedy.WAIT, Remedy.OPERATOR])
def test_a_remedy_for_an_operator_is_never_attempted(remedy: Remedy) -> None:
    assert not may_attempt(replace(INCIDENT, remedy=remedy), [], 0.0)


def test_permissions_are_granted_on_green_and_never_revoked() -> None:
    blue = {
        "auth_policies": {
            "namespace_auth": {"app": ["produce", "consume"], "old": ["consume"]},
            "destination_auth": {str(FIRST): {"one": ["produce"]}},
            "subscription_auth_roles": {"billing": ["b"]},
        }
    }
    green = {"auth_policies": {"namespace_auth": {"app": ["functions"], "old": ["consume"], "new": ["consume"]}}}
    calls = {grant.call.path: grant.call.body for grant in missing_grants(ORDERS, blue, green)}
    assert calls == {
        "/namespaces/acme/orders/permissions/app": ["consume", "functions", "produce"],
        f"/{FIRST.path}/permissions/one": ["produce"],
        "/namespaces/acme/orders/permissions/subscription/billing": ["b"],
    }
    assert missing_grants(ORDERS, blue, blue) == ()


def test_an_incident_that_is_no_longer_detected_is_over_and_stays_recorded() -> None:
    namespace = NamespaceState.begin(0.0)
    namespace.record_incidents([INCIDENT], 1.0)
    namespace.record_incidents([], 9.0)
    (record,) = namespace.incidents.values()
    assert (record["first"], record["last"], record["outcome"]) == (1.0, 1.0, "over")


DEPARTED = {FIRST: TopicStats.of(FIRST, stats(billing=(7, ["c-1"]))).clients}


def test_a_backlog_without_its_consumer_is_named_with_its_last_owner() -> None:
    present = TopicStats.of(FIRST, stats("p-1")).clients
    (incident,) = detect_incidents(
        facts(before={FIRST: present}, blue={FIRST: seen(stats(billing=(7, [])))}, departed=DEPARTED, seconds=0.0)
    )
    assert (incident.kind, incident.remedy) == (IncidentKind.NO_CONSUMERS, Remedy.OPERATOR)
    assert incident.sentence.startswith(f"Start a consumer of subscription 'billing' on {FIRST}")
    assert "7 unread entries left on east, and no consumer was connected at the cut-over" in incident.sentence
    assert 'The last one was consumer "c-1" (10.0.0.1:3, Pulsar-Java-v4.2.4)' in incident.sentence


@pytest.mark.parametrize(
    "blue", [stats(billing=(0, [])), stats(billing=(7, ["c-2"])), stats()], ids=["read", "consumer is back", "deleted"]
)
def test_without_a_backlog_or_with_a_consumer_nobody_is_missed(blue: dict[str, Any]) -> None:
    assert found(blue={FIRST: seen(blue)}, departed=DEPARTED, before={}) == []


def test_consumers_of_the_gates_are_compared_with_those_of_the_cut_over(records: Any) -> None:
    run = Run.open("migrate/1")
    move = move_of(first=stats("p-1", billing=(7, ["c-1"]), audit=(1, ["a-1"])))
    gate = {FIRST: TopicStats.of(FIRST, stats("p-1", billing=(7, ["c-1"]), audit=(1, ["a-1"]))).clients}
    store_gate_clients(run, str(ORDERS), gate)
    # The gates are evaluated again when billing has left already.
    later = {FIRST: TopicStats.of(FIRST, stats("p-1", audit=(1, ["a-1"]))).clients}
    store_gate_clients(run, str(ORDERS), later)
    assert departed_consumers(run, move, {}) == {}
    departed = departed_consumers(run, move, {str(ORDERS): later})
    assert [client.name for client in departed[FIRST]] == ["c-1"]
    replicated = replace(move, strategy=Strategy.REPLICATE)
    assert departed_consumers(run, replicated, {str(ORDERS): later}) == {}
