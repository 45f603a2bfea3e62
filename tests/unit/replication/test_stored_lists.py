"""What a cluster replicates by the lists in effect, without a cluster."""

from __future__ import annotations

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.replication.replicated_namespaces import StoredLists

WHOLE, SINGLE, ALONE = (NamespaceName("acme", name) for name in ("whole", "single", "alone"))
EVENTS = TopicName(SINGLE, "events")
LISTS = StoredLists(
    namespaces={WHOLE: frozenset({"blue", "green"}), SINGLE: frozenset({"blue"}), ALONE: frozenset({"blue"})},
    topics={
        EVENTS: frozenset({"blue", "green"}),
        TopicName(SINGLE, "audit"): frozenset({"blue"}),
        TopicName(WHOLE, "orders"): frozenset({"blue", "green"}),
    },
    unread={ALONE: "denied", WHOLE: "denied"},
)


def test_a_topic_is_sent_by_its_own_list_where_its_namespace_is_not() -> None:
    assert LISTS.sent_to("green") == {WHOLE: (), SINGLE: (EVENTS,)}
    assert LISTS.sent_to("far") == {}


def test_a_namespace_whose_topic_lists_are_unknown_is_named() -> None:
    assert LISTS.unknown("green") == ("acme/alone: denied",)
    assert LISTS.unknown("far") == ("acme/alone: denied", "acme/whole: denied")
