"""Stored documents are contracts: their keys and values are these literals, and they are read back as equal values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.runs.leases import BrokerOverrides, ClusterRuns, Lease
from pulsar_fleet.cluster.statistics import ConnectedClient, Role
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EngineName, TopicBounds
from pulsar_fleet.migration.abort import AbortResult
from pulsar_fleet.migration.cleanup import Leftovers, NamespaceCleanUp
from pulsar_fleet.migration.cutover.namespace_cutover import CutOverResult
from pulsar_fleet.migration.drain.forecast import Forecast, Sample
from pulsar_fleet.migration.drain.state import DrainState, Incident, IncidentKind, NamespaceState, Remedy, SideState
from pulsar_fleet.migration.facts import Absence, PartitionState
from pulsar_fleet.migration.model import Move, Moves, PartitionClients, Strategy
from pulsar_fleet.migration.preflight.broker_changes import BrokerVersions
from pulsar_fleet.migration.preflight.view import AddressProbe, RedirectProbe
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.proof.baseline import ProofBaseline
from pulsar_fleet.migration.proof.reader import Unfinished
from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor, TransferredPartition
from pulsar_fleet.migration.waves.planner import Member, Wave, WavePlan
from pulsar_fleet.planning.apply.outcome import ChangeResult, Outcome, PlanResult
from pulsar_fleet.planning.comparison import Comparison, UnequalField
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, LeftAlone, Plan
from pulsar_fleet.policy_sync.events.results import SyncSummary, Tally
from pulsar_fleet.policy_sync.events.versions import FieldVersion, ResourceVersions, Version
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions
from pulsar_fleet.policy_sync.merge.divergence import DivergenceRequest
from pulsar_fleet.policy_sync.merge.provenance import Observation, Provenance
from pulsar_fleet.policy_sync.reconcile.results import DriftSummary, LastScan, RepairPlan, RepairSummary
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.preflight.waivers import Waiver, WaiverResult
from pulsar_fleet.read_only.forwarding.results import ForwardingResult, State, SubscriptionResult
from pulsar_fleet.verification.coverage import Coverage, Mode
from pulsar_fleet.verification.coverage import Sample as CoverageSample
from pulsar_fleet.verification.messages.differences import Cause, Difference, Kind
from pulsar_fleet.verification.messages.verdict import NamespaceVerdict, TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import Address, ChosenEngine, Pair, Problem, VerifyRequest
from pulsar_fleet.verification.snapshots.compare import CompareRequest
from pulsar_fleet.verification.subscriptions.correspondence import Unit
from pulsar_fleet.verification.subscriptions.verdict import (
    Delivery,
    NamespaceSubscriptions,
    SubscriptionVerdict,
    SubscriptionVerification,
    TopicSubscriptions,
)
from pulsar_fleet.verification.subscriptions.verdict import Kind as DeliveryKind

ORDERS = NamespaceName("acme", "orders")
TOPIC = TopicName(ORDERS, "events")
REFERENCE = Reference("file:///a/b.json", "ab12", 7)
CHANGE = Change(
    resource=Resource.POLICY,
    name="acme/orders",
    field="retention_policies",
    action=Action.SET,
    calls=(Call("POST", "/namespaces/acme/orders/retention", (("force", "true"),), {"size": 1}, True),),
    before=None,
    after={"size": 1},
    hazard=Hazard.REVERSIBLE,
    reason="differs",
)
ALONE = LeftAlone(Resource.TOPIC, str(TOPIC), "", "exists only on the target")
CLIENT = ConnectedClient(
    topic=str(TOPIC),
    role=Role.CONSUMER,
    subscription="billing",
    name="b-1",
    address="10.0.0.1:5512",
    version="Java 4.2.4",
    since="2026-11-21T08:00:00Z",
)
PARTITION = PartitionState(
    at=12.34567, close=True, absence=None, backlog={"billing": 3}, clients=(CLIENT,), stored=9, broker="b:8080"
)
SIDE = SideState(
    partitions={TOPIC: PartitionState(at=12.0, close=False, absence=Absence.UNLOADED)},
    confirmed={TOPIC.partition(1), TOPIC.partition(0)},
    reads={TOPIC: 2},
    read_at={TOPIC: 11.5},
    started=10.0,
)
DRAIN = DrainState(
    namespaces={
        "acme/orders": NamespaceState(
            started=10.0,
            blue=SIDE,
            green=SideState(started=10.0),
            samples=(Sample(11.125, 5), Sample(12.0, 0)),
            forecasts=(Forecast(at=11.0, rate=2.5, seconds=2.0, margin=0.5),),
            owners={TOPIC: ("b:8080", "0x00_0x80")},
            incidents={"topic-fenced:x": {"kind": "topic-fenced", "first": 1.0, "outcome": "open"}},
            first_backlogs={"billing": Sample(11.0, 5)},
            last_backlogs={"billing": Sample(12.0, 0)},
            checked=11.0,
            probed=11.5,
            fenced={TOPIC},
            ended=13.0,
        )
    },
    outages={"blue b:8080": 10.5},
    restarted={"d:1", "c:1"},
    listed=11.0,
    polls=2,
    calls=30,
)
MOVES = Moves(
    "blue",
    "green",
    (Move(ORDERS, Strategy.REPLICATE, "retained", {TOPIC: 2}, {TOPIC: PartitionClients(1, {"billing": 0}, {"b": 4})}),),
)
SETTINGS = OriginalSettings(
    green="green",
    publish_rates={"acme/orders": {"publishThrottlingRateInMsg": 5}},
    replication={"acme/orders": ["blue"]},
    inactive={"acme/orders": None},
    topic_rates={str(TOPIC): None},
    topic_replication={str(TOPIC): ["blue"]},
)
OVERRIDES = SETTINGS.record(ORDERS, run="moved", since="2026-11-23T00:00:00+00:00", cluster="blue")
RUNS = ClusterRuns(
    leases={"acme/orders": Lease(run="moved", started="2026-11-23T00:00:00+00:00", process="host:7", expires=1.5)},
    brokers=BrokerOverrides(
        dynamic={"loadBalancerSheddingEnabled": None},
        effective={"b:1": {"loadBalancerSheddingEnabled": "true"}},
        runs=("moved",),
    ),
)
BASELINE = ProofBaseline(
    namespace="acme/orders",
    at=1.5,
    verdict="equal",
    blue={"retention": "ab"},
    green={},
    topics={str(TOPIC): 0},
    ends={str(TOPIC): ("1:2", "3:4")},
)
UNFINISHED = Unfinished(namespaces=("acme/orders",), baselines={"acme/orders": BASELINE}, request_hash="0f" * 32)
WAVES = WavePlan(
    (
        Wave(
            number=1,
            members=(
                Member(namespace=ORDERS, strategy=Strategy.REDIRECT, reason="r", topics=2, links=frozenset({"y", "x"})),
            ),
            is_canary=True,
            notes=("alone",),
        ),
    )
)
TRANSFERRED = TransferredPartition(
    (TransferredCursor(topic=str(TOPIC), subscription="s", unread=1, carried=2, redelivered=0),), Position(3, 4)
)
OBSERVATION = Observation(5.0, {"retention": Provenance("ab", 0.0, 4.5, ("cd",))}, {})
VERSIONS = ResourceVersions(
    fields={"retention": FieldVersion("ab", Version(17, "blue"))},
    published=False,
    deleted_elsewhere=Version(19, "green"),
)
PENDING = PendingDeletions(
    id="3f2a91c0",
    resources=("tenant acme: deleted on green",),
    command="pulsar-fleet sync-metadata pulsar_blue --propagate-deletes approve --allow 3f2a91c0",
)
FINDING = Finding(
    id="topic-terminated",
    severity=Severity.BLOCKER,
    resource=str(TOPIC),
    evidence="terminated",
    consequence="refused",
    remedy="delete it",
    source={"a": 1},
)
COMPARISON = Comparison(
    source="blue",
    target="green",
    compared={"topics": 2},
    differing={"policy": 1},
    left_alone={"topic": 1},
    first=(UnequalField("policy", "acme/orders", "retention", {"size": 1}, None, "differs"),),
    first_left_alone=(ALONE,),
    unread=("acme/audit",),
)
DRIFT = DriftSummary(
    headline="DRIFT between blue, green: 2 fields of 3 resources differ, 1 to be created, 1 tombstone, 1 conflict "
    "(4 resources in 16 calls). red could not be reached, last seen 2027-01-15 07:43:20 UTC.",
    fleet=("blue", "green", "red"),
    clusters=("blue", "green"),
    behind={"red": LastScan(last_seen=1799999000.25, since="2027-01-15 07:43:20 UTC", seconds=999.8)},
    unreachable={"pulsar_red": "no answer"},
    resources=4,
    namespaces=3,
    calls={"green": 7, "blue": 9},
    fields=2,
    drifting=3,
    missing=1,
    tombstones=("namespace acme/old",),
    conflicts=1,
    lost=0,
    oldest_drift_seconds=5.0,
    pairs={"blue/green": 4},
    unread=("namespace acme/audit",),
    held=("acme/a", "acme/b"),
    left_alone=1,
    seconds=1.25,
    divergent=None,
    plans={"green": RepairPlan(plan=REFERENCE, changes=3, needs_permission=1)},
    drift=REFERENCE,
    listed_conflicts=(
        ListedConflict(
            id="1f",
            resource="namespace acme/orders",
            field="x",
            rule="r",
            winner="blue",
            values={"blue": 5, "green": None},
        ),
    ),
    deletions={"blue": PENDING},
)
REPAIRED = RepairSummary(
    complete=False,
    repaired=1,
    counts={"applied": 1, "refused": 1, "failed": 1},
    problems=(
        "green: policy acme/orders message_ttl_in_seconds: failed: why",
        "green: policy acme/orders max_producers_per_topic: refused: why",
    ),
    changed=("green",),
    failed=1,
    unreached=("red",),
    calls={"blue": 3, "green": 4},
    after=DRIFT,
)
FORWARDED = ForwardingResult(
    cluster="blue",
    subscriptions=(
        SubscriptionResult(
            topic="persistent://acme/readers/events",
            subscription="billing",
            state=State.WAITING,
            forwarded=7,
            waiting=1,
            ahead=2,
            position="7:3",
            owner_position="7:2",
            holes=2,
            owner_holes=1,
            reason="busy",
        ),
    ),
    problems=("x is not forwarded.",),
    passes=3,
    calls=9,
    seconds=0.5,
)
SYNCHRONISED = SyncSummary(
    fleet=("blue", "green", "red"),
    clusters={
        "blue": Tally(
            published=3,
            applied=2,
            dropped=1,
            refused=2,
            written=2,
            lost=2,
            scans=1,
            scan_calls=9,
            reasons=["no", "no"],
            new_topics=[f"{TOPIC}: 3 partitions"],
            kept_edits=["an edit won"],
            deleted=1,
            not_deleted=["in use"],
            pending_deletions=PENDING,
            active=True,
            backlog=4,
            unsent={"green": 2, "red": 0},
        ),
        "red": Tally(behind_since="2026-11-21T08:00:00+00:00"),
    },
    behind={"pulsar_red": "no answer"},
    since={"red": "2026-11-21T08:00:00+00:00"},
    behind_seconds={"red": 12.5},
    changed=("blue",),
    seconds=1.25,
)
BOUNDS = TopicBounds(str(TOPIC), Ledgers(((1, 5), (4, 2))), 0, 7, ((0, 2), (4, 7)))
REQUEST = VerifyRequest(
    source=Address("blue", "http://b:8080", "pulsar://b:6650"),
    target=Address("green", "http://g:8080", "pulsar://g:6650"),
    namespaces=("acme/orders",),
    pairs=(Pair(str(TOPIC), BOUNDS, BOUNDS, notes=("n",), engine=ChosenEngine(EngineName.ENTRY, "as set")),),
    problems=(Problem("acme/orders", "acme/orders", True, "missing"),),
    coverage=Coverage(mode=Mode.SAMPLE, sample=CoverageSample(one_in=100)),
    max_bytes_per_second=5,
)
VERIFICATION = Verification(
    "blue",
    "green",
    (
        NamespaceVerdict(
            "acme/orders",
            (
                TopicVerdict(
                    topic=str(TOPIC),
                    verdict=Verdict.DIFFERENT,
                    source_messages=3,
                    differences=(
                        Difference(
                            Kind.ALTERED,
                            "1:2",
                            None,
                            "k",
                            5,
                            "p",
                            (("key", "'a'", "'b'"),),
                            (1, 2),
                            next(iter(Cause)),
                        ),
                    ),
                    proof={"source": {"messages": 3}, "publish_time": False},
                ),
            ),
        ),
    ),
    "in the sample",
)
SUBSCRIPTIONS = SubscriptionVerification(
    "blue",
    "green",
    (
        NamespaceSubscriptions(
            "acme/orders",
            (
                TopicSubscriptions(
                    topic=str(TOPIC),
                    topic_verdict=Verdict.EQUAL,
                    subscriptions=(
                        SubscriptionVerdict(
                            subscription="s",
                            verdict=Verdict.DIFFERENT,
                            unit=Unit.ENTRIES,
                            examples=(Delivery(DeliveryKind.SKIPPED, "1:2", None),),
                            settings=(("type", "Shared", "Exclusive"),),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
BROKERS = BrokerVersions(("4.0.7", "4.0.7"), ("4.0.7", "4.2.4"))

WRITTEN = {
    "reference": REFERENCE.to_json(),
    "call": CHANGE.calls[0].to_json(),
    "plan": Plan(source="blue", target="green", changes=(CHANGE,), left_alone=(ALONE,)).to_json(),
    "plan result": PlanResult("7f3a", "green", (ChangeResult(CHANGE, Outcome.FAILED, "500"),)).to_json(),
    "client": CLIENT.to_json(),
    "partition": PARTITION.to_json(),
    "drain": DRAIN.to_json(),
    "moves": MOVES.to_json(),
    "settings": SETTINGS.to_json(),
    "overrides": OVERRIDES.to_json(),
    "runs": RUNS.to_json(),
    "baseline": BASELINE.to_json(),
    "unfinished proof": UNFINISHED.to_json(),
    "waves": WAVES.to_json(),
    "transferred": TRANSFERRED.to_json(),
    "observation": OBSERVATION.to_json(),
    "versions": VERSIONS.to_json(),
    "finding": FINDING.to_json(),
    "comparison": COMPARISON.to_json(),
    "comparison request": json.loads(CompareRequest(source=REFERENCE, target=REFERENCE).to_bytes()),
    "fleet request": json.loads(DivergenceRequest(snapshots=(REFERENCE,), fleet=("blue", "green")).to_bytes()),
    "request": json.loads(REQUEST.to_bytes()),
    "verification": json.loads(VERIFICATION.to_bytes()),
    "subscriptions": json.loads(SUBSCRIPTIONS.to_bytes()),
    "incident": Incident(
        kind=IncidentKind.FENCED,
        namespace="acme/orders",
        subject="x",
        sentence="It is fenced.",
        remedy=Remedy.UNLOAD,
        topics=("x",),
    ).to_json(),
    "waivers": WaiverResult((FINDING,), ((FINDING, Waiver(id="a", who="b", why="c")),)).to_json(),
    "redirect": RedirectProbe(
        document={"serviceUrl": "http://g:8080"},
        probes=(AddressProbe(key="serviceUrlTls", url="https://g:8443", placeholder=True),),
        advertised=frozenset({"g:2", "g:1"}),
    ).to_json(),
    "brokers": BROKERS.to_json(),
    "cut-over": CutOverResult(
        namespace="acme/orders", cursors=TRANSFERRED.cursors, duplicates={str(TOPIC): 1}, throttled_seconds=0.5
    ).to_json(),
    "clean-up": NamespaceCleanUp(1, 2, Leftovers(("s",), (), ("t",))).to_json(),
    "abort": AbortResult(flags=("acme/orders",), replication=(), overrides=(), removed=("x",), kept=()).to_json(),
    "drift": DRIFT.to_json(),
    "repaired": REPAIRED.to_json(),
    "synchronised": SYNCHRONISED.to_json(),
    "forwarded": FORWARDED.to_json(),
}

DOCUMENTS: dict[str, Any] = json.loads((Path(__file__).parent / "stored_documents.json").read_text())
"""As earlier releases wrote them."""

READ: dict[str, Any] = {
    "reference": REFERENCE,
    "call": CHANGE.calls[0],
    "plan": Plan(source="blue", target="green", changes=(CHANGE,), left_alone=(ALONE,)),
    "client": CLIENT,
    "partition": replace(PARTITION, at=12.346),
    "drain": DRAIN,
    "moves": MOVES,
    "settings": SETTINGS,
    "overrides": OVERRIDES,
    "runs": RUNS,
    "baseline": BASELINE,
    "unfinished proof": UNFINISHED,
    "waves": WAVES,
    "transferred": TRANSFERRED,
    "brokers": BROKERS,
    "versions": VERSIONS,
    "finding": FINDING,
    "comparison": COMPARISON,
    "drift": DRIFT,
    "repaired": REPAIRED,
    "synchronised": SYNCHRONISED,
    "forwarded": FORWARDED,
}
READ_FROM_BYTES: dict[str, Any] = {
    "request": REQUEST,
    "verification": VERIFICATION,
    "subscriptions": SUBSCRIPTIONS,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_has_the_keys_and_values_of_earlier_releases(name: str) -> None:
    assert json.loads(json.dumps(WRITTEN[name])) == DOCUMENTS[name]


@pytest.mark.parametrize("name", READ)
def test_a_stored_document_is_read_as_the_value_that_it_was_written_from(name: str) -> None:
    assert type(READ[name]).from_json(DOCUMENTS[name]) == READ[name]


@pytest.mark.parametrize("name", READ_FROM_BYTES)
def test_a_stored_file_is_read_as_the_value_that_it_was_written_from(name: str) -> None:
    value = READ_FROM_BYTES[name]
    assert type(value).from_bytes(json.dumps(DOCUMENTS[name]).encode()) == value
