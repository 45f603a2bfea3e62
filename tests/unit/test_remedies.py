"""Every finding of the package has a case: its remedy is executed on real clusters, or its text is checked."""

from __future__ import annotations

import pytest
from tests.support.remedies import BY_HAND, EXECUTED, PERMITTED, calls, inventory

from pulsar_fleet.cluster.admin.call import Call


def test_every_finding_has_a_case() -> None:
    assert inventory() == EXECUTED | set(BY_HAND)


def test_no_finding_has_two_cases() -> None:
    assert not EXECUTED & set(BY_HAND)
    assert set(PERMITTED) <= EXECUTED


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            "blue: POST /admin/v2/namespaces/a/b/migration false",
            Call("POST", "/namespaces/a/b/migration", (), False, True),
        ),
        (
            "blue: POST /admin/v2/clusters/blue/migrate?migrated=false",
            Call("POST", "/clusters/blue/migrate", (("migrated", "false"),)),
        ),
    ],
)
def test_a_printed_call_is_parsed_as_a_person_reads_it(text: str, call: Call) -> None:
    assert calls(f"{text}; green: GET /admin/v2/clusters") == [("blue", call), ("green", Call("GET", "/clusters"))]
