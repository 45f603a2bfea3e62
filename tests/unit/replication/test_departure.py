"""What still refers to a cluster whose data would be deleted."""

from __future__ import annotations

from pulsar_fleet.cluster.admin.partial_reads import BROKERS, Note, Problem
from pulsar_fleet.replication.setup.departure import _references
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState

TOPIC = "persistent://acme/orders/events"
EMPTY = Snapshot(cluster="blue", began="", ended="", key_id="k")


def test_a_cluster_in_any_list_or_in_what_is_not_readable_is_referred_to() -> None:
    snapshot = Snapshot(
        cluster="blue",
        began="",
        ended="",
        key_id="k",
        tenants=(TenantState("acme", (), ("blue", "red")),),
        namespaces=(NamespaceState("acme/orders", {"replication_clusters": ["blue", "red"]}),),
        topic_policies=(TopicPolicyState(TOPIC, "local", {"replicationClusters": ["red"]}, 0),),
        notes=(
            Note("acme/audit", Problem.UNREADABLE.value, "blue answered 500."),
            Note(BROKERS, Problem.UNREADABLE.value, "blue answered 500."),
        ),
    )
    assert list(_references(snapshot, "red")) == [
        "acme/audit, which could not be read",
        "tenant acme",
        "namespace acme/orders",
        f"a local policy of {TOPIC}",
    ]
    assert list(_references(EMPTY, "red")) == []
