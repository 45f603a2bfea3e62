"""Comparing columns and then only what may differ finds exactly what comparing every row finds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.partial_reads import Area, Note, Problem
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.planning.comparison import Comparison, compare
from pulsar_fleet.planning.diff import COMPARED_COLUMNS, subscription_value
from pulsar_fleet.snapshot.model import (
    BrokerState,
    NamespaceState,
    Row,
    SchemaState,
    Snapshot,
    SubscriptionState,
    TopicPolicyState,
    TopicState,
)
from pulsar_fleet.snapshot.store.reader import store_snapshot
from pulsar_fleet.snapshot.store.rows import TABLE_OF
from pulsar_fleet.verification.snapshots.compare import CompareRequest, compare_namespaces, find_candidates, open_pair

OWN = "the cluster's own name"
NAMES = ("acme/a", "acme/a-b", "acme/b")
DOMAINS = {"1": "non-persistent"}

lists = st.sampled_from([[OWN], [OWN, "third"], ["blue", "green"], [OWN, "unknown"], []])
properties = st.sampled_from([{}, {"team": "x"}, {"team": "y"}, {"team": "x", "more": "z"}])
types = st.sampled_from([["Shared", "Exclusive"], ["Exclusive", "Shared"], ["Shared"], []])
numbers = st.sampled_from([None, 0, 1, 2])
namespace_policies = st.fixed_dictionaries(
    {"replication_clusters": lists},
    optional={
        "message_ttl_in_seconds": numbers,
        "topicDispatchRate": st.dictionaries(st.sampled_from([OWN, "third"]), st.sampled_from([1, 2])),
        "subscription_types_enabled": types,
        "schema_compatibility_strategy": st.sampled_from(["UNDEFINED", "FULL", "ALWAYS_COMPATIBLE"]),
        "auth_policies": st.sampled_from(
            [
                {"namespace_auth": {"role": ["produce", "consume"]}},
                {"namespace_auth": {"role": ["consume", "produce"]}},
                {"destination_auth": {"persistent://acme/a/0": {"role": ["consume"]}}},
                {"destination_auth": {"persistent://acme/a/gone": {"role": ["consume"]}}},
            ]
        ),
        "bookie_affinity": st.sampled_from([{}, {"bookkeeperAffinityGroupPrimary": "g"}]),
        "properties": properties,
        "deleted": st.booleans(),
        "a field of tomorrow": numbers,
    },
)
topic_policies = st.dictionaries(
    st.sampled_from(["local", "global"]),
    st.fixed_dictionaries(
        {},
        optional={
            "maxProducerPerTopic": numbers,
            "replicationClusters": lists,
            "subscriptionTypesEnabled": types,
            "schemaValidationEnforced": st.sampled_from([None, True, False]),
            "isGlobal": st.booleans(),
            "a field of tomorrow": numbers,
        },
    ),
)
histories = st.lists(st.tuples(st.sampled_from(["AVRO", "JSON"]), st.sampled_from(["a", "b"]), properties), max_size=3)
cursors = st.lists(st.tuples(st.integers(0, 2), st.booleans(), properties), max_size=3)
subscriptions = st.dictionaries(st.sampled_from(["s", "t"]), cursors)


@dataclass(frozen=True)
class Topic:
    partitions: int
    properties: dict[str, str]
    schemas: list[tuple[str, str, dict[str, str]]]
    subscriptions: dict[str, list[tuple[int, bool, dict[str, str]]]]
    policies: dict[str, dict[str, Any]]


topics = st.builds(Topic, st.integers(0, 2), properties, histories, subscriptions, topic_policies)
estates = st.dictionaries(
    st.sampled_from(NAMES), st.tuples(namespace_policies, st.dictionaries(st.sampled_from(["0", "1"]), topics))
)
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "partitions": st.integers(0, 2),
    "properties": properties,
    "schemas": histories,
    "subscriptions": subscriptions,
    "policies": topic_policies,
}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Snapshot, Snapshot]:
    """A cluster and a copy in which little differs; where nothing means anything, as on two clusters, all does."""
    source = draw(estates)
    target = {}
    for name, (policies, inside) in source.items():
        copied = {local: _copy(draw, topic) for local, topic in inside.items() if not _rarely(draw)}
        copied |= draw(st.dictionaries(st.sampled_from(["1", "2"]), topics)) if _rarely(draw) else {}
        if not _rarely(draw):
            target[name] = (draw(namespace_policies) if _rarely(draw) else policies, copied)
    target |= draw(estates) if _rarely(draw) else {}
    return _snapshot(draw, "blue", source), _snapshot(draw, "green", target)


def _rarely(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 9)) == 9


def _copy(draw: st.DrawFn, topic: Topic) -> Topic:
    if _rarely(draw):
        renamed = {"s": "t", "t": "s"}
        topic = replace(
            topic, subscriptions={renamed[name]: by_partition for name, by_partition in topic.subscriptions.items()}
        )
    return replace(topic, **{part: draw(values) for part, values in PARTS.items() if _rarely(draw)})


def _snapshot(draw: st.DrawFn, cluster: str, estate: dict[str, Any]) -> Snapshot:
    rows = [*_rows(draw, cluster, estate)]
    if _rarely(draw):
        rows = draw(st.permutations(rows))
    if rows and _rarely(draw):
        rows += draw(st.lists(st.sampled_from(rows), max_size=2))
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(TABLE_OF[type(row)], []).append(row)
    note = Note(Area.BOOKIE_AFFINITY.value, Problem.HIDDEN.value, "")
    return Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="k",
        known_clusters=("blue", "green", "third"),
        brokers=(BrokerState("localhost:8080", draw(st.sampled_from(["4.0.7", "4.2.4"])), {}),),
        notes=(note,) if _rarely(draw) else (),
        **{table: tuple(rows) for table, rows in tables.items()},  # type: ignore[arg-type]
    )


def _rows(draw: st.DrawFn, cluster: str, estate: dict[str, Any]) -> Iterator[Row]:
    for name, (policies, inside) in estate.items():
        yield NamespaceState(name, _of(cluster, policies))
        for local, topic in inside.items():
            yield from _topic_rows(draw, cluster, f"{DOMAINS.get(local, 'persistent')}://{name}/{local}", topic)


def _topic_rows(draw: st.DrawFn, cluster: str, name: str, topic: Topic) -> Iterator[Row]:
    own, step = draw(st.sampled_from([0, 7])), draw(st.sampled_from([1, -1]))
    shards = {f"{name}-partition-0": {"shard": str(step)}} if topic.partitions else {}
    yield TopicState(name, topic.partitions, topic.properties, own == 7, shards)
    for version, schema in enumerate(topic.schemas):
        yield SchemaState(name, own + step * version, *schema, own)
    for subscription, by_partition in topic.subscriptions.items():
        for partition, replicated, attributes in by_partition:
            yield SubscriptionState(
                name, f"{name}-partition-{partition}", subscription, f"{own}:1", replicated, attributes
            )
    for scope, policies in topic.policies.items():
        yield TopicPolicyState(name, scope, _of(cluster, policies), own)


def _of(cluster: str, node: Any) -> Any:
    if isinstance(node, dict):
        return {_of(cluster, key): _of(cluster, value) for key, value in node.items()}
    if isinstance(node, list):
        return [_of(cluster, item) for item in node]
    return cluster if node == OWN else node


def stored(folder: str, source: Snapshot, target: Snapshot, *, subscriptions: bool = True) -> CompareRequest:
    artefacts = Artefacts.open(folder)
    sides = [store_snapshot(artefacts, "run", side, name=side.cluster) for side in (source, target)]
    return CompareRequest(source=sides[0], target=sides[1], subscriptions=subscriptions, examples=1_000)


def row_by_row(request: CompareRequest) -> Comparison:
    source, target = (side.load_namespaces(NAMES) for side in open_pair(request))
    return replace(compare(source, target, subscriptions=request.subscriptions, examples=1_000), compared={})


@settings(max_examples=25)
@given(pairs(), st.booleans())
def test_columns_find_exactly_what_rows_find(pair: tuple[Snapshot, Snapshot], with_subscriptions: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        request = stored(folder, *pair, subscriptions=with_subscriptions)
        assert compare_namespaces(request, NAMES) == row_by_row(request)


def test_only_differences_are_read_by_row_and_cluster_names_are_none() -> None:
    def side(cluster: str, partitions: int, ttl: int) -> Snapshot:
        names = [f"persistent://{name}/{local}" for name in NAMES for local in "01"]
        mine = {"replication_clusters": [cluster]}
        return Snapshot(
            cluster=cluster,
            began="",
            ended="",
            key_id="k",
            known_clusters=("blue", "green"),
            namespaces=tuple(
                NamespaceState(name, mine | ({"message_ttl_in_seconds": ttl} if name == NAMES[2] else {}))
                for name in NAMES
            ),
            topics=tuple(TopicState(name, partitions if name == names[1] else 1, {}) for name in names),
            topic_policies=tuple(
                TopicPolicyState(name, "local", {"replicationClusters": [cluster]}, 1) for name in names
            ),
        )

    with tempfile.TemporaryDirectory() as folder:
        pair = open_pair(stored(folder, side("blue", 2, 5), side("green", 3, 6)))
        candidates = find_candidates(*pair, NAMES, subscriptions=True)
    assert (candidates.namespaces, candidates.topics) == (("acme/a", "acme/b"), {"persistent://acme/a/1"})


def test_the_columns_that_are_compared_are_those_of_a_subscription() -> None:
    row = SubscriptionState("t", "t", "s", "1:1", True, {"a": "b"})
    assert set(subscription_value(row)) == set(COMPARED_COLUMNS["subscriptions"])
