"""Clusters and plans as the command line names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pulsar_fleet.cli.clusters import StoredSnapshot, cluster_or_snapshot, named_cluster
from pulsar_fleet.cli.commands.plans import PlanFile
from pulsar_fleet.cli.terminal import UsageError
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.planning.plan import Plan

FILE = PlanFile(
    run="cli/plan-1",
    source="http://blue:8080",
    target="pulsar_green",
    selection=("acme",),
    subscriptions=True,
    plan=Plan(source="blue", target="green", changes=()),
    findings=(),
)


def test_a_url_takes_the_credentials_of_its_side() -> None:
    environment = {"PULSAR_FLEET_TARGET_TOKEN_SECRET": "t", "PULSAR_FLEET_TARGET_SERVICE_URL": "pulsar://green:6650"}
    target = named_cluster("http://green:8080", Side.TARGET, environment)
    source = named_cluster("http://blue:8080", Side.SOURCE, environment)
    assert (target.token, target.service_url, source.token, source.service_url) == (
        "t",
        "pulsar://green:6650",
        None,
        None,
    )


@pytest.mark.parametrize("url", ["http://u:s3cret@blue:8080", "https://blue/?token=s3cret", "http://blue:s3cret"])
def test_a_secret_in_an_argument_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        named_cluster(url, Side.SOURCE, {})
    assert "s3cret" not in str(caught.value)


def test_a_url_with_several_hosts_is_a_cluster() -> None:
    connection = named_cluster("http://a:1,b:2", Side.SOURCE, {})
    assert connection.admin_urls == ("http://a:1", "http://b:2")
    assert connection.argument == "http://a:1,b:2"


@pytest.mark.parametrize("text", ["blue:8080", "blue.example", "pulsar://blue:6650", "http://"])
def test_a_cluster_that_cannot_be_meant_says_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError, match="http://host:port"):
        named_cluster(text, Side.SOURCE, {})


def test_a_folder_with_a_manifest_is_a_stored_snapshot(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert cluster_or_snapshot(str(tmp_path), Side.SOURCE) == cluster_or_snapshot(
        str(tmp_path / "manifest.json"), Side.TARGET
    )
    assert isinstance(cluster_or_snapshot(str(tmp_path), Side.SOURCE), StoredSnapshot)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a stored snapshot"):
        cluster_or_snapshot(str(tmp_path), Side.SOURCE)


def test_a_stored_plan_is_read_back_as_it_was() -> None:
    assert PlanFile.from_text(json.dumps(FILE.to_json()), "plan.json") == FILE


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", json.dumps({**FILE.to_json(), "plan": None})])
def test_a_plan_that_is_none_or_was_altered_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"'plan\.json'"):
        PlanFile.from_text(text, "plan.json")


def test_a_plan_of_another_release_is_refused() -> None:
    with pytest.raises(UsageError, match="schema version 2, this release reads 1"):
        PlanFile.from_text(json.dumps({**FILE.to_json(), "schema_version": 2}), "plan.json")
