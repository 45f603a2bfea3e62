"""The catalogues against Pulsar's own classes: a field or a setter that they do not know makes a test fail."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import pytest
from tests.support.pulsar_classes import ANNOTATED, VERSIONS, javap

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, CATALOGUE, Kind, Policy, is_supported
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, TOPIC_CATALOGUE, TopicPolicy
from pulsar_fleet.cluster.redaction import is_secret_key
from pulsar_fleet.preflight.checks.policies import TOPIC_POLICY_SWITCHES

pytestmark = pytest.mark.versions

DATA = "org.apache.pulsar.common.policies.data"
RESOURCES = "org.apache.pulsar.broker.admin.v2"
FIELD = re.compile(r"^\s+(?!.*\bstatic\b)[^(]*?(\w+);$", re.MULTILINE)
CONSTANT = re.compile(r"^\s+public static final \S+ ([a-z_]+);$", re.MULTILINE)
ROUTE = re.compile(r"(?:javax|jakarta)\.ws\.rs\.Path\(\s*value=\"/\{\w+\}/\{\w+\}/(?:\{topic\}/)?([^\"]+)\"")
WRITES = re.compile(r"(?:javax|jakarta)\.ws\.rs\.(PUT|POST)\b")
QUOTA_TYPES = "BacklogQuota$BacklogQuotaType"
# What a resource offers besides policies: actions, and what has a place of its own in a snapshot.
NAMESPACE_ACTIONS = {
    *("unload", "clearBacklog", "clearBacklog/{subscription}", "unsubscribe/{subscription}", "migration"),
    *("{bundle}/unload", "{bundle}/split", "{bundle}/clearBacklog", "{bundle}/clearBacklog/{subscription}"),
    *("{bundle}/unsubscribe/{subscription}", "{bundle}/clearSubscriptionBacklog/{subscription}"),
}
TOPIC_ACTIONS = {
    "{topic}",
    *(
        "partitions",
        "properties",
        "permissions/{role}",
        "createMissedPartitions",
        "compaction",
        "offload",
        "backlogSize",
    ),
    *("terminate", "terminate/partitions", "trim", "unload", "all_subscription/expireMessages/{expireTimeInSeconds}"),
}
# What has no row of its own → the first version that has it.
SINCE = {
    "migration": "4.0",
    "delayedDeliveryMaxDelayInMillis": "4.0",
    "{bundle}/clearSubscriptionBacklog/{subscription}": "5.0",
}
# Other ways to set what a row of the catalogue sets.
NAMESPACE_PARTS = {
    "permissions/{role}": "auth_policies",
    "permissions/subscription/{subscription}": "auth_policies",
    "resourcegroup/{resourcegroup}": "resource_group_name",
    "property/{key}/{value}": "properties",
    "offloadThreshold": "offload_policies",
    "offloadThresholdInSeconds": "offload_policies",
    "offloadDeletionLagMs": "offload_policies",
}

Row = TypeVar("Row", Policy, TopicPolicy)


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shapes(version: str) -> dict[str, str]:
    """What `javap` prints of the classes of documents, by class."""
    names = ("Policies", "LocalPolicies", "TopicPolicies", "SubscriptionPolicies", "OffloadPoliciesImpl", QUOTA_TYPES)
    shown = javap(version, *(f"{DATA}.{name}" for name in names))
    return dict(zip(names, shown.split("Compiled from")[1:], strict=True))


@pytest.fixture(scope="module")
def routes(version: str) -> dict[str, set[str]]:
    """Routes below a namespace and a topic that take PUT or POST, by resource."""
    names = ("Namespaces", "PersistentTopics")
    shown = javap(version, "-v", *(f"{RESOURCES}.{name}" for name in names))
    return {name: setters(text) for name, text in zip(names, shown.split("Compiled from")[1:], strict=True)}


def fields(shown: str) -> set[str]:
    return set(FIELD.findall(shown))


def setters(shown: str) -> set[str]:
    blocks = (block.partition("RuntimeVisibleParameterAnnotations")[0] for block in shown.split(ANNOTATED)[1:])
    matches = (ROUTE.search(block) for block in blocks if WRITES.search(block))
    return {route[1] for route in matches if route}


def at(version: str, rows: Iterable[Row]) -> list[Row]:
    return [policy for policy in rows if is_supported(policy.since, version)]


def named_at(version: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if is_supported(SINCE.get(name, ""), version)}


def test_every_field_of_a_namespaces_document_is_in_the_catalogue(shapes: dict[str, str], version: str) -> None:
    catalogued = {policy.field for policy in at(version, CATALOGUE) if policy.kind is not Kind.LOCAL}
    assert fields(shapes["Policies"]) == catalogued


def test_every_setting_that_a_cluster_keeps_for_itself_is_in_it(shapes: dict[str, str], version: str) -> None:
    ours = {"bookieAffinityGroup": "bookie_affinity", "namespaceAntiAffinityGroup": "anti_affinity"}
    kept = {ours.get(field, field) for field in fields(shapes["LocalPolicies"])}
    assert kept == {policy.field for policy in at(version, CATALOGUE) if policy.own}


def test_every_field_of_a_topics_document_is_in_the_catalogue(shapes: dict[str, str], version: str) -> None:
    catalogued = {field for policy in at(version, TOPIC_CATALOGUE) for field in policy.fields or (policy.field,)}
    assert fields(shapes["TopicPolicies"]) == named_at(version, catalogued)
    assert fields(shapes["SubscriptionPolicies"]) == {"dispatchRate"}


def test_every_type_of_backlog_quota_is_in_the_catalogues(shapes: dict[str, str]) -> None:
    types = set(CONSTANT.findall(shapes[QUOTA_TYPES]))
    assert types == set(BY_FIELD["backlog_quota_map"].sections) == set(TOPIC_BY_FIELD["backLogQuotaMap"].sections)


def test_every_secret_of_a_document_is_in_the_catalogues(shapes: dict[str, str]) -> None:
    secrets = {field for field in fields(shapes["OffloadPoliciesImpl"]) if is_secret_key(field)}
    assert secrets == set(BY_FIELD["offload_policies"].secrets) == set(TOPIC_BY_FIELD["offloadPolicies"].secrets)


def test_every_setter_of_a_namespace_is_in_the_catalogue(routes: dict[str, set[str]], version: str) -> None:
    catalogued = {policy.path for policy in at(version, CATALOGUE)} - {"", "permissions", "resourcegroup"}
    assert routes["Namespaces"] == catalogued | named_at(version, NAMESPACE_ACTIONS) | set(NAMESPACE_PARTS)
    assert set(NAMESPACE_PARTS.values()) <= set(BY_FIELD)


def test_every_setter_of_a_topic_is_in_the_catalogue(routes: dict[str, set[str]], version: str) -> None:
    offered = {route for route in routes["PersistentTopics"] if not route.startswith("subscription/")}
    catalogued = {policy.path.replace("{subscription}", "{subName}") for policy in at(version, TOPIC_CATALOGUE)} - {""}
    assert offered == catalogued | TOPIC_ACTIONS


async def test_every_broker_default_is_a_setting_of_the_broker(on_blue: AdminClient) -> None:
    configuration, version = await on_blue.runtime_configuration(), await on_blue.version()
    named = {policy.broker_default for policy in (*at(version, CATALOGUE), *at(version, TOPIC_CATALOGUE))}
    keys = {
        key for setting in named for key in ([setting] if isinstance(setting, str) else [key for _, key in setting])
    } - {""}
    switches = {key for policy in CATALOGUE for key in policy.needs}
    keys = named_at(version, keys)
    assert sorted((keys | switches | set(TOPIC_POLICY_SWITCHES)) - set(configuration)) == []
