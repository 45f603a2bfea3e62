"""A run that overrides policies of a namespace: replication and serving wait until it has restored them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.snapshots import ORDERS, full_pair, with_policies

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.runs.overrides import PROPERTY, NamespaceOverrides
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.read_only.checks import check_serving
from pulsar_fleet.read_only.request import Request as Serving
from pulsar_fleet.read_only.state import Observed, ShadowState, SourceState
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.checks import Observations, check_replication
from pulsar_fleet.replication.setup.stages import plan_replication
from pulsar_fleet.replication.topology import Topology

TOPIC = TopicName.parse(f"persistent://{ORDERS}/events")
KILLED = "cli/migrate-20260101T000000-0000"


def overridden(run: str, **policies: Any) -> dict[str, Any]:
    record = NamespaceOverrides(
        run=run,
        since="2026-01-01T00:00:00+00:00",
        cluster="blue",
        replicates_to="green",
        publish_rate=None,
        inactive=None,
        replication=["blue"],
    )
    return {"properties": {PROPERTY: json.dumps(record.to_json())}, **policies}


def of_replication(policies: dict[str, Any], **asked: Any) -> list[Finding]:
    request = Request.of({"clusters": ["blue"], "receive_only": ["green"], **(asked or {"namespaces": [ORDERS]})})
    pair = full_pair()
    snapshots = {"blue": with_policies(pair.source, **policies), "green": pair.target}
    topology = Topology(members=("blue",), receive_only=("green",), leaving=())
    planned = plan_replication(snapshots, topology, request, {"blue": {}, "green": {}}, ())
    return [one for one in check_replication(snapshots, planned, request, Observations()) if one.id == "run-not-ended"]


def of_serving(policies: dict[str, Any]) -> list[Finding]:
    request = Serving.of({"topics": [str(TOPIC)], "namespace": "acme/readers"})
    source, shadow = SourceState(topic=TOPIC, partitions=0, namespace=policies), request.shadow(TOPIC)
    shadows = {shadow: ShadowState(topic=shadow)}
    observed = Observed(cluster="blue", tenant_exists=True, document=None, sources=(source,), shadows=shadows)
    return [one for one in check_serving(observed, request) if one.id == "run-not-ended"]


@pytest.mark.parametrize(
    ("run", "remedy"),
    [
        (KILLED, f"`pulsar-fleet migrate --resume {KILLED}`"),
        ("cli/fail-back-20260101T000000-0000", "fail-back --resume cli/fail-back-20260101T000000-0000"),
        ("migrate_namespaces/manual", "clear its task write_report; never while one of its tasks runs"),
    ],
)
def test_a_run_that_has_not_ended_is_a_blocker_of_what_writes_policies(run: str, remedy: str) -> None:
    """Of a whole namespace, of one topic in it, of shadow topics of its topics."""
    policies = overridden(run)
    topics = {"topics": [str(TOPIC)]}
    for findings in (of_replication(policies), of_replication(policies, **topics), of_serving(policies)):
        (finding,) = findings
        assert (finding.severity, run in finding.evidence) == (Severity.BLOCKER, True)
        assert remedy.strip("`") in finding.remedy


def test_a_run_that_has_ended_or_flagged_the_namespace_is_no_finding() -> None:
    """The record stays where a migration has ended: the flag says more, and a cluster may still leave the list."""
    for policies in ({}, {"properties": {"owner": "orders"}}, overridden(KILLED, migrated=True)):
        assert of_replication(policies) == of_serving(policies) == []
