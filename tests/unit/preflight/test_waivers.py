"""Waivers of a comparison's blockers: each becomes a warning that names who accepts it."""

from __future__ import annotations

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.preflight.findings import Finding, Severity, blockers
from pulsar_fleet.preflight.waivers import Waiver, accept

UNKNOWN = Finding(
    id="version-unknown",
    severity=Severity.BLOCKER,
    resource="cluster blue",
    evidence="brokers run 4.1.2",
    consequence="it was never compared",
    remedy="use another",
)
STOPS = Finding(
    id="partitions-differ", severity=Severity.BLOCKER, resource="t", evidence="3, 4", consequence="keys", remedy="none"
)


def waiver(id_: str) -> Waiver:
    return Waiver.parse({"id": id_, "who": "Ada", "why": "tested by us"})


def test_an_accepted_blocker_is_a_warning_that_names_who_accepts_it() -> None:
    findings = accept([UNKNOWN, STOPS], [waiver("version-unknown")])
    assert blockers(findings) == (STOPS,)
    assert findings[1].severity is Severity.WARNING
    assert findings[1].evidence == "brokers run 4.1.2; accepted by Ada: tested by us"


def test_without_waivers_nothing_changes() -> None:
    assert set(accept([UNKNOWN, STOPS], [])) == {UNKNOWN, STOPS}


def test_a_certain_loss_is_never_accepted() -> None:
    with pytest.raises(PreconditionFailed, match="never waived: keys change their partition"):
        accept([UNKNOWN, STOPS], [waiver("partitions-differ")])


def test_a_waiver_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="matches no blocker"):
        accept([STOPS], [waiver("version-unknown")])
