"""What is known of each client version, and that everything else is warned about."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_fleet.cluster.statistics import ConnectedClient, Role
from pulsar_fleet.migration.preflight.client_compatibility import (
    CANNOT_FOLLOW,
    FOLLOWS,
    MAY_HANG,
    NEEDS_TLS_URL,
    REPEATS,
    TABLE,
    UNKNOWN,
    behaviour,
    followed_by,
)
from pulsar_fleet.preflight.findings import Severity


@pytest.mark.parametrize(
    ("version", "finding", "severity"),
    [
        ("Pulsar-Java-v4.2.4", FOLLOWS, None),
        ("Pulsar-Java-v4.10.0-SNAPSHOT", FOLLOWS, None),
        ("Pulsar-Java-v3.3.9", FOLLOWS, None),
        ("Pulsar-Java-v3.2.1", UNKNOWN, Severity.WARNING),
        ("Pulsar-Java-v3.1.3", NEEDS_TLS_URL, Severity.WARNING),
        ("Pulsar-Java-v3.0.7", NEEDS_TLS_URL, Severity.WARNING),
        ("Pulsar-Java-v2.11.4", CANNOT_FOLLOW, Severity.BLOCKER),
        ("2.11.4", CANNOT_FOLLOW, Severity.BLOCKER),
        ("Pulsar-CPP-v4.2.0", MAY_HANG, Severity.WARNING),
        ("Pulsar-CPP-v4.2.1", MAY_HANG, Severity.WARNING),
        ("Pulsar-CPP-v3.5.1", MAY_HANG, Severity.WARNING),
        ("Pulsar-CPP-v3.4.2", CANNOT_FOLLOW, Severity.BLOCKER),
        ("Pulsar-Go-v0.19.0", REPEATS, Severity.WARNING),
        ("Pulsar-Go-v0.20.0", UNKNOWN, Severity.WARNING),
        ("Pulsar-Java-vNext", UNKNOWN, Severity.WARNING),
        ("unknown", UNKNOWN, Severity.WARNING),
        ("", UNKNOWN, Severity.WARNING),
    ],
)
def test_a_version_is_told_by_what_it_was_seen_to_do(version: str, finding: str, severity: Severity | None) -> None:
    row = behaviour(version)
    assert (row.finding, row.severity) == (finding, severity)


@given(st.text(max_size=30))
def test_no_string_passes_that_is_not_a_java_of_3_3_or_later(version: str) -> None:
    assert behaviour(version).severity is not None or version.startswith("Pulsar-Java-v")


@given(st.sampled_from(["Pulsar-Java-v", "Pulsar-CPP-v", "Pulsar-Go-v", ""]), st.tuples(*[st.integers(0, 30)] * 3))
def test_ranges_do_not_overlap(prefix: str, numbers: tuple[int, int, int]) -> None:
    version = prefix + ".".join(map(str, numbers))
    assert sum(row.covers(version) for row in TABLE) == 1


def test_every_row_carries_its_evidence() -> None:
    assert all(row.evidence.endswith(".") and row.can for row in TABLE)
    assert [row.readers_stall for row in TABLE if row.finding == MAY_HANG] == [True, True]
    assert behaviour("Pulsar-Java-v3.0.7").readers_stall
    assert behaviour("Pulsar-Go-v0.19.0").readers_stall
    assert not behaviour("Pulsar-Java-v3.3.9").readers_stall


@pytest.mark.parametrize(
    ("host", "version", "by_all"),
    [
        ("10.2.0.17", "Pulsar-Java-v4.2.4", True),
        ("10.2.0.17", "2.11.4", True),
        ("10.2.0.17", "2.9.1", False),
        ("10.2.0.17", "Pulsar-CPP-v4.2.0", True),
        ("10.2.0.17", "Pulsar-CPP-v3.7.1", False),
        ("10.2.0.17", "Pulsar-Go-v0.19.0", False),
        ("10.2.0.18", "Pulsar-Java-v4.2.4", False),
        ("", "Pulsar-Java-v4.2.4", False),
    ],
)
def test_a_document_is_followed_by_hosts_that_read_it(host: str, version: str, by_all: bool) -> None:
    def client(name: str, address: str, version: str) -> ConnectedClient:
        return ConnectedClient(
            topic="persistent://acme/orders/events",
            role=Role.PRODUCER,
            subscription="",
            name=name,
            address=address,
            version=version,
            since="",
        )

    first = client("a", "[::1]:5513", "Pulsar-Java-v4.2.4")
    other = client("b", host and f"{host}:5512", version)
    followed = followed_by([first, other], "orders", {"10.2.0.17", "::1"})
    assert (followed.by_all, str(other) in followed.why) == (by_all, not by_all)
    written_in_full = replace(first, address="[0:0:0:0:0:0:0:1]:5513")
    assert followed_by([written_in_full], "orders", {"::1"}).by_all
    assert followed_by([client("b", "10.2.0.17:1", "2.11.4")], "orders", {"::ffff:10.2.0.17"}).by_all
    reader = replace(first, role=Role.READER, subscription="reader-1")
    assert "1 reader would lose the position" in followed_by([first, reader], "orders", {"::1"}).why
    assert not followed_by([first, other], "orders", ()).by_all
    assert not followed_by([], "orders", {"10.2.0.17"}).by_all
