"""From what a run wrote to the plan that takes it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent
from pulsar_fleet.planning.hazards import EffectiveValues
from pulsar_fleet.planning.plan import Hazard, Plan
from pulsar_fleet.planning.undo import plan_undo

SPACE = "acme/orders"
TOPIC = "persistent://acme/orders/events"


def undo(*written: tuple[str, str, str, Any, Any], cluster: str = "green") -> Plan:
    ledger = Ledger.open()
    rows = [
        Intent(change_id=str(number), cluster=cluster, kind=kind, name=name, field=field, before=before, after=after)
        for number, (kind, name, field, before, after) in enumerate(written)
    ]
    ledger.record("run", new_intents=rows)
    return plan_undo(ledger, "run")


def test_a_value_that_was_written_twice_goes_back_to_the_first(records: Path) -> None:
    strategy = ("policy", SPACE, "schema_compatibility_strategy")
    plan = undo((*strategy, "FULL", "ALWAYS_COMPATIBLE"), (*strategy, "ALWAYS_COMPATIBLE", "BACKWARD"))
    assert [(change.before, change.after) for change in plan.changes] == [("BACKWARD", "FULL")]


def test_a_value_that_is_what_it_was_needs_no_change(records: Path) -> None:
    field = ("policy", SPACE, "max_producers_per_topic")
    assert undo((*field, None, 5), (*field, 5, None)).empty


def test_changes_are_undone_in_reverse_and_those_of_the_cluster_last(records: Path) -> None:
    created = {"partitions": 0, "properties": {}}
    plan = undo(
        ("resource group", "group", "", None, {}),
        ("tenant", "acme", "", None, {"adminRoles": [], "allowedClusters": ["green"]}),
        ("namespace", SPACE, "", None, {"replication_clusters": ["green"]}),
        ("topic", TOPIC, "", None, created),
    )
    assert [change.name for change in plan.changes] == [TOPIC, SPACE, "acme", "group"]
    assert {change.hazard for change in plan.changes} == {Hazard.DESTRUCTIVE}


@pytest.mark.parametrize(
    ("default", "hazard"), [(0, Hazard.REVERSIBLE), (-1, Hazard.IRREVERSIBLE), (None, Hazard.IRREVERSIBLE)]
)
def test_a_restored_value_has_the_hazard_of_what_is_effective_now(
    records: Path, default: int | None, hazard: Hazard
) -> None:
    """Above what the brokers keep while nothing is set, a restored retention is longer; unknown is never harmless."""
    ledger = Ledger.open()
    kept = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}
    rows = [("policy", SPACE, "retention_policies"), ("topic policy", TOPIC, "local/retentionPolicies")]
    ledger.record(
        "run",
        new_intents=[
            Intent(change_id=field, cluster="green", kind=kind, name=name, field=field, before=kept, after=None)
            for kind, name, field in rows
        ],
    )
    settings = {"defaultRetentionTimeInMinutes": str(default), "defaultRetentionSizeInMB": str(default)}
    values = EffectiveValues(brokers=(settings,), namespaces={SPACE: {}}, topics={})
    plan = plan_undo(ledger, "run") if default is None else plan_undo(ledger, "run", values)
    assert {change.hazard for change in plan.changes} == {hazard}


def test_what_lies_in_a_topic_goes_with_it(records: Path) -> None:
    plan = undo(
        ("topic", TOPIC, "", None, {"partitions": 2, "properties": {}}),
        ("schema", TOPIC, "", None, [{}]),
        ("subscription", TOPIC, "s", None, {"position": "earliest", "replicated": False, "properties": {}}),
    )
    assert [call.text() for change in plan.changes for call in change.calls] == [
        "DELETE /persistent/acme/orders/events/partitions"
    ]


def test_a_policy_that_falls_to_an_unknown_default_needs_permission(records: Path) -> None:
    (change,) = undo(("policy", SPACE, "message_ttl_in_seconds", None, 3600)).changes
    assert (change.hazard, change.after) == (Hazard.IRREVERSIBLE, None)


def test_a_cluster_that_leaves_a_list_again_is_told(records: Path) -> None:
    (change,) = undo(("policy", SPACE, "replication_clusters", ["green"], ["green", "third"])).changes
    assert "never arrive there" in change.reason


def test_rights_that_were_granted_are_revoked(records: Path) -> None:
    before = {"namespace_auth": {"a": ["consume"], "b": ["produce"]}}
    after = {"namespace_auth": {"a": ["consume", "produce"], "b": ["produce"], "c": ["consume"]}}
    (change,) = undo(("policy", SPACE, "auth_policies", before, after)).changes
    assert [(call.text(), call.body) for call in change.calls] == [
        ("POST /namespaces/acme/orders/permissions/a", ["consume"]),
        ("DELETE /namespaces/acme/orders/permissions/c", None),
    ]


@pytest.mark.parametrize(
    ("kind", "field", "before", "reason"),
    [
        ("topic", "partitions", 2, "cannot be removed"),
        ("schema", "", [{}], "cannot be deleted"),
        ("policy", "allowed_clusters", None, "cannot be unset"),
    ],
)
def test_what_cannot_be_taken_back_is_left_alone(
    kind: str, field: str, before: Any, reason: str, records: Path
) -> None:
    plan = undo((kind, SPACE if kind == "policy" else TOPIC, field, before, ["green"]))
    assert plan.empty
    assert reason in plan.left_alone[0].reason


@pytest.mark.parametrize(("kind", "name"), [("topic", TOPIC), ("namespace", SPACE)])
def test_what_was_deleted_is_left_alone_and_a_tenant_is_made_again(kind: str, name: str, records: Path) -> None:
    tenant = {"adminRoles": [], "allowedClusters": ["green"]}
    plan = undo((kind, name, "", {"partitions": 2, "properties": {}}, None), ("tenant", "acme", "", tenant, None))
    assert [(change.label, change.after) for change in plan.changes] == [("tenant acme", tenant)]
    (entry,) = plan.left_alone
    assert "cannot be restored: recreate it by hand" in entry.reason


def test_a_run_that_wrote_to_two_clusters_is_rejected(records: Path) -> None:
    undo(("tenant", "a", "", None, {}), cluster="green")
    with pytest.raises(InvalidRequest, match="blue, green"):
        undo(("tenant", "b", "", None, {}), cluster="blue")
