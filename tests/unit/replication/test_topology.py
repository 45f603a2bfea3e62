"""Which cluster sends to which, and the settings that are refused."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.topology import Link, Topology

HUB = Topology(members=("a", "b"), receive_only=("c",), leaving=("d",))


@pytest.mark.parametrize("cluster", HUB.clusters)
def test_every_list_has_its_own_cluster(cluster: str) -> None:
    assert cluster in HUB.list_of(cluster)
    assert cluster in HUB.growing_list(cluster, [])


def test_members_send_to_all_that_remain_and_others_to_none() -> None:
    assert {*HUB.links()} == {Link("a", "b"), Link("a", "c"), Link("b", "a"), Link("b", "c")}
    assert (HUB.list_of("c"), HUB.list_of("d")) == (["c"], ["d"])


def test_a_growing_list_ends_no_link() -> None:
    assert HUB.growing_list("a", ["a", "d"]) == ["a", "b", "c", "d"]
    assert HUB.ends_links("a", ["a", "b", "c", "d"])
    assert not HUB.ends_links("a", ["a", "b"])


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"clusters": []}, "'clusters' is empty"),
        ({"clusters": ["a"], "namespaces": ["x/y"]}, "at least two"),
        ({"clusters": ["a", "a"], "namespaces": ["x/y"]}, "named twice"),
        ({"clusters": ["a"], "leaving": ["a"], "namespaces": ["x/y"]}, "named twice"),
        ({"clusters": ["a", "b"]}, "either 'namespaces' or 'topics'"),
        ({"clusters": ["a", "b"], "namespaces": ["x/y"], "topics": ["persistent://x/y/z"]}, "either"),
        ({"clusters": ["a"], "leaving": ["b"], "topics": ["persistent://x/y/z"]}, "leaves whole namespaces"),
        ({"clusters": ["a", "b"], "topics": ["persistent://x/y/z-partition-0"]}, "not one partition"),
        ({"clusters": ["a", "b"], "topics": ["non-persistent://x/y/z"]}, "persistent topic"),
        ({"clusters": ["a", "b"], "namespaces": ["x/y"], "history_since": "2026-11-21T08:00:00Z"}, "'history' is off"),
        (
            {"clusters": ["a", "b"], "namespaces": ["x/y"], "history": True, "history_since": "yesterday"},
            "write a time",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_sentence(conf: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        Request.of(conf)


def test_a_rate_of_zero_leaves_the_policy() -> None:
    conf = {"clusters": ["a", "b"], "namespaces": ["x/y"]}
    assert Request.of(conf).rate() is None
    rate = Request.of({**conf, "bytes_per_second": 10}).rate() or {}
    assert (rate["dispatchThrottlingRateInMsg"], rate["dispatchThrottlingRateInByte"]) == (-1, 10)
