"""States and causes from facts, without a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docs.tools.catalogue_tables import with_causes
from hypothesis import given
from hypothesis import strategies as st
from tests.support.moved_groups import published_on_green

from pulsar_fleet.clients.store import Followed
from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.statistics import Cursor
from pulsar_fleet.planning.hazards import cluster_lists, guard_call, risks_of_calls
from pulsar_fleet.preflight.bookies import Bookies
from pulsar_fleet.replication.doctor.causes.catalogue import CATALOGUE
from pulsar_fleet.replication.doctor.causes.pair import forecast_seconds
from pulsar_fleet.replication.doctor.changes import changes_between
from pulsar_fleet.replication.doctor.diagnosis import diagnose, state_of
from pulsar_fleet.replication.doctor.facts import (
    ClusterFacts,
    FleetFacts,
    MissingSchema,
    NamespaceFacts,
    PeerData,
    Reading,
    ReplicatorFacts,
    TargetTopic,
    TopicPolicies,
    Unread,
    renewed,
    require_clusters,
)
from pulsar_fleet.replication.doctor.model import FILL_IN, Examination, RemedyCall, Severity, State, placeholder
from pulsar_fleet.replication.doctor.remedies import chosen_calls, send_remedies
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.replication.doctor.text import examination_text, headline
from pulsar_fleet.report.replication import examination_report

NAME = NamespaceName("acme", "orders")
TOPIC = TopicName(NAME, "events")
BOTH = ("blue", "green")


def cluster(name: str, **fields: Any) -> ClusterFacts:
    fields = {"version": "4.2.4", **fields}
    peers = {peer: PeerData(name=peer) for peer in BOTH}
    data = {"serviceUrl": f"http://{name}:8080", "brokerServiceUrl": f"pulsar://{name}:6650"}
    return ClusterFacts(name=name, connection=name, **{"configuration": {}, "peers": peers, "data": data, **fields})


def namespace(own: str, **fields: Any) -> NamespaceFacts:
    defaults = {
        "exists": True,
        "clusters": BOTH,
        "tenant_exists": True,
        "tenant": {"adminRoles": ["ops"], "allowedClusters": list(BOTH)},
        "topics": {TOPIC: 0},
        "topic_policies": {},
    }
    return NamespaceFacts(cluster=own, name=NAME, **{**defaults, **fields})


def replicator(**fields: Any) -> ReplicatorFacts:
    idle = Reading(connected=True, outbound="x")
    return ReplicatorFacts(
        **{"source": "blue", "target": "green", "topic": TOPIC, "first": idle, "last": idle, **fields}
    )


def cursor(entry: int, consumed: int) -> Cursor:
    return Cursor(mark_delete=Position(1, entry), consumed=consumed)


STALLED = replicator(last=Reading(connected=True, backlog=5), cursors=(cursor(4, 4), cursor(4, 4)), seconds=3.0)
SLOW = Reading(connected=True, backlog=500)
FLAGGED = {("blue", TOPIC): {"billing": 3.0}}
DISCONNECTED = replicator(last=Reading(backlog=5), cursors=(cursor(4, 4), cursor(4, 4)), seconds=3.0)


def fleet(*rows: ReplicatorFacts, **fields: Any) -> FleetFacts:
    facts = FleetFacts(
        clusters={name: cluster(name) for name in BOTH},
        namespaces={(name, NAME): namespace(name) for name in BOTH},
        replicators=rows or (replicator(), replicator(source="green", target="blue")),
    )
    return replace(facts, **fields)


def with_target(facts: FleetFacts, **fields: Any) -> FleetFacts:
    return replace(facts, targets={("green", TOPIC): TargetTopic(**{"exists": True, **fields})})


def missing(*accepted: bool | None) -> tuple[MissingSchema, ...]:
    """Versions from 1 on, each with whether the target accepts it."""
    return tuple(
        MissingSchema(version=number, body={"type": "AVRO", "schema": str(number)}, accepted=is_accepted)
        for number, is_accepted in enumerate(accepted, 1)
    )


def on_green(facts: FleetFacts, **fields: Any) -> FleetFacts:
    return replace(facts, namespaces={**facts.namespaces, ("green", NAME): namespace("green", **fields)})


def ids(facts: FleetFacts, **settings: Any) -> list[str]:
    return [row.id for row in diagnose(facts, Request(**settings)).diagnoses]


def test_a_fleet_whose_replicators_are_idle_and_connected_is_healthy() -> None:
    examination = diagnose(fleet(), Request())
    assert (examination.diagnoses, examination.replicators, examination.counts) == ((), (), {"healthy": 2})
    assert headline(examination).startswith("Replication works.")


def test_a_link_is_as_late_as_its_latest_replicator() -> None:
    slow = replicator(
        topic=TOPIC.partition(1),
        first=Reading(connected=True, backlog=530),
        last=Reading(connected=True, backlog=500, delay_seconds=70),
        cursors=(cursor(4, 4), cursor(5, 64)),
        seconds=3.0,
    )
    back = replicator(source="green", target="blue")
    link, other = diagnose(fleet(replicator(), slow, back), Request(behind_seconds=10)).links
    assert (link.source, link.target, link.counts, link.worst) == (
        "blue",
        "green",
        {"healthy": 1, "behind": 1},
        "behind",
    )
    assert (link.backlog, link.delay_seconds, link.per_second, link.catch_up_seconds) == (500, 70, 20, 50)
    assert (other.source, other.worst, other.backlog, other.catch_up_seconds) == ("green", State.HEALTHY, 0, 0)


def moved(*namespaces: str, cluster: str = "green", origin: str = "blue") -> tuple[Followed, ...]:
    published = replace(published_on_green(cluster=cluster), namespaces=namespaces or (str(NAME),))
    return (Followed(published=published, origin=origin, is_away=True),)


def test_moved_applications_can_return_while_they_are_replicated_back() -> None:
    (row,) = diagnose(fleet(), Request(moved=moved())).returns
    assert (row.group, row.run, row.replicators.source, row.replicators.target) == (
        "orders",
        "move_clients/1",
        "green",
        "blue",
    )
    assert (row.replicators.worst, row.text()) == (
        State.HEALTHY,
        "RETURN       orders: green → blue healthy, 0 entries behind",
    )
    stalled = replace(STALLED, source="green", target="blue")
    examination = diagnose(fleet(replicator(), stalled), Request(moved=moved()))
    assert (examination.returns[0].replicators.worst, examination.returns[0].replicators.backlog) == (State.STALLED, 5)
    assert "RETURN       orders: green → blue stalled, 5 entries behind" in examination_text(examination)


@pytest.mark.parametrize(
    ("fields", "resource"),
    [
        ({"clusters": ("green",)}, str(NAME)),
        ({"exists": False, "topics": None}, str(NAME)),
        ({"topic_policies": {TOPIC: TopicPolicies(local={"replicationClusters": ["green"]})}}, str(TOPIC)),
    ],
)
def test_what_moved_applications_write_is_a_fault_if_nothing_sends_it_back(
    fields: dict[str, Any], resource: str
) -> None:
    examination = diagnose(on_green(fleet(replicator()), **fields), Request(moved=moved()))
    found = [row for row in examination.diagnoses if row.id == "return-stopped"]
    assert [(row.resource, row.source, row.target) for row in found] == [(resource, "green", "blue")]
    assert "led to green (run move_clients/1)" in found[0].evidence
    assert (examination.has_fault, examination.returns[0].replicators.worst) == (True, State.MISSING)


def test_a_return_that_was_not_read_is_unknown_or_left_out() -> None:
    unread = on_green(fleet(replicator()), exists=None, topics=None)
    examination = diagnose(unread, Request(moved=moved()))
    assert ([*ids(unread, moved=moved())], examination.returns[0].replicators.worst) == ([], State.UNKNOWN)
    assert diagnose(fleet(), Request(moved=moved(origin="far"))).returns == ()
    assert diagnose(fleet(), Request(moved=moved("acme/other"), selection=Selection.parse([str(NAME)]))).returns == ()


def test_a_link_with_a_replicator_that_does_not_catch_up_has_no_end() -> None:
    (link,) = diagnose(fleet(replicator(), DISCONNECTED), Request()).links
    assert (link.worst, link.backlog, link.catch_up_seconds) == (State.DISCONNECTED, 5, None)


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (replicator(), State.HEALTHY),
        (replicator(error="blue answered 500"), State.UNKNOWN),
        (replicator(first=None, last=None), State.MISSING),
        (DISCONNECTED, State.DISCONNECTED),
        (STALLED, State.STALLED),
        (replace(STALLED, cursors=(cursor(4, 4), cursor(5, 5))), State.HEALTHY),
        (replace(STALLED, cursors=(cursor(4, 4), cursor(9, 1))), State.HEALTHY),
        (replace(STALLED, last=Reading(connected=True, backlog=5), cursors=()), State.UNKNOWN),
        (
            replace(STALLED, last=Reading(connected=True, backlog=500), cursors=(cursor(4, 4), cursor(5, 7))),
            State.BEHIND,
        ),
    ],
)
def test_the_state_is_by_what_the_target_confirmed_between_two_readings(row: ReplicatorFacts, state: State) -> None:
    assert state_of(row, behind_seconds=60) is state


@pytest.mark.parametrize(
    ("versions", "named"),
    [
        (("4.0.7", "4.2.5"), ["#25625", "#26002", "#26106", "#26005", "#25097"]),
        (("4.2.4", "4.0.7"), ["#25097"]),
        (("4.1.9", "4.0.7"), []),
        (("", ""), []),
    ],
)
def test_a_stalled_replicator_names_the_defects_of_its_source(versions: tuple[str, str], named: list[str]) -> None:
    clusters = {name: cluster(name, version=version) for name, version in zip(BOTH, versions, strict=True)}
    (diagnosis,) = diagnose(fleet(STALLED, clusters=clusters), Request()).diagnoses
    assert diagnosis.id == "stalled-unexplained"
    assert re.findall(r"#\d+", diagnosis.evidence) == named


@given(st.integers(1, 10**9), st.integers(0, 10**6), st.floats(0.1, 100))
def test_a_connected_replicator_that_sends_is_never_stalled(backlog: int, sent: int, seconds: float) -> None:
    row = replace(
        STALLED,
        last=Reading(connected=True, backlog=backlog),
        cursors=(cursor(0, 0), cursor(sent, sent)),
        seconds=seconds,
    )
    assert (state_of(row, 60) is State.STALLED) == (sent == 0)


def test_the_forecast_is_by_the_rate_at_which_the_backlog_shrinks() -> None:
    row = replicator(first=Reading(backlog=130), last=Reading(backlog=100, connected=True), seconds=3.0)
    assert forecast_seconds(row) == 10
    assert forecast_seconds(replace(row, first=Reading(backlog=90))) is None


def test_a_list_on_one_side_is_a_warning_unless_the_other_only_receives() -> None:
    facts = on_green(fleet(replicator()), clusters=("green",))
    assert ids(facts) == ["one-way"]
    assert ids(facts, receive_only=frozenset({"green"})) == []


def test_the_list_that_a_migration_extends_for_its_copy_is_not_one_sided() -> None:
    facts = on_green(fleet(replicator()), clusters=("green",))
    added = {key: replace(row, added_by_run=frozenset({"green"})) for key, row in facts.namespaces.items()}
    assert ids(replace(facts, namespaces=added)) == []


def test_a_cluster_that_should_only_receive_and_sends_is_named() -> None:
    assert ids(fleet(), receive_only=frozenset({"green"})) == ["receive-only-sends"]


@pytest.mark.parametrize(
    ("facts", "id_"),
    [
        (on_green(fleet(DISCONNECTED), topics={TOPIC: 4}), "partitioned-on-one-side"),
        (on_green(fleet(DISCONNECTED), exists=False), "namespace-missing"),
        (on_green(fleet(DISCONNECTED), exists=False, tenant_exists=False, tenant=None), "tenant-not-allowed"),
        (on_green(fleet(DISCONNECTED), exists=False, tenant={"allowedClusters": ["far"]}), "tenant-not-allowed"),
        (on_green(fleet(DISCONNECTED), clusters=("blue",)), "own-cluster-missing"),
        (on_green(fleet(DISCONNECTED), migrated=True), "namespace-migrated"),
        (with_target(fleet(DISCONNECTED), terminated=True), "topic-terminated"),
        (fleet(DISCONNECTED), "disconnected-unexplained"),
        (fleet(STALLED), "stalled-unexplained"),
        (fleet(replicator(first=None, last=None)), "missing-unexplained"),
        (with_target(fleet(STALLED), missing=missing(False)), "schema-incompatible"),
        (with_target(fleet(STALLED), missing=missing(True)), "schema-blocked"),
        (
            with_target(on_green(fleet(STALLED), allows_schema_update=False), missing=missing(True)),
            "schema-update-refused",
        ),
        (
            with_target(
                on_green(
                    fleet(DISCONNECTED),
                    policies={
                        "backlog_quota_map": {"destination_storage": {"limitSize": 10, "policy": "producer_exception"}}
                    },
                ),
                stored_bytes=10,
            ),
            "target-quota-exceeded",
        ),
        (fleet(replace(DISCONNECTED, last=Reading(expired_rate=1.5))), "backlog-expires"),
    ],
)
def test_a_cause_is_named_with_evidence_and_remedy(facts: FleetFacts, id_: str) -> None:
    examination = diagnose(facts, Request())
    (diagnosis,) = [row for row in examination.diagnoses if row.id == id_]
    assert diagnosis.evidence
    assert diagnosis.remedy
    assert examination.has_fault
    others = {row.id for row in examination.diagnoses if row.severity is Severity.FAULT} - {id_}
    assert others <= ({"disconnected-unexplained"} if id_ == "backlog-expires" else set())
    assert examination.replicators[0].causes


def test_a_publish_rate_explains_an_unconnected_topic_beside_it() -> None:
    other, limit = TopicName(NAME, "payments"), {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    slow = replace(STALLED, topic=other, last=SLOW, cursors=(cursor(4, 4), cursor(6, 6)))
    facts = on_green(
        fleet(DISCONNECTED, slow),
        topics={TOPIC: 0, other: 0},
        topic_policies={other: TopicPolicies(local={"publishRate": limit})},
    )
    by_id = {row.id: row for row in diagnose(facts, Request()).diagnoses}
    assert set(by_id) == {"target-publish-limited", "connection-held-back"}
    assert by_id["connection-held-back"].resource == str(TOPIC)
    assert f"a publish rate on green holds back {other}" in by_id["connection-held-back"].evidence
    assert "connection-held-back" not in ids(replace(facts, replicators=(DISCONNECTED,)))


def test_the_first_cause_between_clusters_explains_all_their_replicators() -> None:
    down = {"blue": cluster("blue"), "green": cluster("green", outage="no answer in 5 s")}
    facts = fleet(DISCONNECTED, clusters=down)
    facts = replace(facts, namespaces={("blue", NAME): namespace("blue")})
    examination = diagnose(facts, Request())
    assert [row.id for row in examination.diagnoses] == ["target-unreachable"]
    assert examination.outages == {"green": "no answer in 5 s"}


NO_PEERS = {"blue": cluster("blue", peers={}), "green": cluster("green")}


def peer_of_blue(**fields: Any) -> FleetFacts:
    peers = {"blue": PeerData(name="blue"), "green": PeerData(name="green", **fields)}
    settings = {"authenticationEnabled": "true"}
    return fleet(
        DISCONNECTED, clusters={"blue": cluster("blue", peers=peers), "green": cluster("green", configuration=settings)}
    )


@pytest.mark.parametrize(
    ("facts", "id_"),
    [
        (
            fleet(DISCONNECTED, clusters=NO_PEERS),
            "cluster-data-missing",
        ),
        (peer_of_blue(leads_to={"http://x": "far"}), "cluster-data-wrong"),
        (peer_of_blue(leads_to={"http://x": None}, unreachable={"pulsar://x": "refused"}), "cluster-data-unreachable"),
        (peer_of_blue(tls=True, broker_url_tls="pulsar+ssl://x"), "tls-untrusted"),
        (peer_of_blue(), "credentials-missing"),
        (peer_of_blue(plugin="AuthenticationToken", refusal="green does not accept it."), "credentials-refused"),
        (peer_of_blue(plugin="AuthenticationToken", refusal=""), "disconnected-unexplained"),
    ],
)
def test_a_cause_between_clusters_is_named(facts: FleetFacts, id_: str) -> None:
    assert [row.id for row in diagnose(facts, Request()).faults] == [id_]


def test_a_call_keeps_right_cluster_data_and_asks_a_person_for_the_rest() -> None:
    stored = {
        "serviceUrl": "http://far:8080",
        "brokerServiceUrl": "pulsar://far:6650",
        "authenticationPlugin": "AuthenticationToken",
        "authenticationParameters": placeholder("authenticationParameters as it is stored now"),
        "peerClusterNames": ["north"],
    }
    facts = peer_of_blue(leads_to={"http://far:8080": "far"}, plugin="AuthenticationToken", data=stored)
    (fault,) = diagnose(facts, Request()).faults
    (remedy,) = fault.calls
    right = {"serviceUrl": "http://green:8080", "brokerServiceUrl": "pulsar://green:6650"}
    assert remedy.call == with_body("POST", "/clusters/green", {**stored, **right})
    assert not remedy.is_ready
    assert FILL_IN in fault.text()


def test_data_of_a_cluster_that_demands_credentials_is_never_registered() -> None:
    """Brokers would keep a client without credentials until they restart."""
    green = cluster("green", configuration={"authenticationEnabled": "true"})
    facts = fleet(DISCONNECTED, clusters={"blue": cluster("blue", peers={}), "green": green})
    (fault,) = diagnose(facts, Request()).faults
    assert (fault.id, fault.automatic, fault.calls[0].is_ready) == ("cluster-data-missing", False, False)
    (open_,) = diagnose(fleet(DISCONNECTED, clusters=NO_PEERS), Request()).faults
    assert (open_.automatic, open_.calls[0].is_ready) == (True, True)


def test_a_topic_of_policies_that_differs_is_no_fault_and_is_never_deleted() -> None:
    events = TopicName(NAME, "__change_events")
    facts = fleet(replace(DISCONNECTED, topic=events))
    blue_namespace, green_namespace = namespace("blue", topics={events: 2}), namespace("green", topics={events: 0})
    facts = replace(facts, namespaces={("blue", NAME): blue_namespace, ("green", NAME): green_namespace})
    examination = diagnose(facts, Request())
    (warning,) = examination.diagnoses
    assert (warning.id, warning.severity, warning.calls) == ("policy-topic-differs", Severity.WARNING, ())
    assert not examination.has_fault
    assert diagnose(fleet(DISCONNECTED), Request()).has_fault
    assert "#25312" not in warning.evidence
    clusters = {"blue": cluster("blue", version="4.2.4"), "green": cluster("green", version="4.0.9")}
    (mutual,) = diagnose(replace(facts, clusters=clusters), Request()).diagnoses
    assert "Brokers of 4.0.9 are known for this: apache/pulsar#25312 (fixed in 4.0.10)." in mutual.evidence


def test_addresses_with_tls_are_asked_for_where_only_others_are_known() -> None:
    source = cluster("blue", configuration={"brokerClientTlsEnabled": "true"})
    facts = fleet(DISCONNECTED, clusters={"blue": source, "green": cluster("green")})
    body = diagnose(facts, Request()).faults[0].calls[0].call.body
    assert {*body} == {
        "serviceUrlTls",
        "brokerServiceUrlTls",
        "brokerClientTlsEnabled",
        "brokerClientTrustCertsFilePath",
    }
    assert body["brokerServiceUrlTls"] == "<address of the brokers of green with TLS>"


def test_a_cause_of_all_replicators_is_not_named_where_one_is_connected() -> None:
    facts = peer_of_blue(leads_to={"http://x": None}, unreachable={"pulsar://x": "refused"})
    other = replicator(topic=TopicName(NAME, "other"))
    facts = replace(facts, replicators=(DISCONNECTED, other))
    assert [row.id for row in diagnose(facts, Request()).faults] == ["disconnected-unexplained"]


def test_brokers_that_use_tls_need_addresses_with_tls() -> None:
    source = cluster("blue", configuration={"brokerClientTlsEnabled": "true"})
    assert ids(fleet(DISCONNECTED, clusters={"blue": source, "green": cluster("green")})) == ["tls-required"]


def test_what_could_not_be_read_is_unknown_and_never_fine() -> None:
    unread = (Unread(cluster="green", resource="cluster data", reason="403"),)
    examination = diagnose(fleet(replicator(error="blue answered 500"), unread=unread), Request())
    assert examination.counts == {"unknown": 1}
    assert not examination.is_complete
    assert not headline(diagnose(fleet(unread=unread), Request())).startswith("Replication works")


def test_a_topic_list_on_one_side_is_named_and_one_on_both_is_not() -> None:
    local = {name: {TOPIC: TopicPolicies(local={"replicationClusters": [name]})} for name in BOTH}
    rows = (replicator(expected=False),)
    both = {(name, NAME): namespace(name, topic_policies=local[name]) for name in BOTH}
    assert ids(fleet(*rows, namespaces=both)) == []
    one_sided = {**both, ("blue", NAME): namespace("blue")}
    assert ids(fleet(replicator(), namespaces=one_sided)) == ["topic-list-differs"]


def test_replicated_subscriptions_are_blocked_by_the_cluster_that_is_down() -> None:
    three = (*BOTH, "far")
    facts = fleet(DISCONNECTED, subscriptions=FLAGGED)
    facts = replace(facts, namespaces={(name, NAME): namespace(name, clusters=three) for name in BOTH})
    assert "replicated-subscriptions-blocked" in ids(facts)


def test_replicated_subscriptions_are_blocked_by_a_replicator_back() -> None:
    back = replace(STALLED, source="green", target="blue")
    examination = diagnose(fleet(replicator(), back, subscriptions=FLAGGED), Request())
    blocked = [row for row in examination.diagnoses if row.id == "replicated-subscriptions-blocked"]
    assert [(row.source, row.target) for row in blocked] == [("blue", "green")]
    assert "replicated-subscriptions-blocked" not in ids(fleet(DISCONNECTED, subscriptions=FLAGGED))


def with_far(far: tuple[str, ...] | None, *, inbound: str = "") -> FleetFacts:
    """Blue and green replicate both ways and to a third cluster; `far`: its list, None: it is not examined."""
    three = (*BOTH, "far")
    link = Reading(connected=True, outbound="x", inbound=inbound)
    rows = [replicator(source=own, target=other) for own in BOTH for other in three if own != other]
    rows = [replace(row, first=link, last=link) if row.target == "far" else row for row in rows]
    facts = fleet(*rows, subscriptions=FLAGGED | {("green", TOPIC): {"billing": 263.0}})
    namespaces = {(name, NAME): namespace(name, clusters=three) for name in BOTH}
    if far is None:
        return replace(facts, namespaces=namespaces)
    everywhere = {**facts.clusters, "far": cluster("far")}
    return replace(facts, clusters=everywhere, namespaces={**namespaces, ("far", NAME): namespace("far", clusters=far)})


@pytest.mark.parametrize("facts", [with_far(("far",)), with_far(None)], ids=["by its list", "by its connection"])
def test_a_cluster_that_only_receives_stops_replicated_subscriptions(facts: FleetFacts) -> None:
    examination = diagnose(facts, Request(receive_only=frozenset({"far"})))
    found = [row for row in examination.faults if row.id == "replicated-subscriptions-unanswered"]
    assert [(row.source, row.target) for row in found] == [("blue", "far"), ("green", "far")]
    assert "on blue 3 s ago, on green 4 min 23 s ago" in found[0].evidence


@pytest.mark.parametrize("facts", [with_far((*BOTH, "far")), with_far(None, inbound="/10.0.0.7:6650")])
def test_a_third_cluster_that_replicates_back_stops_nothing(facts: FleetFacts) -> None:
    assert not [id_ for id_ in ids(facts) if id_.startswith("replicated-subscriptions")]


def test_replicated_subscriptions_of_a_one_way_copy_are_information_only() -> None:
    facts = on_green(fleet(replicator(), subscriptions=FLAGGED), clusters=("green",))
    examination = diagnose(facts, Request(receive_only=frozenset({"green"})))
    assert [(row.id, row.severity) for row in examination.diagnoses] == [
        ("replicated-subscriptions-one-way", Severity.INFO)
    ]


def test_a_topic_list_without_a_cluster_that_serves_it_is_a_fault_there() -> None:
    shared = {TOPIC: TopicPolicies(shared={"replicationClusters": ["blue"]})}
    facts = fleet(
        namespaces={("blue", NAME): namespace("blue", topic_policies=shared), ("green", NAME): namespace("green")}
    )
    (found,) = [row for row in diagnose(facts, Request()).faults if row.id == "topic-list-without-cluster"]
    assert (found.clusters, found.resource, found.evidence) == (
        "green",
        str(TOPIC),
        "Its global list on blue is ['blue'].",
    )
    own = {TOPIC: TopicPolicies(local={"replicationClusters": ["green"]})}
    assert "topic-list-without-cluster" not in ids(on_green(facts, topic_policies=own))
    assert "topic-list-without-cluster" not in ids(on_green(facts, topics={}))


@pytest.mark.parametrize("role", [frozenset(), frozenset({"green"}), frozenset({"blue"})])
def test_a_source_whose_list_lacks_it_is_the_first_fault_in_any_role(role: frozenset[str]) -> None:
    lists = {name: namespace(name, clusters=("green",)) for name in BOTH}
    facts = fleet(replicator(expected=False), namespaces={(name, NAME): facts for name, facts in lists.items()})
    (first, *_) = diagnose(facts, Request(receive_only=role)).diagnoses
    assert (first.id, first.clusters, first.automatic) == ("own-cluster-missing", "blue", True)


def test_a_cluster_that_only_the_allowed_clusters_have_is_no_deletion() -> None:
    lists = {"clusters": ("green",), "allowed_clusters": BOTH}
    facts = fleet(replicator(first=None, last=None))
    facts = replace(facts, namespaces={**facts.namespaces, ("blue", NAME): namespace("blue", **lists)})
    examination = diagnose(facts, Request(receive_only=frozenset({"green"})))
    assert [row.id for row in examination.faults] == ["own-cluster-not-listed"]
    assert examination.replicators[0].causes == ("own-cluster-not-listed",)


INBOUND = Reading(inbound="/10.0.0.7:6650")


def test_a_cluster_that_is_not_examined_and_sends_is_information_only() -> None:
    stranger = replicator(target="far", expected=False, first=INBOUND, last=INBOUND)
    examination = diagnose(fleet(replicator(), replicator(source="green", target="blue"), stranger), Request())
    assert [(row.id, row.severity) for row in examination.diagnoses] == [("inbound-only", Severity.INFO)]
    assert not examination.has_fault


def test_an_inbound_connection_is_no_fault_and_one_without_a_list_is_named() -> None:
    inbound = replicator(target="green", expected=False, first=INBOUND, last=INBOUND)
    alone = {name: namespace(name, clusters=(name,)) for name in BOTH}
    assert ids(fleet(inbound, namespaces={(name, NAME): facts for name, facts in alone.items()})) == [
        "removed-cluster-sends"
    ]
    sending = {("blue", NAME): alone["blue"], ("green", NAME): namespace("green")}
    assert ids(fleet(inbound, namespaces=sending), receive_only=frozenset({"blue"})) == []


LOWER = "limit-lower-on-target"
FIRST = Reading(connected=True, backlog=5, sent=(0, 0))
RESENT = replace(STALLED, first=FIRST, last=replace(FIRST, sent=(9000, 90_000)))
QUIET = replace(STALLED, first=FIRST, last=FIRST)
DELAYS = {"policies": {"delayed_delivery_policies": {"maxDeliveryDelayInMillis": 9}}}


def with_topic_policies(facts: FleetFacts, policies: TopicPolicies) -> FleetFacts:
    return on_green(facts, topic_policies={TOPIC: policies})


def with_bookies(facts: FleetFacts, count: int | None, groups: dict[str, int] | None = None) -> FleetFacts:
    green = cluster("green", bookies=Bookies(count=count, groups=groups))
    return replace(facts, clusters={**facts.clusters, "green": green})


def test_what_the_target_refuses_explains_a_replicator_without_a_link() -> None:
    """Also where both clusters require encryption; a number of bookies that is not known is no cause."""
    unlinked = with_target(fleet(DISCONNECTED), exists=True)
    assert ids(on_green(unlinked, policies={"encryption_required": True})) == ["encryption-required"]
    brokers = {**unlinked.clusters, "green": cluster("green", configuration={"encryptionRequireOnProducer": "true"})}
    assert ids(replace(unlinked, clusters=brokers)) == ["encryption-required"]
    wide = on_green(unlinked, policies={"persistence": {"bookkeeperEnsemble": 5}})
    assert ids(with_bookies(wide, 1)) == ["bookies-missing"]
    assert ids(with_bookies(wide, 5)) == ids(with_bookies(wide, None)) == ["disconnected-unexplained"]


def test_a_group_without_bookies_explains_a_topic_that_cannot_be_created() -> None:
    """Not where enough bookies are in no group; groups that are not known are no cause."""
    missing = with_target(fleet(DISCONNECTED), exists=False)
    fast = on_green(missing, policies={"bookie_affinity": {"bookkeeperAffinityGroupPrimary": "fast"}})
    assert ids(with_bookies(fast, 1, {"slow": 1})) == ["bookie-group-missing"]
    for groups in ({"slow": 0}, {"fast": 1}, None):
        assert ids(with_bookies(fast, 1, groups)) == ["disconnected-unexplained"]


def test_a_namespace_that_is_full_explains_a_topic_that_is_missing() -> None:
    missing = with_target(fleet(DISCONNECTED), exists=False)
    other = {TopicName(NAME, "other"): 2}
    full = on_green(missing, topics=other, policies={"max_topics_per_namespace": 2})
    assert ids(full) == ["too-many-topics"]
    assert ids(on_green(missing, topics=other, policies={"max_topics_per_namespace": 3})) == [
        "disconnected-unexplained"
    ]


def test_a_lower_limit_explains_a_stall_only_where_messages_are_sent_again() -> None:
    resent, quiet = (with_target(on_green(fleet(row), **DELAYS), exists=True) for row in (RESENT, QUIET))
    assert ids(resent) == ["message-refused", LOWER]
    assert ids(quiet) == ["stalled-unexplained", LOWER]


@pytest.mark.parametrize(("per_second", "named"), [(0, False), (300, False), (600, True), (1100, True)])
def test_a_rate_limit_explains_only_a_replicator_that_is_near_it(per_second: int, named: bool) -> None:
    sent = int(per_second * STALLED.seconds)
    row = replace(STALLED, first=FIRST, last=replace(FIRST, sent=(sent, sent)))
    rate = {"dispatchThrottlingRateInMsg": 1000, "ratePeriodInSecond": 1}
    facts = fleet(row)
    limited = namespace("blue", policies={"replicatorDispatchRate": rate})
    found = ids(replace(facts, namespaces={**facts.namespaces, ("blue", NAME): limited}))
    assert found == (["replicator-rate-limited"] if named else ["stalled-unexplained"])


@pytest.mark.parametrize(
    ("facts", "id_"),
    [
        (
            fleet(
                replace(STALLED, last=SLOW, cursors=(cursor(4, 4), cursor(5, 7))),
                namespaces={
                    ("blue", NAME): namespace(
                        "blue", policies={"replicatorDispatchRate": {"dispatchThrottlingRateInMsg": 1}}
                    ),
                    ("green", NAME): namespace("green"),
                },
            ),
            "replicator-rate-limited",
        ),
        (on_green(fleet(), policies={"delayed_delivery_policies": {"maxDeliveryDelayInMillis": 9}}), LOWER),
        (
            with_topic_policies(fleet(), TopicPolicies(local={"maxMessageSize": 1000})),
            LOWER,
        ),
        (fleet(replace(STALLED, last=SLOW, cursors=(cursor(4, 4), cursor(5, 7)))), "behind"),
        (
            on_green(
                fleet(), policies={"autoTopicCreationOverride": {"topicType": "partitioned", "defaultNumPartitions": 3}}
            ),
            "auto-creation-differs",
        ),
        (on_green(fleet(), tenant={"adminRoles": [], "allowedClusters": [*BOTH, "old"]}), "removed-cluster-in-tenant"),
    ],
)
def test_a_risk_is_a_warning(facts: FleetFacts, id_: str) -> None:
    examination = diagnose(facts, Request())
    assert [(row.id, row.severity) for row in examination.diagnoses] == [(id_, Severity.WARNING)]
    assert not examination.has_fault


@pytest.mark.parametrize(
    ("name", "hint"), [("gren", "did you mean 'green'"), ("pulsar_green", "is 'green'"), ("x", "are blue, green")]
)
def test_a_receive_only_cluster_that_does_not_exist_is_refused(name: str, hint: str) -> None:
    clusters = {"blue": cluster("blue"), "green": replace(cluster("green"), connection="pulsar_green")}
    require_clusters(fleet(clusters=clusters), ["green"])
    with pytest.raises(InvalidRequest, match=hint):
        require_clusters(fleet(clusters=clusters), [name])


def test_a_newer_reading_replaces_that_of_its_namespaces() -> None:
    assert diagnose(renewed(fleet(DISCONNECTED), fleet()), Request()).diagnoses == ()


@pytest.mark.parametrize("about", [(), (str(NAME),), (NAME.tenant,), (str(NAME), NAME.tenant)])
def test_what_is_readable_at_the_newer_reading_is_known(about: tuple[str, ...]) -> None:
    first = Unread(cluster="green", resource="topics", reason="503", about=frozenset(about))
    other = Unread(cluster="green", resource="topics", reason="503", about=frozenset({"acme/payroll"}))
    examination = diagnose(renewed(fleet(DISCONNECTED, unread=(first,)), fleet()), Request())
    assert (examination.unread, examination.is_complete) == ((), True)
    assert renewed(fleet(unread=(other,)), fleet(unread=(first,))).unread == (other, first)


def test_a_newer_reading_leaves_no_details_of_topics_that_work() -> None:
    before = fleet(DISCONNECTED, targets={("green", TOPIC): TargetTopic(exists=False)}, subscriptions=FLAGGED)
    after = renewed(before, fleet())
    assert (after.targets, after.subscriptions) == ({}, {})


def test_a_newer_reading_keeps_where_addresses_of_other_peers_lead() -> None:
    elsewhere = PeerData(name="far", service_url="http://far:8080", leads_to={"http://far:8080": "green"})
    peers = {name: PeerData(name=name) for name in BOTH}
    first = fleet(clusters={"blue": cluster("blue", peers={**peers, "far": elsewhere}), "green": cluster("green")})
    unasked = replace(elsewhere, leads_to={})
    second = fleet(clusters={"blue": cluster("blue", peers={**peers, "far": unasked})})
    assert (renewed(first, second).clusters["blue"].peers or {})["far"] == elsewhere
    changed = fleet(clusters={"blue": cluster("blue", peers={**peers, "far": replace(unasked, data={"a": 1})})})
    assert not (renewed(first, changed).clusters["blue"].peers or {})["far"].leads_to


@pytest.mark.parametrize(
    ("source", "target", "excepts", "id_"),
    [
        ("5.0.1", "5.0.1", True, "schema-blocked"),
        ("5.0.1", "5.0.1", False, "schema-update-refused"),
        ("4.2.4", "5.0.1", True, "schema-update-refused"),
        ("", "", True, "schema-update-refused"),
    ],
)
def test_replicators_are_excepted_where_both_versions_know_of_it(
    source: str, target: str, excepts: bool, id_: str
) -> None:
    facts = with_target(fleet(STALLED), missing=missing(True))
    facts = on_green(facts, allows_schema_update=False, excepts_replicators=excepts)
    clusters = {"blue": cluster("blue", version=source), "green": cluster("green", version=target)}
    assert ids(replace(facts, clusters=clusters)) == [id_]


ABSENT = {("green", TOPIC): TargetTopic(exists=False)}
OFF = {"createTopicToRemoteClusterForReplication": "false"}


@pytest.mark.parametrize(
    ("version", "configuration", "said"),
    [
        ("3.0.7", {}, "brokers of blue run 3.0.7, whose replicators create no topic"),
        ("4.0.7", {}, "brokers of blue run 4.0.7, whose replicators create no topic"),
        ("", {}, "run a version that is not known, whose replicators create no topic"),
        ("4.2.4", OFF, "brokers of blue have createTopicToRemoteClusterForReplication=false"),
        ("4.2.4", None, "it is not known whether brokers of blue create it"),
    ],
)
@pytest.mark.parametrize("partitions", [0, 3])
def test_a_topic_that_no_replicator_creates_is_missing(
    version: str, configuration: dict[str, str] | None, said: str, partitions: int
) -> None:
    facts = on_green(fleet(DISCONNECTED, targets=ABSENT), topics={})
    ours = namespace("blue", topics={TOPIC: partitions})
    facts = replace(
        facts,
        clusters={**facts.clusters, "blue": cluster("blue", version=version, configuration=configuration)},
        namespaces={**facts.namespaces, ("blue", NAME): ours},
    )
    (diagnosis,) = diagnose(facts, Request()).faults
    assert (diagnosis.id, said in diagnosis.evidence) == ("topic-missing", True), diagnosis.evidence
    assert [call.call.path.endswith("/partitions") for call in diagnosis.calls] == [bool(partitions)]


def test_partitions_without_their_topic_are_a_fault_although_linked() -> None:
    """Automatic creation of 3.0.7 and 4.0.7 makes them."""
    facts = on_green(fleet(), topics={TOPIC.partition(0): 0, TOPIC.partition(1): 0})
    facts = replace(facts, namespaces={**facts.namespaces, ("blue", NAME): namespace("blue", topics={TOPIC: 2})})
    (diagnosis,) = diagnose(facts, Request()).faults
    assert (diagnosis.id, diagnosis.resource, diagnosis.calls) == ("partitions-without-topic", str(TOPIC), ())
    whole = on_green(facts, topics={TOPIC: 2})
    assert ids(whole) == []


@pytest.mark.parametrize("override", [{"allowAutoTopicCreation": False}, {}])
def test_creation_of_topics_on_one_side_only_is_no_difference_of_types(override: dict[str, Any]) -> None:
    by_policy = on_green(fleet(), policies={"autoTopicCreationOverride": override})
    off = cluster("green", configuration={} if override else {"allowAutoTopicCreation": "false"})
    assert ids(replace(by_policy, clusters={**by_policy.clusters, "green": off})) == []


def test_growing_partitions_is_printed_and_never_sent() -> None:
    facts = on_green(fleet(DISCONNECTED), topics={TOPIC: 4})
    facts = replace(facts, namespaces={**facts.namespaces, ("blue", NAME): namespace("blue", topics={TOPIC: 3})})
    examination = diagnose(facts, Request())
    (diagnosis,) = examination.faults
    assert (diagnosis.id, diagnosis.automatic) == ("partitions-differ", False)
    assert diagnosis.calls[0].text() == "blue: POST /admin/v2/persistent/acme/orders/events/partitions 4"
    assert chosen_calls(examination, {"partitions-differ"}) == ()
    with pytest.raises(InvalidRequest, match="for a person"):
        Request(remedies=frozenset({"partitions-differ"}))
    with pytest.raises(InvalidRequest, match="did you mean 'schema-blocked'"):
        Request(remedies=frozenset({"schema-block"}))


def test_every_missing_schema_is_registered_in_the_order_of_the_source() -> None:
    facts = on_green(with_target(fleet(STALLED), missing=missing(True, None)), allows_schema_update=False)
    (diagnosis,) = diagnose(facts, Request()).faults
    calls = [(remedy.call.path.rpartition("/")[2], remedy.call.body) for remedy in diagnosis.calls]
    assert calls == [
        ("schema", {"type": "AVRO", "schema": "1"}),
        ("schema", {"type": "AVRO", "schema": "2"}),
        ("unload", None),
    ]
    assert "lacks schema version 1, 2 of blue" in diagnosis.evidence


@pytest.mark.parametrize(
    ("accepted", "id_", "said"),
    [
        ((True, False), "schema-incompatible", "It does not accept version 2."),
        ((True, True), "schema-blocked", "green would accept schema version 1, 2 now"),
        ((True, None), "schema-blocked", "It is not known whether green would accept schema version 1, 2 now"),
        ((None,), "schema-blocked", "It is not known whether green would accept schema version 1 now"),
    ],
)
def test_a_schema_that_comes_later_is_judged_after_those_before_it(
    accepted: tuple[bool | None, ...], id_: str, said: str
) -> None:
    (diagnosis,) = diagnose(with_target(fleet(STALLED), missing=missing(*accepted)), Request()).faults
    assert (diagnosis.id, said in diagnosis.evidence) == (id_, True), diagnosis.evidence


async def test_a_remedy_that_could_lose_something_is_refused_before_any_call() -> None:
    calls = [
        with_body("POST", f"/namespaces/{NAME.path}/replication", ["blue"]),
        with_body("POST", f"/{TOPIC.path}/partitions", 4),
        Call("DELETE", f"/{TOPIC.path}"),
    ]
    for call in calls:
        with pytest.raises(PreconditionFailed, match="Nothing was sent"):
            await send_remedies({}, [RemedyCall(cluster="green", call=call)])


def test_every_call_that_is_sent_by_the_tool_passes_the_guards() -> None:
    facts = [
        on_green(fleet(DISCONNECTED), clusters=("blue",)),
        with_target(fleet(STALLED), missing=missing(True)),
        fleet(replicator(first=None, last=None)),
        fleet(DISCONNECTED, clusters=NO_PEERS),
    ]
    for diagnosis in [row for state in facts for row in diagnose(state, Request()).diagnoses]:
        for remedy in diagnosis.calls:
            guard_call(remedy.call, remedy.cluster)
            assert all(remedy.cluster in names for _, names in cluster_lists(remedy.call))
            stores = remedy.call.method == "POST" and bool(cluster_lists(remedy.call))
            assert (remedy.replaces is not None) == stores
            if diagnosis.automatic:
                risks = risks_of_calls([remedy.call], remedy.cluster)
                assert not any(risk.hazard.needs_permission for risk in risks)


def test_changes_name_the_state_before_and_after() -> None:
    changes = changes_between({"blue → green a": "stalled"}, {"blue → green b": "missing"})
    assert [change.text() for change in changes] == [
        "blue → green a: stalled → healthy",
        "blue → green b: healthy → missing",
    ]
    assert {change.source for change in changes} == {"blue"}


def test_an_examination_is_the_same_after_it_was_stored() -> None:
    examination = diagnose(with_target(fleet(STALLED), missing=missing(True)), Request())
    assert Examination.from_json(examination.to_json()) == examination
    assert "schema-blocked" in examination_text(examination)
    assert "schema-blocked" in examination_report(examination).markdown()


def test_the_page_has_every_state_and_cause() -> None:
    page = (Path(__file__).parents[4] / "docs" / "watch_replication.md").read_text()
    assert with_causes(page) == page
    assert all(f"`{id_}`" in page for id_ in CATALOGUE)
