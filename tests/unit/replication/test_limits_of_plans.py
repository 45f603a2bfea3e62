"""What a plan of replication says about limits that the target keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.snapshots import ORDERS, PLAIN, Clusters, full_pair, with_policies

from pulsar_fleet.preflight.bookies import Bookies
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.checks import Observations, check_replication
from pulsar_fleet.replication.setup.stages import plan_replication
from pulsar_fleet.replication.topology import Topology
from pulsar_fleet.snapshot.model import Snapshot, TopicPolicyState

ONE = {name: Bookies(count=1) for name in ("blue", "green")}
NEW = (
    "replicator-not-encrypted",
    "longest-delay-shorter",
    "message-size-lower",
    "bookies-missing",
    "max-message-size-smaller",
    "resource-group-not-copied",
    "functions-worker-state",
)


def found(clusters: Clusters) -> dict[str, Finding]:
    """The findings of one direction, blue to green, about limits."""
    request = Request.of({"clusters": ["blue"], "receive_only": ["green"], "namespaces": [ORDERS]})
    snapshots = {"blue": clusters.source, "green": clusters.target}
    topology = Topology(members=("blue",), receive_only=("green",), leaving=())
    planned = plan_replication(snapshots, topology, request, {"blue": {}, "green": {}}, ())
    return {
        finding.id: finding
        for finding in check_replication(snapshots, planned, request, Observations(bookies=ONE))
        if finding.id in NEW
    }


def with_size(snapshot: Snapshot, size: int) -> Snapshot:
    return replace(snapshot, topic_policies=(TopicPolicyState(PLAIN, "local", {"maxMessageSize": size}, 0),))


def limits() -> Iterator[tuple[str, Any]]:
    yield "replicator-not-encrypted", lambda side: with_policies(side, encryption_required=True)
    delays = {"active": True, "maxDeliveryDelayInMillis": 5000}
    yield "longest-delay-shorter", lambda side: with_policies(side, delayed_delivery_policies=delays)
    yield "message-size-lower", lambda side: with_size(side, 1000)


def test_a_limit_that_the_target_keeps_is_a_blocker_with_its_name() -> None:
    for id_, change in limits():
        pair = full_pair()
        findings = found(replace(pair, target=change(pair.target)))
        assert list(findings) == [id_]
        assert findings[id_].severity is Severity.BLOCKER


def test_a_limit_that_both_clusters_have_is_no_finding() -> None:
    """Except encryption, which no replicator has: it is one wherever the target requires it."""
    for id_, change in limits():
        pair = full_pair()
        both = found(replace(pair, source=change(pair.source), target=change(pair.target)))
        assert set(both) == ({id_} if id_ == "replicator-not-encrypted" else set())


def test_an_ensemble_is_judged_where_it_is_stored() -> None:
    """The target keeps its own policy: a wide one of the source is not copied to a namespace that exists."""
    pair = full_pair()
    wide = {"bookkeeperEnsemble": 5, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
    assert found(replace(pair, source=with_policies(pair.source, persistence=wide))) == {}
    finding = found(replace(pair, target=with_policies(pair.target, persistence=wide)))["bookies-missing"]
    assert "on green" in finding.evidence
    assert finding.call.startswith("green: POST ")


def test_a_resource_group_that_the_target_has_is_no_finding() -> None:
    """A plan of replication creates namespaces, and no resource group."""
    pair = full_pair()
    finding = found(replace(pair, target=replace(pair.target, resource_groups=(), namespaces=())))
    assert list(finding) == ["resource-group-not-copied"]
    assert finding["resource-group-not-copied"].call.startswith("green: PUT /admin/v2/resourcegroups/gold ")
    assert found(replace(pair, target=replace(pair.target, namespaces=()))) == {}


def test_the_state_of_functions_workers_is_not_replicated() -> None:
    """Workers of both clusters would read it as their own."""
    pair, name = full_pair(), "public/functions"
    state = replace(pair.source.namespaces[0], name=name)
    finding = found(replace(pair, source=replace(pair.source, namespaces=(*pair.source.namespaces, state))))
    assert (finding["functions-worker-state"].resource, finding["functions-worker-state"].severity) == (
        name,
        Severity.BLOCKER,
    )
