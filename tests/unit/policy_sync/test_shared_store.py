"""Two clusters share a store if all that a store holds is the same, the system tenant too, and its address."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulsar_fleet.policy_sync.guards import shared_store
from pulsar_fleet.snapshot.model import BrokerState, Snapshot, TenantState

STORE = "zk:zookeeper:2181"


def cluster(name: str, allowed: tuple[str, ...], store: str = STORE) -> Snapshot:
    return Snapshot(
        cluster=name,
        began="",
        ended="",
        key_id="",
        known_clusters=("blue", "green"),
        brokers=(broker(store),),
        tenants=(TenantState("pulsar", (), allowed),),
    )


def broker(store: str) -> BrokerState:
    return BrokerState("broker:8080", "4.2.4", {"configurationMetadataStoreUrl": store})


def test_clusters_with_one_store_are_refused_with_what_to_do() -> None:
    both = ("blue", "green")
    sentence = shared_store({"blue": cluster("blue", both), "green": cluster("green", both)})
    assert sentence.startswith("Clusters blue and green share a configuration store")
    assert sentence.endswith("name the connection of only one of them.")


@pytest.mark.parametrize(
    "other",
    [
        cluster("green", ("green",)),
        cluster("green", ("blue",), "zk:another:2181"),
        replace(cluster("green", ("blue",)), known_clusters=("green",)),
    ],
)
def test_equal_addresses_or_equal_tenants_alone_prove_nothing(other: Snapshot) -> None:
    assert shared_store({"blue": cluster("blue", ("blue",)), "green": other}) == ""
