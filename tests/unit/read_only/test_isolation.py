"""Which brokers an isolation policy covers, and what a plan warns of."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.planning.changes.clusters import matches_host
from pulsar_fleet.read_only.brokers import amount
from pulsar_fleet.read_only.checks import check_serving
from pulsar_fleet.read_only.isolation import (
    BROKERS,
    brokers_of,
    covers_namespace,
    destinations,
    free_brokers,
    host_pattern,
    is_own,
    isolation_document,
    not_live,
    recorded_brokers,
)
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Observed

LIVE = ("b.1:8080", "b.2:8080", "b.2:8081", "b-2:8080")
READERS = NamespaceName("acme", "orders.v1")


@pytest.mark.parametrize("broker", ["b.2", "b.2:8080"])
def test_a_pattern_matches_its_host_with_or_without_the_port_only(broker: str) -> None:
    assert matches_host([host_pattern(broker)], "b.2:9")
    assert not matches_host([host_pattern(broker)], "b-2:8080")
    assert not matches_host([host_pattern(broker)], "b.22:8080")


def test_brokers_on_one_host_cannot_be_told_apart() -> None:
    assert brokers_of(["b.2:8080"], LIVE) == ("b.2:8080", "b.2:8081")
    assert brokers_of(["b.2:9", "b.3"], LIVE) == ()
    assert not_live(["b.2:9", "b.2", "b.1:8080"], LIVE) == ("b.2:9",)


def test_free_brokers_are_the_primary_brokers_of_no_policy() -> None:
    theirs = {"primary": [r"b\.1"], "secondary": ["b-2"], "namespaces": []}
    assert free_brokers(LIVE, {"theirs": theirs}) == LIVE[1:]
    assert free_brokers(LIVE, {"theirs": theirs, "ours": isolation_document(READERS, ["b.2"])}) == ("b-2:8080",)


def test_a_policy_covers_the_namespace_alone() -> None:
    document = isolation_document(READERS, ["b.2"])
    assert is_own(READERS, document)
    assert covers_namespace(document, READERS)
    assert not covers_namespace(document, NamespaceName("acme", "orders-v1"))


def test_a_pattern_that_only_java_reads_counts_as_a_match() -> None:
    assert covers_namespace({"namespaces": [r"\p{Alpha}+/.*"]}, READERS)


def test_bundles_are_shared_out_and_stay_where_no_broker_is_alive() -> None:
    assert destinations(["2", "1", "3", "1"], ["a:1", "b:1"]) == {"1": "a:1", "2": "b:1", "3": "a:1"}
    assert destinations(["1"], []) == {}


def test_recorded_brokers_are_read_from_the_namespace() -> None:
    assert recorded_brokers({"properties": {BROKERS: "b.1,b.2:8080"}}) == ("b.1", "b.2:8080")
    assert recorded_brokers({"properties": None}) == recorded_brokers(None) == ()


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1234567, "1.2 MB"), (5e15, "5,000.0 TB")]
)
def test_amounts_have_units(number: float, text: str) -> None:
    assert amount(number) == text


def test_a_broker_that_delays_the_last_entry_for_readers_is_a_warning() -> None:
    request = Request.of({"topics": ["persistent://acme/orders/events"], "namespace": "acme/readers"})
    observed = Observed(
        cluster="blue", tenant_exists=True, document=None, sources=(), shadows={}, without_explicit_lac=("b.1:8080",)
    )
    (finding,) = check_serving(observed, request)
    assert (finding.id, finding.resource) == ("explicit-lac-off", "b.1:8080")
