"""Broker settings that remedies print exist, their values are accepted, and where a broker has them nothing is said."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from tests.support.kinds import StartClusters
from tests.support.snapshots import Clusters, full_pair
from tests.unit.migration import test_gates as gates
from tests.unit.preflight import test_compatibility as compatibility

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.migration.preflight.gates.brokers import (
    migration_check_runs_on_every_broker,
    resources_are_not_created_by_the_broker,
)
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.collect import collect

_PRINTED = re.compile(r"\b([a-z]\w+[A-Z]\w*)=(\w+)")
_NAMED = re.compile(r"\b([a-z]+(?:[A-Z][a-zA-Z]+)+)\b")
_POSTED = re.compile(r"/brokers/configuration/(\w+)/(\w+)")
_NOT_OF_BROKERS = frozenset({"nettyMaxFrameSizeBytes", "storageSize", "allowedClusters", "adminRoles", "clusterName"})


@cache
def findings() -> tuple[Finding, ...]:
    """Every finding that the faults of the unit tests produce, in both directions."""
    return tuple(_findings())


def _findings() -> Iterator[Finding]:
    for spoil in [row[0] for row in compatibility.FAULTS] + [row[1] for row in compatibility.PIP_433]:
        pair = spoil(full_pair())
        yield from compatibility.check(pair)
        yield from compatibility.check(pair.swapped())
    for _, spoil_view in gates.FAULTS:
        yield from gates.check(spoil_view(gates.view()))


def restarting() -> dict[str, str]:
    """Setting → value, of remedies that change broker.conf."""
    texts = [finding.remedy for finding in findings() if "broker.conf" in finding.remedy]
    return dict(pair for text in texts for pair in _PRINTED.findall(text))


async def test_just_the_settings_that_need_a_restart_are_not_dynamic(
    on_green: AdminClient,
) -> None:
    runtime, dynamic = await on_green.runtime_configuration(), set(await on_green.get("/brokers/configuration"))
    static = restarting()
    assert {"topicLevelPoliciesEnabled", "clusterMigrationCheckDurationSeconds", "managedLedgerMaxEnsembleSize"} <= set(
        static
    )
    assert set(static) - set(runtime) == set()
    assert set(static) & dynamic == set()
    for key, value in static.items():
        if key == "messagingProtocols":
            assert value.replace(",", "").isalpha(), value
        else:
            assert value in ("true", "false") if runtime[key] in ("true", "false") else value.isdigit(), key
    posted = dict(pair for finding in findings() for pair in _POSTED.findall(finding.call))
    assert set(posted) == {"maxTenants", "maxNamespacesPerTenant", "maxNumPartitionsPerPartitionedTopic"}
    assert set(posted) <= dynamic
    named = {name for finding in findings() if "Restart no broker" in finding.remedy for name in _named(finding)}
    assert named - set(runtime) - _NOT_OF_BROKERS == set()


def _named(finding: Finding) -> list[str]:
    return _NAMED.findall(finding.remedy)


def test_every_remedy_with_a_restart_says_when_no_broker_may_be_restarted() -> None:
    texts = {finding.id: finding.remedy for finding in findings()}
    silent = {id_ for id_, text in texts.items() if "restart them" in text and "Restart no broker" not in text}
    assert silent == set()


@pytest.mark.long
async def test_a_broker_starts_with_every_printed_value_and_then_nothing_is_said(
    tmp_path_factory: pytest.TempPathFactory,
    start_clusters: StartClusters,
) -> None:
    # Ensembles of other faults are wider than the one that this setting is printed for.
    settings = {**restarting(), "isSchemaValidationEnforced": "true", "managedLedgerMaxEnsembleSize": "5"}
    # A broker starts with it where the handler is installed, which its remedy says first.
    settings.pop("messagingProtocols")
    own = {key: value for key, value in settings.items() if not key.startswith("auth")}
    folder = tmp_path_factory.mktemp("advised")
    with start_clusters(folder, clusters=("green",), secure=True, settings={"green": own}) as sandbox:
        cluster = sandbox["green"]
        connection = ClusterConnection(
            name="green",
            admin_url=cluster.admin_url,
            service_url=cluster.service_url,
            token=cluster.token("admin"),
            tls_trust_file=cluster.trust_file,
        )
        async with AdminClient(connection) as admin:
            runtime = await admin.runtime_configuration()
            assert {key: runtime[key] for key in settings} == settings
            await _check_enforcement(admin)
            real = await collect(admin, Selection(tenants=frozenset({"team"})), redactor=Redactor(b"0123456789abcdef"))
    assert _still_said(real.brokers[0].configuration, settings) == set()


def _still_said(configuration: dict[str, str], settings: dict[str, str]) -> set[str]:
    """Findings about these settings in the faults, where each broker has what the remedies print."""

    def advised(pair: Clusters) -> Clusters:
        sides = []
        for side in (pair.source, pair.target):
            brokers = [
                replace(broker, configuration={**broker.configuration, **{key: configuration[key] for key in settings}})
                for broker in side.brokers
            ]
            sides.append(replace(side, brokers=tuple(brokers)))
        return Clusters(sides[0], sides[1], pair.probes)

    ids = {
        finding.id
        for spoil in [row[0] for row in compatibility.FAULTS] + [row[1] for row in compatibility.PIP_433]
        for finding in compatibility.check(advised(spoil(full_pair())))
        if "broker.conf" in finding.remedy and any(key in finding.remedy for key in settings)
    }
    view = gates.view()
    blue = view.blue.snapshot
    brokers = tuple(replace(broker, configuration=configuration) for broker in blue.brokers)
    ready = gates.with_blue(view, snapshot=replace(blue, brokers=brokers))
    gate_findings = [*migration_check_runs_on_every_broker(ready), *resources_are_not_created_by_the_broker(ready)]
    return ids | {finding.id for finding in gate_findings}


async def _check_enforcement(admin: AdminClient) -> None:
    """A namespace whose policy does not enforce validation, on brokers that do."""
    name = NamespaceName("team", "orders")
    topic = TopicName(name, "events")
    await admin.put("/tenants/team", {"adminRoles": [], "allowedClusters": ["green"]})
    await admin.put_namespace(name, {"replication_clusters": ["green"]})
    await admin.create_topic(topic)
    await admin.post_schema(topic, {"type": "STRING", "schema": "", "properties": {}})
    assert not (await admin.namespace(name) or {})["schema_validation_enforced"]
    client = open_client(admin.connection, 10)
    with pytest.raises(Exception, match="IncompatibleSchema"):
        await asyncio.to_thread(client.create_producer, str(topic))
    await asyncio.to_thread(client.close)
