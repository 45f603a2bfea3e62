"""A run's configuration: an invalid one is refused with a sentence that helps."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.connection import refuse_same_cluster
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, parse_namespaces
from pulsar_fleet.settings.setting import refuse_unknown_settings

KNOWN = ("blue", "green", "namespaces")


def test_a_misspelt_setting_is_refused_and_the_right_one_proposed() -> None:
    with pytest.raises(InvalidRequest, match=r"Unknown setting 'namespace' .*did you mean 'namespaces'"):
        refuse_unknown_settings({"namespace": []}, KNOWN)


def test_a_setting_like_none_other_lists_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match="the settings are blue, green, namespaces"):
        refuse_unknown_settings({"zzz": 1}, KNOWN)


@pytest.mark.parametrize("conf", [None, {}, {"blue": "x"}])
def test_known_settings_pass(conf: dict[str, str] | None) -> None:
    refuse_unknown_settings(conf, KNOWN)


def test_no_namespace_at_all_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="names no namespace"):
        parse_namespaces([])


def test_a_namespace_named_twice_is_moved_once() -> None:
    assert parse_namespaces(["a/b", "c/d", "a/b"]) == (NamespaceName("a", "b"), NamespaceName("c", "d"))


def test_one_cluster_under_two_connections_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="both lead to cluster 'east'"):
        refuse_same_cluster("pulsar_blue", "pulsar_green", ("east", "east"))
