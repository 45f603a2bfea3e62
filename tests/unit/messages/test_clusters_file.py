"""A file with named clusters: connections as Airflow has them, and no secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.messages.credentials import CLUSTERS_VARIABLE, named_connection

FILE = """
blue:
  host: http://blue:8080
  extra: {service_url: "pulsar://blue:6650", token_file: /run/secrets/blue.jwt}
green:
  host: https://green:8443
  password: ${GREEN_TOKEN}
  extra: {replication_auth: link}
link:
  host: unused
  extra: {token: "${LINK_TOKEN}"}
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Names a file with three connections, and the two secrets that it refers to."""
    file = tmp_path / "clusters.yaml"
    file.write_text(FILE)
    return {CLUSTERS_VARIABLE: str(file), "GREEN_TOKEN": "a.b.c", "LINK_TOKEN": "d.e.f"}


def rewrite(environment: dict[str, str], old: str, new: str) -> None:
    Path(environment[CLUSTERS_VARIABLE]).write_text(FILE.replace(old, new))


def test_a_cluster_of_the_file_is_a_connection(environment: dict[str, str]) -> None:
    blue, green = named_connection("blue", environment), named_connection("green", environment)

    assert (blue.admin_url, blue.service_url, blue.token_file) == (
        "http://blue:8080",
        "pulsar://blue:6650",
        "/run/secrets/blue.jwt",
    )
    assert (green.token, green.replication_auth.token if green.replication_auth else None) == ("a.b.c", "d.e.f")


def test_the_file_in_the_home_is_read_without_a_variable(environment: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "pulsar-fleet"
    folder.mkdir(parents=True)
    (folder / "clusters.yaml").write_text(FILE)

    assert named_connection("blue", {"HOME": str(tmp_path)}).admin_url == "http://blue:8080"


def test_the_environment_replaces_a_cluster_of_the_file(environment: dict[str, str]) -> None:
    environment["AIRFLOW_CONN_BLUE"] = '{"host": "http://other:8080"}'

    assert named_connection("blue", environment).admin_url == "http://other:8080"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("${GREEN_TOKEN}", "a.b.c", "'green' .* has its password in the file"),
        ('"${LINK_TOKEN}"', "d.e.f", "'link' .* has its extra.token in the file"),
        ("${GREEN_TOKEN}", "${MISSING}", "takes a secret from 'MISSING': set that variable"),
        ("password:", "pasword:", "unknown key 'pasword': known are host"),
        ("blue:\n", "blue: [\n", "is no YAML, line"),
        (FILE, "[1]", "is no mapping of names to connections"),
        ("green:\n", "grean:\n", "'green' does not exist.*the file of clusters: blue, grean, link"),
    ],
)
def test_a_file_that_is_not_right_is_named(environment: dict[str, str], old: str, new: str, words: str) -> None:
    rewrite(environment, old, new)

    with pytest.raises(InvalidRequest, match=words) as refused:
        named_connection("green", environment)
    assert "a.b.c" not in str(refused.value)


def test_a_file_that_is_named_and_missing_is_refused(environment: dict[str, str]) -> None:
    Path(environment[CLUSTERS_VARIABLE]).unlink()

    with pytest.raises(InvalidRequest, match="which does not exist"):
        named_connection("blue", environment)
