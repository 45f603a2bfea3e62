"""The table of refused values on real brokers: each is refused with its sentence, its equivalent is not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.support.remedies import calls, send

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, is_supported
from pulsar_fleet.cluster.policies.refusals import REFUSALS, Equivalent, Level, Refusal, Setting
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE, Scope, topic_policy_calls
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot

REDACTOR = Redactor(b"0123456789abcdef")
DRIVER = "managedLedgerOffloadDriver"


def retention(minutes: int, megabytes: int) -> dict[str, int]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def persistence(*copies: int) -> dict[str, int]:
    keys = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
    return {**dict(zip(keys, copies, strict=True)), "managedLedgerMaxMarkDeleteRate": 0}


def creation(kind: str, **number: int) -> dict[str, Any]:
    return {"allowAutoTopicCreation": True, "topicType": kind, **number}


EXAMPLES: dict[str, tuple[Any, ...]] = {
    "retention_policies": (retention(0, 100), retention(100, 0), retention(-1, 0), retention(-2, 5), retention(5, -2)),
    "persistence": (persistence(0, 0, 0), persistence(1, 2, 1), persistence(2, 1, 2), persistence(1, 1, 0)),
    "autoTopicCreationOverride": (
        creation("partitioned", defaultNumPartitions=0),
        creation("non-partitioned", defaultNumPartitions=2),
    ),
    "offload_policies": ({DRIVER: "other"}, {DRIVER: "aws-s3"}, {DRIVER: "azureblob"}),
    "entryFilters": ({"entryFilterNames": ""},),
    "maxMessageSize": (-1, 1 << 30),
}
"""Values that a rule refuses without another policy; of all other rules: -1."""


@dataclass(frozen=True)
class Place:
    """A namespace with a topic on one cluster."""

    admin: AdminClient
    name: NamespaceName

    @property
    def topic(self) -> TopicName:
        return TopicName(self.name, "feed")

    async def make(self, **policies: Any) -> None:
        own = await self.admin.cluster_name()
        await self.admin.put(f"/tenants/{self.name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        await self.admin.put_namespace(self.name, {"replication_clusters": [own], **policies})
        await self.admin.create_topic(self.topic)

    async def set(self, rule: Refusal, level: Level, value: Any) -> None:
        """Set the policy of the namespace or the topic by its setter."""
        if level is Level.NAMESPACE:
            calls = policy_calls(BY_FIELD[rule.field], self.name, None, value)
        else:
            row = next(row for row in TOPIC_CATALOGUE if rule.field in (row.namespace_field, row.field))
            calls = topic_policy_calls(row, self.topic, Scope.LOCAL, None, value)
        for call in calls:
            await self.admin.send(call)


def _examples(rule: Refusal, level: Level) -> tuple[Any, ...]:
    without_driver = ({},) if level is Level.TOPIC and rule.field == "offload_policies" else ()
    return (*EXAMPLES.get(rule.field, (-1,)), *without_driver)


def _rows() -> list[tuple[Refusal, Level, Any]]:
    topics = {name for row in TOPIC_CATALOGUE for name in (row.namespace_field, row.field)}
    return [
        (rule, level, value)
        for rule in REFUSALS
        if not rule.compared
        for level in sorted(rule.levels)
        if level is Level.NAMESPACE or rule.field in topics
        for value in _examples(rule, level)
        if rule.refuses(Setting(level=level, value=value, inherited=1 << 20))
    ]


async def test_every_refused_value_is_refused_and_its_equivalent_accepted(
    on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    place = Place(on_green, new_namespace())
    await place.make()
    seen = set()
    for rule, level, value in _rows():
        with pytest.raises(InvalidRequest) as refusal:
            await place.set(rule, level, value)
        words = {word for word in rule.says.split() if word.isalpha()}
        said = [word for word in words if word in str(refusal.value)]
        assert value == -1 or len(said) >= len(words) / 2, (rule.says, str(refusal.value))
        equivalent = rule.equivalent(Setting(level=level, value=value))
        if equivalent:
            await place.set(rule, level, equivalent.value)
        seen.add(rule)
    assert seen == {rule for rule in REFUSALS if not rule.compared}


@pytest.mark.parametrize("level", sorted(Level))
@pytest.mark.parametrize(
    ("kept", "kind", "limits"),
    [
        (retention(10, 10), "destination_storage", (10 << 20, -1)),
        (retention(10, 10), "destination_storage", ((10 << 20) - 1, -1)),
        (retention(10, 10), "destination_storage", (-1, -1)),
        (retention(10, -1), "destination_storage", (10 << 20, 600)),
        (retention(-1, 10), "destination_storage", (1, 600)),
        (retention(10, 10), "message_age", (-1, 600)),
        (retention(10, 10), "message_age", (-1, 599)),
        (retention(0, 0), "destination_storage", (10 << 20, 600)),
    ],
)
async def test_a_quota_is_compared_with_the_retention_as_brokers_do(
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    level: Level,
    kept: dict[str, int],
    kind: str,
    limits: tuple[int, int],
) -> None:
    quotas = {kind: {"limitSize": limits[0], "limitTime": limits[1], "policy": "producer_exception"}}
    place, rules = Place(on_green, new_namespace()), {rule.field: rule for rule in REFUSALS if rule.compared}
    # A topic's quota is compared with the retention of its namespace too.
    await place.make(retention_policies=kept)
    effective = {"retention_policies": kept, "backlog_quota_map": quotas}
    setting = Setting(level=level, value=quotas, effective=effective)
    refused = rules["backlog_quota_map"].refuses(setting)
    with pytest.raises(InvalidRequest, match="exceeds configured retention") if refused else nullcontext():
        await place.set(rules["backlog_quota_map"], level, quotas)


@dataclass(frozen=True)
class Copied:
    """A namespace of blue that is copied to green."""

    source: Place
    target: AdminClient

    async def snapshots(self) -> list[Snapshot]:
        chosen = Selection(namespaces=frozenset({self.source.name}))
        return [await collect(admin, chosen, redactor=REDACTOR) for admin in (self.source.admin, self.target)]

    async def findings(self) -> dict[str, Finding]:
        findings = check_compatibility(*await self.snapshots())
        return {row.id: row for row in findings if row.resource not in ("cluster blue", "cluster green")}

    async def apply(self, ledger: Ledger) -> None:
        """Make green equal; it fails where the broker refuses a change."""
        plan = plan_changes(*await self.snapshots())
        applied = await apply_plan(plan, self.target, ledger, "copy", redactor=REDACTOR)
        assert [result.detail for result in applied.not_in_place()] == []


@pytest.fixture
async def copied(on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]) -> Copied:
    place = Place(on_blue, new_namespace())
    await place.make()
    return Copied(place, on_green)


@pytest.mark.versions
async def test_what_an_old_source_holds_is_named_with_its_equivalent(copied: Copied, tmp_path: Any) -> None:
    """Retention of 0 min with 100 MB: brokers of 3.0 store it for a topic; later ones refuse it themselves."""
    ledger = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}")
    rule = next(rule for rule in REFUSALS if rule.field == "retention_policies")
    version = await copied.source.admin.version()
    if rule.applies(Level.TOPIC, version):
        with pytest.raises(InvalidRequest):
            await copied.source.set(rule, Level.TOPIC, retention(0, 100))
    else:
        await copied.source.set(rule, Level.TOPIC, retention(0, 100))
        finding = (await copied.findings())["value-refused"]
        assert (finding.source, finding.target) == (retention(0, 100), None)
        for _, call in calls(finding.call):
            await send(copied.source.admin, call)
    assert "value-refused" not in await copied.findings()
    await copied.apply(ledger)


@pytest.mark.versions
async def test_a_tenant_without_the_spaced_role_is_copied(copied: Copied, tmp_path: Any) -> None:
    tenant = f"/tenants/{copied.source.name.tenant}"
    spaced = {"adminRoles": ["auditor "], "allowedClusters": ["blue"]}
    if is_supported("4.0", await copied.source.admin.version()):
        with pytest.raises(InvalidRequest, match="whitespace in the beginning or end"):
            await copied.source.admin.post(tenant, spaced)
    else:
        await copied.source.admin.post(tenant, spaced)
        assert (await copied.findings())["admin-role-refused"].source == ["auditor "]
        await copied.source.admin.post(tenant, {**spaced, "adminRoles": []})
    assert "admin-role-refused" not in await copied.findings()
    await copied.apply(Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}"))


def test_equal_values_are_never_offered_where_another_layer_offloads() -> None:
    rule = next(rule for rule in REFUSALS if rule.field == "offload_policies")
    setting = Setting(level=Level.TOPIC, value={"managedLedgerOffloadThresholdInBytes": 1})
    assert rule.equivalent(setting) == Equivalent(None)
    assert rule.equivalent(replace(setting, inherited={DRIVER: "filesystem"})) is None
