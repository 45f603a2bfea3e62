"""What newer brokers do otherwise by default is named where the estate meets it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.remedies import require_harmless
from tests.support.snapshots import PLAIN, full_pair, with_settings, with_topic

from pulsar_fleet.cluster.names import SHADOW_SOURCE
from pulsar_fleet.preflight.checks.versions import CHANGED_DEFAULTS
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.snapshot.model import ClusterDataState, Snapshot, SubscriptionState

Change = Callable[[Snapshot], Snapshot]
IDS = {row.finding for row in CHANGED_DEFAULTS} | {"name-with-white-space"}


def settings(**values: str) -> Change:
    return lambda snapshot: with_settings(snapshot, **values)


def of_version(version: str) -> Change:
    return lambda snapshot: replace(
        snapshot, brokers=tuple(replace(broker, version=version) for broker in snapshot.brokers)
    )


def both(*changes: Change) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        for step in changes:
            snapshot = step(snapshot)
        return snapshot

    return change


def same(snapshot: Snapshot) -> Snapshot:
    return snapshot


def shadow(snapshot: Snapshot) -> Snapshot:
    return with_topic(snapshot, PLAIN, properties={SHADOW_SOURCE: f"{PLAIN}-source"})


def subscribed(name: str) -> Change:
    row = SubscriptionState(PLAIN, PLAIN, name, "1:1", False, {})
    return lambda snapshot: replace(snapshot, subscriptions=(row,))


def linked(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, clusters=(ClusterDataState("west", {"brokerClientTlsEnabled": True}),))


def begins_spaced(snapshot: Snapshot) -> Snapshot:
    topic = replace(snapshot.topics[0], name=PLAIN.replace("/plain", "/ plain"))
    return replace(snapshot, topics=(*snapshot.topics, topic))


def spaced(snapshot: Snapshot) -> Snapshot:
    topic = replace(snapshot.topics[0], name=f"{PLAIN} ")
    return replace(snapshot, topics=(*snapshot.topics, topic))


VERIFIES, VERIFIED_NOT = (settings(tlsHostnameVerificationEnabled=value) for value in ("true", "false"))
CHECKS = settings(authenticateOriginalAuthData="true", proxyRoles="[proxy]")
FAULTS: dict[str, tuple[Change, Change]] = {
    "shadow-topics-off": (shadow, settings(enableShadowTopics="false")),
    "batch-acknowledgments-off": (
        both(settings(acknowledgmentAtBatchIndexLevelEnabled="true"), subscribed("work")),
        settings(acknowledgmentAtBatchIndexLevelEnabled="false"),
    ),
    "host-names-are-verified": (both(VERIFIED_NOT, linked), VERIFIES),
    "original-credentials-are-checked": (settings(authenticateOriginalAuthData="false"), CHECKS),
    "name-with-white-space": (spaced, of_version("5.0.0")),
}
NEAREST: dict[str, tuple[Change, Change]] = {
    "shadow-topics-off": (shadow, settings(enableShadowTopics="true")),
    "batch-acknowledgments-off": (
        both(settings(acknowledgmentAtBatchIndexLevelEnabled="false"), subscribed("work")),
        settings(acknowledgmentAtBatchIndexLevelEnabled="false"),
    ),
    "host-names-are-verified": (VERIFIED_NOT, VERIFIES),
    "original-credentials-are-checked": (
        settings(authenticateOriginalAuthData="false"),
        settings(authenticateOriginalAuthData="true", proxyRoles="[]"),
    ),
    "name-with-white-space": (both(begins_spaced, subscribed(" work ")), of_version("5.0.1")),
}
"""By finding: the nearest pair in which it would be wrong."""


def found(changes: tuple[Change, Change]) -> dict[str, Finding]:
    pair = full_pair()
    source, target = changes
    findings = check_compatibility(source(pair.source), target(pair.target), pair.probes)
    return {finding.id: finding for finding in findings if finding.id in IDS}


@pytest.mark.parametrize("id_", FAULTS)
def test_a_changed_default_is_named_where_the_estate_meets_it(id_: str) -> None:
    findings = found(FAULTS[id_])
    assert findings.keys() == {id_}
    severity = Severity.BLOCKER if id_ == "name-with-white-space" else Severity.WARNING
    assert (findings[id_].severity, findings[id_].resource) == (severity, "cluster green")
    require_harmless(findings[id_])


@pytest.mark.parametrize("id_", NEAREST)
def test_a_changed_default_is_not_named_in_the_nearest_pair(id_: str) -> None:
    assert found(NEAREST[id_]) == {}


def test_every_finding_has_its_faults() -> None:
    assert set(FAULTS) == set(NEAREST) == IDS


def test_refused_names_are_listed_with_their_white_space() -> None:
    evidence = found(FAULTS["name-with-white-space"])["name-with-white-space"].evidence
    assert f"topic '{PLAIN} '" in evidence


def test_an_equal_pair_of_any_version_has_none() -> None:
    for version in ("4.0.7", "4.2.4", "5.0.0", "5.0.1"):
        assert found((of_version(version), of_version(version))) == {}
    assert found((same, same)) == {}
