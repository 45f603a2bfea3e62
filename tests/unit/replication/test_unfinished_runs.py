"""A run that overrides policies of a namespace: replication and serving wait until it has restored them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.snapshots import ORDERS, full_pair, with_policies

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.runs.overrides import PROPERTY, NamespaceOverrides
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.preflight.waivers import Waiver, accept
from pulsar_fleet.read_only.checks import check_serving, check_setup
from pulsar_fleet.read_only.request import Request as Serving
from pulsar_fleet.read_only.state import Observed, ShadowState, SourceState
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.checks import NEVER, Observations, check_replication
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


def of_replication(policies: dict[str, Any], *, terminated: bool = False, **asked: Any) -> list[Finding]:
    request = Request.of({"clusters": ["blue"], "receive_only": ["green"], **(asked or {"namespaces": [ORDERS]})})
    pair = full_pair()
    source = with_policies(pair.source, **policies)
    source = replace(source, topics=tuple(replace(topic, terminated=terminated) for topic in source.topics))
    snapshots = {"blue": source, "green": pair.target}
    topology = Topology(members=("blue",), receive_only=("green",), leaving=())
    planned = plan_replication(snapshots, topology, request, {"blue": {}, "green": {}}, ())
    return [one for one in check_replication(snapshots, planned, request, Observations()) if one.id == "run-not-ended"]


def of_serving(policies: dict[str, Any], *, served: bool = False, terminated: bool = False) -> list[Finding]:
    request = Serving.of({"topics": [str(TOPIC)], "namespace": "acme/readers"})
    source, shadow = (
        SourceState(topic=TOPIC, partitions=0, namespace=policies, terminated=terminated),
        request.shadow(TOPIC),
    )
    shadows = {shadow: ShadowState(topic=shadow)}
    observed = Observed(cluster="blue", tenant_exists=True, document=None, sources=(source,), shadows=shadows)
    check = check_serving if served else check_setup
    return [one for one in check(observed, request) if one.id == "run-not-ended"]


@pytest.mark.parametrize(
    ("run", "remedy"),
    [
        (KILLED, f"by `pulsar-fleet migrate --resume {KILLED}`"),
        (
            "cli/fail-back-20260101T000000-0000",
            "by `pulsar-fleet fail-back --resume cli/fail-back-20260101T000000-0000`",
        ),
        ("migrate_namespaces/manual", "by clearing the task at which it stopped"),
    ],
)
def test_a_run_that_has_not_ended_is_a_blocker_of_what_writes_policies(run: str, remedy: str) -> None:
    """Of a whole namespace, of one topic in it, of shadow topics of its topics."""
    policies = overridden(run)
    topics = {"topics": [str(TOPIC)]}
    for findings in (of_replication(policies), of_replication(policies, **topics), of_serving(policies)):
        (finding,) = findings
        assert (finding.severity, run in finding.evidence) == (Severity.BLOCKER, True)
        assert remedy.replace("`", "") in finding.remedy
        assert "on blue" in finding.resource


def test_a_run_that_has_not_ended_is_never_waived() -> None:
    findings = of_replication(overridden(KILLED))
    with pytest.raises(PreconditionFailed, match="that run takes it away"):
        accept(findings, [Waiver(id="run-not-ended", who="anna", why="in a hurry")], NEVER)


def test_a_run_that_has_ended_or_cut_over_is_no_finding() -> None:
    """The record stays where a migration has ended: its marks say more, and a cluster may still leave the list."""
    for policies in ({}, {"properties": {"owner": "orders"}}, overridden(KILLED, migrated=True)):
        assert of_replication(policies) == of_serving(policies) == []
    policies = overridden(KILLED)
    assert of_replication(policies, terminated=True) == of_serving(policies, terminated=True) == []


def test_topics_stay_served_while_a_run_copies_their_namespace() -> None:
    assert of_serving(overridden(KILLED), served=True) == []
