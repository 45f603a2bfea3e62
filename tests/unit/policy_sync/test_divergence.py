"""Which resources clusters do not hold alike: what is not named must never need to be merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge import divergence
from pulsar_fleet.policy_sync.merge.compare import CompareOptions, DesiredState, compare
from pulsar_fleet.policy_sync.merge.view import View, items_of
from pulsar_fleet.policy_sync.reconcile.agreement import conclude
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, TenantState, TopicPolicyState

FLEET = ("blue", "green", "red")
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "max_producers_per_topic": st.sampled_from((1, 2, True)),
        "auth_policies": st.fixed_dictionaries(
            {"namespace_auth": st.dictionaries(st.just("writer"), st.just(["sinks"]))}
        ),
        "properties": st.dictionaries(st.sampled_from(("owner", "tier")), st.sampled_from(("a", "b"))),
    },
)
CONTENT = st.fixed_dictionaries(
    {
        "namespaces": st.dictionaries(st.sampled_from(("acme/orders", "acme/payments", "acme/quiet")), POLICIES),
        "topics": st.dictionaries(st.sampled_from(("a", "b")), st.just({"maxProducerPerTopic": 3})),
        "roles": st.sampled_from(((), ("admin",))),
    }
)


def snapshot(cluster: str, content: JsonObject) -> Snapshot:
    namespaces = {
        name: {"replication_clusters": [cluster], **policies} for name, policies in content["namespaces"].items()
    }
    topics = content["topics"] if "acme/orders" in namespaces else {}
    return Snapshot(
        cluster=cluster,
        began="",
        ended="",
        key_id="k",
        known_clusters=(cluster,),
        tenants=(TenantState("acme", content["roles"], (cluster,)),),
        namespaces=tuple(NamespaceState(name, document) for name, document in sorted(namespaces.items())),
        topic_policies=tuple(
            TopicPolicyState(f"persistent://acme/orders/{name}", "local", policies, 0)
            for name, policies in sorted(topics.items())
        ),
    )


def views(snapshots: list[Snapshot]) -> list[View]:
    return [View(cluster=taken.cluster, items=items_of(taken, FLEET)) for taken in snapshots]


@given(st.lists(CONTENT, min_size=3, max_size=3), CONTENT, st.booleans())
def test_to_merge_only_what_is_apart_gives_what_merging_everything_gives(
    contents: list[JsonObject], agreed: JsonObject, authority: bool
) -> None:
    snapshots = [snapshot(cluster, content) for cluster, content in zip(FLEET, contents, strict=True)]
    before = compare(views([snapshot(cluster, agreed) for cluster in FLEET]), {}, CompareOptions()).compared
    base = {
        item: merge_base
        for item, merge_base in conclude(before, {}, all_reachable=True).merge_bases.items()
        if merge_base
    }
    desired = DesiredState(source="cluster:green", items=items_of(snapshots[1], FLEET)) if authority else None
    terms = CompareOptions(desired=desired)
    narrowed = replace(terms, divergent=frozenset(divergence.divergent(snapshots, FLEET)))
    assert compare(views(snapshots), base, narrowed) == compare(views(snapshots), base, terms)


@pytest.fixture
def run(records: Path) -> Run:
    """The records of one run, opened once: examples replace what earlier ones stored."""
    return Run.open("reconcile/apart")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=CONTENT, second=CONTENT)
def test_in_files_and_in_parts_the_same_is_apart_as_in_memory(run: Run, first: JsonObject, second: JsonObject) -> None:
    snapshots = {name: snapshot(name, content) for name, content in (("blue", first), ("green", second))}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(divergence, "NAMESPACES_AT_ONCE", 1)
        uri, _ = divergence.store_request(run, snapshots, FLEET)
        request = divergence.DivergenceRequest.from_bytes(Path(uri).read_bytes())
        divergent = divergence.find_divergent(request, lambda batches, work: [work(names) for names in batches])[
            "divergent"
        ]
    assert sorted((Resource(kind), name) for kind, name in divergent) == list(
        divergence.divergent(list(snapshots.values()), FLEET)
    )


def test_a_comparison_without_a_result_or_of_another_release_is_refused(
    records: Path,
) -> None:
    with pytest.raises(NotFound, match="left no result"):
        divergence.read_result(Run.open("reconcile/none"), str(records / "none.json"))
    with pytest.raises(InvalidRequest, match="use the job and the package of one release"):
        divergence.DivergenceRequest.from_bytes(b'{"kind": "fleet", "schema_version": 7}')
