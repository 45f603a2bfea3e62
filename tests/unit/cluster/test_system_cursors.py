"""Which cursors, subscriptions and producers are the brokers' own, by every name that they use."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import Cursor, TopicStats, is_replicator, is_system_cursor, replicator_cursor
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import subscription_cursors
from pulsar_fleet.snapshot.resources import subscriptions_in_info

TOPIC = TopicName(NamespaceName("acme", "orders"), "events")
OWN = ("pulsar.repl.green", "pulsar.repl-persistent%3A%2F%2Facme%2Forders%2Fshadow", "pulsar.dedup", "__compaction")
APPLICATIONS = ("pulsar.audit", "pulsar.dedupe", "pulsar", "__compactions", "__audit", "transaction-buffer-sub")


@pytest.mark.parametrize("name", [*OWN, "pulsar.replay"])
def test_a_name_that_brokers_refuse_to_consumers_is_theirs(name: str) -> None:
    assert is_system_cursor(name)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_any_other_name_is_an_applications(name: str) -> None:
    assert not is_system_cursor(name)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("pulsar.repl.blue", True),
        ("pulsar.repl.blue-->green", True),
        ("pulsar.repl-persistent://acme/orders/events-->persistent://acme/orders/shadow", True),
        ("pulsar.replay", False),
        ("pulsar.audit", False),
        ("standalone-0-1", False),
    ],
)
def test_only_a_replicator_is_no_client(name: str, own: bool) -> None:
    assert is_replicator(name) is own


def test_the_cursor_of_a_cluster_is_a_system_cursor() -> None:
    assert is_system_cursor(replicator_cursor("green"))


def test_onboarding_cut_over_and_verification_take_the_same_subscriptions() -> None:
    names = (*OWN, *APPLICATIONS, "pulsar.replay")
    position = {"markDelete": {"ledgerId": 18, "entryId": 3}}
    consumer: dict[str, Any] = {"consumerName": "a", "address": "/10.0.0.1:5512", "clientVersion": "Pulsar-Java-v4.2.4"}
    subscription = {"isDurable": True, "consumers": [consumer], "isReplicated": False, "msgBacklog": 6}
    document = {
        "subscriptions": dict.fromkeys(names, subscription),
        "publishers": [{"producerName": "pulsar.replay"}, {"producerName": "pulsar.repl.blue"}],
    }
    cursors = {name: {"markDeletePosition": "18:3", "individuallyDeletedMessages": "[]"} for name in names}
    copied = {cursor.name for cursor in subscriptions_in_info(TOPIC, {"cursors": dict.fromkeys(names, position)})}
    stats = TopicStats.of(TOPIC, document)
    # One function of `reading` for the switch and for verification.
    compared = set(subscription_cursors(Ledgers(((18, 10),)), stats, {"cursors": cursors}))
    assert copied == compared == set(stats.subscriptions) == set(APPLICATIONS)
    connected = {(client.subscription, client.name) for client in stats.clients}
    assert connected == {("", "pulsar.replay"), *((name, "a") for name in APPLICATIONS)}


@pytest.mark.parametrize(
    ("mark_delete", "consumed", "confirmed"),
    [(9, 9, 5), (4, 4, 0), (9, 0, 1)],
    ids=["consumed", "nothing", "opened again in between"],
)
def test_what_a_cursor_confirmed_between_two_readings(mark_delete: int, consumed: int, confirmed: int) -> None:
    earlier = Cursor(mark_delete=Position(1, 4), consumed=4)
    assert Cursor(mark_delete=Position(1, mark_delete), consumed=consumed).confirmed_since(earlier) == confirmed
