"""Why a message differs: faults, and what a true copy may show too."""

from __future__ import annotations

import pytest

from pulsar_fleet.verification.messages.differences import (
    Cause,
    Circumstances,
    cause_of_extra,
    cause_of_missing,
    explanation,
)

REPLICATED = Circumstances(source="blue", target="green", replicated=True, ttl_seconds=60, now=1_000_000)
COPIED = Circumstances(source="blue", target="green", replicated=False)
RECENT = 999_999


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ({}, Cause.LOST),
        (None, Cause.TRIMMED),
        ({"x-pulsar-marker-type": "21"}, Cause.MARKER),
        ({"x-pulsar-txnid-most-bits": "0", "x-pulsar-txn-aborted": "true"}, Cause.ABORTED),
        ({"x-pulsar-txnid-most-bits": "0", "x-pulsar-txn-uncommitted": "true"}, Cause.OPEN_TRANSACTION),
        ({"x-pulsar-txn-uncommitted": "true"}, Cause.LOST),
        ({"x-pulsar-replicated-from": "yellow"}, Cause.REPLICATED_IN),
        ({"x-pulsar-replicated-from": "green"}, Cause.FROM_TARGET),
        ({"x-pulsar-replicated-to": "yellow,red"}, Cause.NOT_FOR_TARGET),
        ({"x-pulsar-replicated-to": "yellow,green"}, Cause.LOST),
        ({"x-pulsar-chunk-id": "2"}, Cause.CHUNK_LOST),
        ({"x-pulsar-is-encrypted": "true"}, Cause.LOST),
    ],
)
def test_why_a_replicated_message_is_missing(entry: dict[str, str] | None, cause: Cause) -> None:
    assert cause_of_missing(entry, RECENT, REPLICATED) is cause


def test_a_message_older_than_the_ttl_may_have_expired_before_replication() -> None:
    assert cause_of_missing({}, 1_000_000 - 61_000, REPLICATED) is Cause.EXPIRED
    assert cause_of_missing({}, 1_000_000 - 61_000, COPIED) is Cause.LOST


def test_a_new_producer_encrypts_anew() -> None:
    assert cause_of_missing({"x-pulsar-is-encrypted": "true"}, RECENT, COPIED) is Cause.ENCRYPTED


@pytest.mark.parametrize(
    ("entry", "original", "cause"),
    [
        ({}, {}, Cause.PUBLISHED_THERE),
        ({"x-pulsar-replicated-from": "yellow"}, {}, Cause.REPLICATED_IN),
        ({"x-pulsar-replicated-from": "blue"}, {}, Cause.UNKNOWN_ORIGIN),
        ({"x-pulsar-replicated-from": "blue"}, None, Cause.TRIMMED),
        (None, {}, Cause.TRIMMED),
    ],
)
def test_why_the_copy_holds_one_more(
    entry: dict[str, str] | None, original: dict[str, str] | None, cause: Cause
) -> None:
    assert cause_of_extra(entry, original, REPLICATED) is cause


def test_only_faults_are_no_excuse() -> None:
    assert {cause for cause in Cause if not cause.expected} == {
        Cause.LOST,
        Cause.DUPLICATED,
        Cause.ALTERED,
        Cause.UNKNOWN_ORIGIN,
        Cause.CHUNK_LOST,
    }


def test_innocent_causes_are_counted_and_told_apart() -> None:
    text = explanation([Cause.NOT_FOR_TARGET, Cause.EXPIRED, Cause.NOT_FOR_TARGET], REPLICATED)
    assert "1 × expired" in text
    assert "2 × not for the target" in text
