"""When a topic is in use, so that no approval deletes it."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.policy_sync.recorded_apply import use_text

PARTITION = TopicName.parse("persistent://acme/orders/new-partition-0")
PRODUCER = {"producerName": "billing", "address": "/10.0.0.1:5", "clientVersion": "4.2.4"}
CONSUMER = {"consumerName": "mail", "address": "/10.0.0.2:5", "clientVersion": "4.2.4"}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, ""),
        ({"subscriptions": {"s": {"msgBacklog": 0}}, "storageSize": 900}, ""),
        ({"publishers": [PRODUCER]}, 'has 1 connected client, first producer "billing" at 10.0.0.1:5'),
        ({"subscriptions": {"s": {"consumers": [CONSUMER]}}}, 'has 1 connected client, first consumer "mail"'),
        ({"subscriptions": {"s": {"msgBacklog": 1}}}, "has a backlog: 1 entry in subscription 's'"),
        ({"subscriptions": {"s": {"msgBacklog": 2000}}}, "has a backlog: 2,000 entries in subscription 's'"),
        ({"replication": {"green": {"outboundConnection": "x"}}}, "is replicated between this cluster and green"),
        ({"replication": {"green": {"inboundConnection": "x"}}}, "is replicated between this cluster and green"),
    ],
)
def test_what_somebody_uses_is_named(document: dict[str, Any], text: str) -> None:
    use = use_text(TopicStats.of(PARTITION, document))
    assert use.startswith(text)
    assert bool(use) is bool(text)
