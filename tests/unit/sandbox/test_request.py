"""What a sandbox may be asked to be, and how it is laid out."""

from __future__ import annotations

import itertools
import shutil
import socket
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, PreconditionFailed
from pulsar_sandbox.sandbox.configuration import broker_settings
from pulsar_sandbox.sandbox.layout import SandboxLayout, lay_out_cluster
from pulsar_sandbox.sandbox.ports import CANDIDATES, free_ports, is_free
from pulsar_sandbox.sandbox.request import Request, parse_versions

PAIR = Request(clusters=("blue", "green"))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", next(free_ports()))) as server:
        yield server


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(clusters=()), "need at least one name"),
        (Request(clusters=("a", "a")), "each once"),
        (Request(clusters=("a b",)), "'a b' cannot name a cluster"),
        (Request(clusters=("../up",)), "cannot name a cluster"),
        (Request(clusters=("security",)), "cannot name a cluster"),
        (Request(clusters=("a",), version="3.0.0"), "version '3.0.0' is not one that the sandbox can start; use 4.2.4"),
        (Request(clusters=("a",), version={"b": "4.2.4"}), "version is given for 'b'"),
        (Request(clusters=("a",), settings={"b": {}}), "settings is given for 'b'"),
        (Request(clusters=("a",), version="5.9.9"), "version '5.9.9' is not one that the sandbox can start; use 4.2.4"),
        (Request(clusters=("a",), version="5.0.1", brokers=2), "Pulsar 5.0.1 .* use 1 broker, not 2"),
        (Request(clusters=("a", "b"), version={"b": "5.0.1"}, shared_store=True), "5.0.1 .* a store for each cluster"),
        (Request(clusters=("a",), shared_store=True), "'a' shares its store with nobody"),
        (Request(clusters=("a",), brokers=0), "1 to 4 brokers, not 0"),
        (Request(clusters=("a",), brokers=5), "1 to 4 brokers, not 5"),
    ],
)
def test_a_request_that_cannot_be_is_rejected_in_one_line(request_: Request, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        request_.check()
    assert "\n" not in str(caught.value)


def test_each_cluster_may_have_its_own_version() -> None:
    request = Request(clusters=("blue", "green"), version={"blue": "4.0.7"})
    assert request.versions == {"blue": "4.0.7", "green": "4.2.4"}


def test_all_ports_of_a_sandbox_differ() -> None:
    layout = Request(clusters=("blue", "green"), brokers=2, secure=True).lay_out(None)
    ports = [port for cluster in layout.clusters for port in cluster.ports()]
    assert len(ports) == len(set(ports)) == 2 * (2 * 4 + 2)


def test_clusters_that_share_a_store_use_that_of_the_first_one() -> None:
    shared = replace(PAIR, shared_store=True)
    layout = shared.lay_out(None)
    settings = [broker_settings(cluster, cluster.brokers[0], None) for cluster in layout.clusters]
    assert len({each["metadataStoreUrl"] for each in settings}) == 2
    assert {each["configurationMetadataStoreUrl"] for each in settings} == {
        f"zk:127.0.0.1:{layout.clusters[0].zookeeper_port}/configuration"
    }
    with pytest.raises(InvalidRequest, match=r"holds data of blue .* and a shared store, .* not of blue 4.2.4 with 1 "):
        PAIR.check_fits("here", layout)


def test_a_layout_survives_its_file() -> None:
    layout = replace(PAIR, settings={"blue": {"key": "value"}}).lay_out(None)
    assert SandboxLayout.from_json(layout.to_json()) == layout


def test_a_file_of_another_schema_version_is_rejected() -> None:
    text = PAIR.lay_out(None).to_json().replace('"schema_version": 1', '"schema_version": 99')
    with pytest.raises(InvalidRequest, match="schema_version 99"):
        SandboxLayout.from_json(text)


def test_a_later_start_gets_the_ports_of_the_earlier_one() -> None:
    earlier = PAIR.lay_out(None)
    assert PAIR.lay_out(earlier).clusters == earlier.clusters


def test_a_later_start_moves_only_the_cluster_whose_port_is_taken(listener: socket.socket) -> None:
    earlier = PAIR.lay_out(None)
    blue, green = earlier.clusters
    taken = replace(blue, brokers=(replace(blue.brokers[0], web_port=listener.getsockname()[1]),))
    later = PAIR.lay_out(replace(earlier, clusters=(taken, green)))
    assert later.clusters[0].brokers[0].web_port != listener.getsockname()[1]
    assert later.clusters[0].bookie_port == blue.bookie_port
    assert later.clusters[1] == green


def test_a_later_start_is_refused_if_the_port_of_the_bookie_is_taken(listener: socket.socket) -> None:
    earlier = PAIR.lay_out(None)
    blue, green = earlier.clusters
    taken = replace(blue, bookie_port=listener.getsockname()[1])
    with pytest.raises(PreconditionFailed, match="the data of cluster 'blue' is bound to it"):
        PAIR.lay_out(replace(earlier, clusters=(taken, green)))


@pytest.mark.parametrize(
    "other",
    [
        Request(clusters=("blue",)),
        Request(clusters=("blue", "green"), version="4.0.7"),
        Request(clusters=("blue", "green"), brokers=2),
    ],
)
def test_a_request_that_does_not_fit_the_data_is_rejected(other: Request) -> None:
    with pytest.raises(
        InvalidRequest, match=r"holds data of blue 4\.2\.4 with 1 broker, green 4\.2\.4 with 1 broker, not of"
    ):
        other.check_fits("folder", PAIR.lay_out(None))


def test_ports_that_the_caller_wants_are_used_in_order() -> None:
    base = next(port for port in CANDIDATES if all(is_free(port + offset) for offset in range(6)))
    layout = replace(PAIR, port_base=base).lay_out(None)
    assert [port for cluster in layout.clusters for port in sorted(cluster.ports())] == list(range(base, base + 6))


def test_a_port_that_the_caller_wants_and_that_is_taken_is_refused(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(PreconditionFailed, match=f"Port {port} is taken; choose another port base"):
        replace(PAIR, port_base=port).lay_out(None)


@pytest.mark.parametrize("base", [0, -5, 70_000])
def test_a_port_base_that_is_no_port_is_refused(base: int) -> None:
    with pytest.raises(FleetError, match=str(base)):
        replace(PAIR, port_base=base).check()


def test_two_brokers_have_hosts_of_their_own() -> None:
    layout = lay_out_cluster("a", version="4.2.4", brokers=2, secure=False, settings={}, ports=itertools.count(20_000))
    assert [broker.host for broker in layout.brokers] == ["127.0.0.1", "127.0.0.2"]


def test_the_callers_settings_win_over_our_own() -> None:
    own = {"clusterMigrationCheckDurationSeconds": "0", "webServicePort": "1"}
    layout = lay_out_cluster("a", version="4.2.4", brokers=1, secure=False, settings=own, ports=itertools.count(20_000))
    settings = broker_settings(layout, layout.brokers[0], None)
    assert own.items() <= settings.items()


def test_a_full_disk_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bookie starts on it, and the broker then waits for a bookie that takes writes."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(250 * 10**9, 248 * 10**9, 10**9))
    with pytest.raises(PreconditionFailed, match=r"99\.6% full.*nothing above 99%: free 3\.5 GB or more"):
        Request.check_space(tmp_path)
    # Not full yet, but the first tests would fill it: all others then wait for a bookie until their time is over.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(250 * 10**9, 246 * 10**9, 4 * 10**9))
    with pytest.raises(PreconditionFailed, match=r"98\.4% full.*free 0\.5 GB or more, which leaves 2 GB to write"):
        Request.check_space(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(250 * 10**9, 240 * 10**9, 10**10))
    Request.check_space(tmp_path)


def test_versions_are_given_for_all_clusters_or_by_name() -> None:
    assert parse_versions("4.0.7") == "4.0.7"
    assert parse_versions("blue=3.0.7, green=4.2.4") == {"blue": "3.0.7", "green": "4.2.4"}


def test_a_rolling_upgrade_gives_brokers_and_then_the_cluster_the_version() -> None:
    wide = Request(clusters=("blue",), version="4.0.7", brokers=2)
    earlier = wide.lay_out(None)
    (blue,) = earlier.clusters
    mixed = blue.with_version(0, "4.2.4")
    assert (mixed.version, mixed.versions) == ("4.0.7", ("4.2.4", "4.0.7"))
    recorded = SandboxLayout.from_json(replace(earlier, clusters=(mixed,)).to_json())
    assert (recorded.versions, wide.lay_out(recorded).clusters) == ({"4.0.7", "4.2.4"}, (mixed,))
    whole = mixed.with_version(1, "4.2.4")
    assert (whole, whole.versions) == (replace(blue, version="4.2.4"), ("4.2.4", "4.2.4"))


def test_a_later_start_on_other_ports_keeps_the_versions_of_the_brokers(listener: socket.socket) -> None:
    wide = Request(clusters=("blue",), version="4.0.7", brokers=2)
    earlier = wide.lay_out(None)
    mixed = earlier.clusters[0].with_version(1, "4.2.4")
    taken = replace(mixed, zookeeper_port=listener.getsockname()[1])
    (later,) = wide.lay_out(replace(earlier, clusters=(taken,))).clusters
    assert (later.zookeeper_port == taken.zookeeper_port, later.versions) == (False, ("4.0.7", "4.2.4"))
