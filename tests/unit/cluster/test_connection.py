"""Connections: what cannot be used is refused, and no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest


def test_a_token_is_never_shown() -> None:
    assert "s3cret" not in repr(ClusterConnection(name="blue", admin_url="http://blue:8080", token="s3cret"))


@pytest.mark.parametrize("url", ["blue:8080", "pulsar://blue:6650", "", "http://"])
def test_an_unusable_admin_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="http://host:port"):
        ClusterConnection(name="blue", admin_url=url)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://a:1,", "is not usable, 'http://'"),
        ("http://a:1,b:99999", "has an invalid host or port"),
        ("http://blue:8080/admin/v2", "has a path, 'http://blue:8080/admin/v2'"),
        ("http://blue:99999", "has an invalid host or port"),
        ("http://[::1", "has an invalid host or port"),
        ("http://blue:8080?x=1", "has credentials or a query"),
        ("ftp://blue", "is not usable, 'ftp://blue'"),
    ],
)
def test_the_problem_of_an_admin_url_is_named_before_any_call(url: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ClusterConnection(name="blue", admin_url=url)
    assert str(caught.value).startswith(f"The admin URL of 'blue' {problem}")


def test_a_secret_in_an_admin_url_is_not_repeated() -> None:
    with pytest.raises(InvalidRequest) as caught:
        ClusterConnection(name="blue", admin_url="ftp://admin:s3cret@blue")
    assert "s3cret" not in str(caught.value)


def test_an_admin_url_with_several_hosts_is_one_url_for_each() -> None:
    connection = ClusterConnection(name="blue", admin_url="https://a:8443, b:8443/pulsar/")
    assert connection.admin_urls == ("https://a:8443/pulsar", "https://b:8443/pulsar")


def test_the_path_of_a_reverse_proxy_is_accepted() -> None:
    assert ClusterConnection(name="blue", admin_url="https://gateway.example/pulsar").admin_url


def test_an_unusable_service_url_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="pulsar://host:port"):
        ClusterConnection(name="blue", admin_url="http://blue:8080", service_url="http://blue:6650")


def test_a_missing_service_url_says_what_to_add() -> None:
    with pytest.raises(InvalidRequest, match='add "service_url"'):
        ClusterConnection(name="blue", admin_url="http://blue:8080").require_service_url()


def test_a_rotated_token_file_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "token"
    connection = ClusterConnection(name="blue", admin_url="http://blue:8080", token_file=str(file))
    file.write_text("first\n")
    first = connection.read_token()
    file.write_text("second\n")
    assert (first, connection.read_token()) == ("first", "second")


def test_a_token_file_that_is_gone_is_named(tmp_path: Path) -> None:
    connection = ClusterConnection(name="blue", admin_url="http://blue:8080", token_file=str(tmp_path / "gone"))
    with pytest.raises(InvalidRequest, match="gone"):
        connection.read_token()
