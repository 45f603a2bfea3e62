"""Generated estates are onboarded: an independent exporter finds no difference, and nothing is left out unnamed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from tests.support.exporter import Plain, Refused, export, listed_topics
from tests.support.odd_estates import ESTATES, OTHER, Namespace, build
from tests.support.snapshot_equality import verify_equal
from tests.support.version_differences import without_added

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.onboarding.steps import (
    apply_onboarding,
    plan_onboarding,
    probe_target_schemas,
    take_snapshot,
)
from pulsar_fleet.preflight.findings import Finding, blockers
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.store.reader import load_snapshot

pytestmark = [pytest.mark.versions, pytest.mark.long]

NUMBER = "PULSAR_FLEET_ESTATES"
OPTIONS = settings(
    max_examples=int(os.environ.get(NUMBER, "4")),
    # The same few in each run of the tests; others in each run that asks for a number.
    derandomize=NUMBER not in os.environ,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
KEPT = "brokerDeleteInactiveTopicsEnabled"


@pytest.fixture(scope="module")
def sides(blue: ClusterConnection, green: ClusterConnection) -> Iterator[tuple[ClusterConnection, ClusterConnection]]:
    """Both clusters; they keep inactive topics meanwhile, so that the estate is what was built."""
    clusters = [Plain(side.admin_url) for side in (blue, green)]
    for cluster in clusters:
        cluster.call("POST", f"/brokers/configuration/{KEPT}/false")
    if OTHER not in clusters[0].get("/clusters"):
        data = {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"}
        clusters[0].call("PUT", f"/clusters/{OTHER}", data)
    yield blue, green
    for cluster in clusters:
        cluster.call("DELETE", f"/brokers/configuration/{KEPT}")
        if OTHER in cluster.get("/clusters"):
            cluster.call("DELETE", f"/clusters/{OTHER}")


@pytest.mark.full
@OPTIONS
@given(estate=ESTATES)
def test_an_odd_estate_is_copied_or_named(
    sides: tuple[ClusterConnection, ClusterConnection], records: Path, estate: list[Namespace]
) -> None:
    blue, green = sides
    tenant = f"odd={uuid4().hex[:10]}"
    uncopyable = build(blue.admin_url, "blue", tenant, estate)
    note(f"tenant {tenant}, not copyable over HTTP: {sorted(uncopyable)}")
    snapshot, findings, named, lacked = asyncio.run(onboard(blue, green, tenant))
    assert [finding.text() for finding in blockers(findings)] == []

    ours, theirs = export(blue.admin_url, "blue", [tenant]), export(green.admin_url, "green", [tenant])
    theirs = {name: without_added(document, ours.get(name)) for name, document in theirs.items()}
    ours = {name: without_added(document, theirs.get(name)) for name, document in ours.items()}
    for name, field in lacked:
        ours[f"namespace {name}"].pop(field)
    different = {name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}
    assert {name: (ours.get(name), theirs.get(name)) for name in different - uncopyable} == {}
    assert {name for name in different if not any(owner(name) in text for text in named)} == set()
    assert unlisted(blue, tenant, snapshot) == set()


async def onboard(
    blue: ClusterConnection, green: ClusterConnection, tenant: str
) -> tuple[Snapshot, tuple[Finding, ...], list[str], list[tuple[str, str]]]:
    """All steps; returns the source's snapshot, the findings, the texts that name what is left out, and of that the
    policies of namespaces, by field, which the target is too old for.
    """
    run, artefacts, selection = tenant, Artefacts.open(), Selection(tenants=frozenset({tenant}))
    source = await take_snapshot(blue, selection, artefacts, run, name="source", must_exist=True)
    target = await take_snapshot(green, selection, artefacts, run, name="target")
    answers = await probe_target_schemas(green, source, target, artefacts)
    planned = plan_onboarding(source, target, artefacts, answers=answers)
    applied = await apply_onboarding(blue, green, planned.plan, artefacts, Ledger.open(), run)
    assert applied.problems == ()
    verified = await verify_equal(source, green, selection, artefacts, run)
    assert verified.equal, verified.text
    plan, findings = planned.plan, planned.findings
    named = [f"{row.name} {row.field}" for row in plan.left_alone] + [finding.resource for finding in findings]
    lacked = [(row.name, row.field) for row in plan.left_alone if row.reason.startswith("needs Pulsar ")]
    return load_snapshot(artefacts, source.reference), findings, named, lacked


def owner(name: str) -> str:
    """`tenant/namespace` or the topic in the exporter's name of a resource."""
    return name.partition(" ")[2]


def unlisted(blue: ClusterConnection, tenant: str, snapshot: Snapshot) -> set[str]:
    """Topics that the broker lists and that the snapshot neither has nor names."""
    http_ = Plain(blue.admin_url)
    named = {topic.name for topic in snapshot.topics} | {note_.resource for note_ in snapshot.notes}
    missing = set()
    for namespace in http_.get(f"/namespaces/{tenant.replace('=', '%3D')}"):
        try:
            missing |= {*listed_topics(http_, namespace)} - named
        except Refused:
            missing |= {namespace} - named
    return missing
