"""Every policy that a broker can hold is set on one cluster, carried to another, and read back equal.

What is read back is the brokers' own document, not our comparable form of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.support.broker_plugins import plugin_settings
from tests.support.every_policy import (
    AT_CREATION,
    GLOBAL,
    NAMESPACE_SETTINGS,
    NOT_GLOBAL,
    TOPIC_SETTINGS,
)
from tests.support.fleets import connection
from tests.support.kinds import StartClusters
from tests.support.version_differences import set_all, without_added

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE, Kind, is_supported
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE, Scope, topic_comparable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import PlanResult
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.preflight.checks.policies import EffectiveDifference, effective_differences
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.resources import read_namespace
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader
from pulsar_sandbox import Cluster

pytestmark = pytest.mark.long

# Versions of blue and green. A copy between two clusters of one version is what `make test` shows.
PAIRS = (
    ("4.2.4", "4.2.4"),
    pytest.param(("4.0.7", "4.2.4"), marks=pytest.mark.long),
    pytest.param(("3.0.7", "4.2.4"), marks=pytest.mark.long),
)
REDACTOR = Redactor(b"a key of the tests")
NEW, EXISTING, BARE, LISTED = (NamespaceName("acme", name) for name in ("new", "existing", "bare", "listed"))
EVENTS = "events"

# What the brokers of green do differently after their restart; the documents say the same as before.
OTHER_DEFAULTS = {
    "defaultRetentionTimeInMinutes": "60",
    "ttlDurationDefaultInSeconds": "7200",
    "subscriptionExpirationTimeMinutes": "50",
    "brokerDeduplicationEnabled": "true",
    "maxProducersPerTopic": "77",
    "maxUnackedMessagesPerConsumer": "70",
    "allowAutoTopicCreationType": "partitioned",
    "defaultNumPartitions": "3",
    "schemaCompatibilityStrategy": "BACKWARD",
    "isAllowAutoUpdateSchemaEnabled": "false",
    "subscriptionTypesEnabled": "Exclusive,Shared",
    "dispatchThrottlingRatePerTopicInMsg": "1000",
    "managedLedgerDefaultMarkDeleteRateLimit": "5.0",
    "allowOverrideEntryFilters": "false",
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one cluster holds, in the brokers' own words."""

    namespaces: dict[str, JsonObject]
    topics: dict[str, JsonObject]
    """By scope."""


@dataclass(frozen=True, kw_only=True)
class Carried:
    """Everything set on blue, carried to green, and what was there afterwards."""

    version: str
    """Of blue."""
    plan: Plan
    applied: PlanResult
    blue: Side
    green: Side
    then: Plan
    after_restart: Plan
    differently: tuple[EffectiveDifference, ...]


@pytest.fixture(scope="module", params=PAIRS, ids=" to ".join)
def carried(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[Carried]:
    folder = tmp_path_factory.mktemp("fidelity")
    versions = dict(zip(("blue", "green"), request.param, strict=True))
    plugins = {version: plugin_settings(folder / version, version) for version in set(versions.values())}
    settings = {name: plugins[version] for name, version in versions.items()}
    with start_clusters(folder / "sandbox", version=versions, settings=settings) as sandbox:
        yield asyncio.run(carry(sandbox["blue"], sandbox["green"], Ledger.open(f"sqlite:///{folder / 'ledger.db'}")))


async def carry(blue: Cluster, green: Cluster, ledger: Ledger) -> Carried:
    async with AdminClient(connection(blue)) as source, AdminClient(connection(green)) as target:
        for admin in (source, target):
            await prepare(admin)
        await fill(source, blue.version)
        await target.put("/tenants/acme", {"adminRoles": ["owner"], "allowedClusters": ["green", "third"]})
        await target.put(f"/namespaces/{EXISTING.path}")
        planned = await plan(source, target)
        secrets = await read_secrets(planned, source, REDACTOR)
        allow = [change.id for change in planned.needing_permission()]
        applied = await apply_plan(planned, target, ledger, "run", redactor=REDACTOR, allow=allow, secrets=secrets)
        sides = [await side(admin) for admin in (source, target)]
        then = await plan(source, target)
        await asyncio.to_thread(green.restart, settings=OTHER_DEFAULTS)
        after_restart = await plan(source, target)
        differently = effective_differences(*[await collect(admin, redactor=REDACTOR) for admin in (source, target)])
    return Carried(
        version=blue.version,
        plan=planned,
        applied=applied,
        blue=sides[0],
        green=sides[1],
        then=then,
        after_restart=after_restart,
        differently=differently,
    )


async def prepare(admin: AdminClient) -> None:
    """What policies refer to: a cluster that nobody can reach, and a resource group."""
    nowhere = {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"}
    await admin.put_cluster("third", nowhere)
    await admin.put("/resourcegroups/gold", {"publishRateInMsgs": 1000})


async def fill(admin: AdminClient, version: str) -> None:
    await admin.put("/tenants/acme", {"adminRoles": ["owner"], "allowedClusters": ["blue", "third"]})
    await admin.put(f"/namespaces/{BARE.path}")
    # Without topics: a broker does not load a new one while the other cluster cannot be reached.
    await admin.put(f"/namespaces/{LISTED.path}", {"replication_clusters": ["blue", "third"]})
    for namespace in (NEW, EXISTING):
        await admin.put(f"/namespaces/{namespace.path}", AT_CREATION)
        topic = TopicName(namespace, EVENTS)
        await admin.create_partitioned_topic(topic, 2)
        await set_all(admin, f"/namespaces/{namespace.path}", NAMESPACE_SETTINGS)
        await admin.post(f"/{topic.path}/permissions/writer", ["produce"])
    topic = TopicName(NEW, EVENTS)
    await set_all(admin, f"/{topic.path}", TOPIC_SETTINGS)
    shared = tuple((path, other(body), query) for path, body, query in TOPIC_SETTINGS if path not in NOT_GLOBAL)
    await set_all(admin, f"/{topic.path}", shared, GLOBAL)


def other(body: Json) -> Json:
    """Another value of the same shape, so that the two scopes of a topic cannot be confused."""
    if isinstance(body, dict):
        return {key: value if key.startswith("bookkeeper") else other(value) for key, value in body.items()}
    return body + 1 if isinstance(body, int) and body > 2 else body


async def plan(source: AdminClient, target: AdminClient) -> Plan:
    selection = Selection(tenants=frozenset({"acme"}))
    return plan_changes(*[await collect(admin, selection, redactor=REDACTOR) for admin in (source, target)])


async def side(admin: AdminClient) -> Side:
    namespaces = {name.name: await read_namespace(admin, name, REDACTOR) or {} for name in (NEW, EXISTING, LISTED)}
    async with TopicPolicyReader(admin, REDACTOR) as reader:
        topics = {policies.scope: policies.policies for policies in await reader.read(NEW)}
    return Side(namespaces=namespaces, topics=topics)


def of_green(document: JsonObject) -> Json:
    """A document of blue as green should hold it."""
    return ordered(json.loads(json.dumps(document).replace('"blue"', '"green"')))


def ordered(value: Json) -> Json:
    """Lists in order: brokers give sets in any."""
    if isinstance(value, dict):
        return {key: ordered(inner) for key, inner in value.items()}
    return sorted(map(ordered, value), key=repr) if isinstance(value, list) else value


def fields_of(version: str, *kinds: Kind) -> set[str]:
    return {
        policy.field
        for policy in CATALOGUE
        if policy.comparable and policy.kind not in kinds and is_supported(policy.since, version)
    }


def topic_fields(version: str, scope: Scope) -> set[str]:
    return {
        policy.field for policy in TOPIC_CATALOGUE if policy.is_copied(scope) and is_supported(policy.since, version)
    }


def test_every_policy_of_a_namespace_was_set(carried: Carried) -> None:
    assert set(comparable(carried.blue.namespaces["new"], "blue")) == fields_of(carried.version)


def test_every_section_of_a_policy_was_set(carried: Carried) -> None:
    document = comparable(carried.blue.namespaces["new"], "blue")
    assert {policy.field: tuple(sorted(document[policy.field])) for policy in CATALOGUE if policy.sections} == {
        policy.field: tuple(sorted(policy.sections)) for policy in CATALOGUE if policy.sections
    }


def test_every_change_was_made(carried: Carried) -> None:
    assert [(result.change.label, result.detail) for result in carried.applied.not_in_place()] == []


def test_a_new_namespace_holds_every_policy_of_its_source(carried: Carried) -> None:
    ours = of_green(carried.blue.namespaces["new"])
    assert without_added(ordered(carried.green.namespaces["new"]), ours) == ours


def test_an_existing_namespace_gets_every_policy_but_those_of_its_creation(carried: Carried) -> None:
    fields = fields_of(carried.version, Kind.AT_CREATION) | {"clusterDispatchRate"}
    ours, theirs = (
        {field: document[field] for field in fields}
        for document in (of_green(carried.blue.namespaces["existing"]), ordered(carried.green.namespaces["existing"]))
    )
    assert without_added(theirs, ours) == ours


@pytest.mark.parametrize("scope", list(Scope))
def test_a_topic_holds_every_policy_of_its_source(carried: Carried, scope: Scope) -> None:
    ours, theirs = (document.topics[scope.value] for document in (carried.blue, carried.green))
    assert set(topic_comparable(theirs)) == topic_fields(carried.version, scope)
    # Some setters of Pulsar 3.0 write the local document as the global one, with what no copy writes there.
    left_out = {row.field for row in TOPIC_CATALOGUE if not row.is_copied(scope)}
    ours, theirs = (
        {key: value for key, value in document.items() if key not in left_out} for document in (ours, theirs)
    )
    assert without_added(ordered(theirs), of_green(ours)) == of_green(ours)


def test_a_cluster_list_has_the_new_cluster_in_the_place_of_the_old_one(carried: Carried) -> None:
    assert sorted(carried.green.namespaces["listed"]["replication_clusters"]) == ["green", "third"]


def test_nothing_is_left_to_do(carried: Carried) -> None:
    assert [change.label for change in carried.then.changes] == []


def test_nothing_is_left_to_do_after_a_restart_with_other_defaults(carried: Carried) -> None:
    assert [change.label for change in carried.after_restart.changes] == []


def test_equal_policies_that_brokers_treat_differently_are_told(carried: Carried) -> None:
    named = {
        key for difference in carried.differently if "acme/bare" in difference.namespaces for key in difference.source
    }
    assert named == set(OTHER_DEFAULTS) - {"isAllowAutoUpdateSchemaEnabled", "allowOverrideEntryFilters"}


def test_a_policy_that_one_cluster_switches_off_is_told(carried: Carried) -> None:
    switched = [
        (difference.namespaces, difference.target)
        for difference in carried.differently
        if difference.field == "entryFilters"
    ]
    assert switched == [(("acme/existing", "acme/new"), {"allowOverrideEntryFilters": (False,)})]
