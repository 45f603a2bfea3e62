"""Restore on blue what a migration overrode; every restoration is tried, whatever fails in between."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable, Iterator, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.runs.overrides import PROPERTY, NamespaceOverrides, overrides_in, own_overrides
from pulsar_fleet.cluster.runs.state_topic import read_runs
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import disallow_cluster, topics_with
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Phase, is_reversible
from pulsar_fleet.migration.prepare.brokers import restore_brokers
from pulsar_fleet.migration.prepare.overrides import (
    INACTIVE,
    OriginalSettings,
    release_replication,
    restore_inactive,
    restore_publish_rates,
)

log = logging.getLogger(__name__)


async def restore_blue(
    sides: Sides, run: Run, original: OriginalSettings, *, delete_topics: bool, replicates: bool = False
) -> tuple[str, ...]:
    """Restore what `freeze_blue` and `cut_over` overrode on blue; returns what had to be restored.

    A namespace that another run has taken since is that run's to restore: it is left alone.

    :param delete_topics: let blue delete inactive topics again even after namespaces were cut over.
    :param replicates: blue replicates to green for good: that is no override which somebody has to end.
    :raises PreconditionFailed: a setting could not be restored; all were tried, the message lists the failures.
    """
    async with sides.open() as (blue, _green):
        original = original.without(await _taken_by_others(blue, run, original.namespaces))
        keep = frozenset[str]() if delete_topics else await _cut_over_namespaces(blue, run, original)
        return await restore_original_settings(blue, run.id, original, keep_topics=keep, replicates=replicates)


async def _taken_by_others(blue: AdminClient, run: Run, names: Sequence[NamespaceName]) -> frozenset[str]:
    """Namespaces whose overrides are recorded for another run, unless its lease has expired."""
    documents = await asyncio.gather(*(blue.namespace(name) for name in names), return_exceptions=True)
    records = {
        str(name): record
        for name, document in zip(names, documents, strict=True)
        if not isinstance(document, BaseException) and (record := overrides_in(document or {}))
    }
    others = {name: record.run for name, record in records.items() if record.run != run.id}
    if not others:
        return frozenset()
    runs, now = await read_runs(blue), time.time()
    leases = {name: lease for name in others if (lease := runs.leases.get(name)) and lease.expires > now}
    for name, lease in leases.items():
        log.warning("%s is not restored: the run %s overrides its settings now", name, lease.run)
    return frozenset(leases)


async def _cut_over_namespaces(blue: AdminClient, run: Run, original: OriginalSettings) -> frozenset[str]:
    """Namespaces whose clients are on green, by the ledger or by the cluster: an attempt may have died in between."""
    by_ledger = {entry.namespace for entry in run.ledger.phases(run.id) if not is_reversible(Phase(entry.phase))}
    return frozenset(by_ledger) | await flagged_namespaces(blue, original.namespaces)


async def flagged_namespaces(blue: AdminClient, names: Sequence[NamespaceName]) -> frozenset[str]:
    """Those of the namespaces that are flagged as migrated, or cannot be read; all, if their cluster is flagged."""
    if await redirects_every_topic(blue):
        return frozenset(map(str, names))
    policies = await asyncio.gather(*(blue.namespace(name) for name in names), return_exceptions=True)
    return frozenset(
        str(name)
        for name, document in zip(names, policies, strict=True)
        # A namespace that cannot be read keeps its topics; `restore_original_settings` reports that it cannot be read.
        if isinstance(document, BaseException) or (document or {}).get("migrated")
    )


async def restore_original_settings(
    blue: AdminClient,
    run_id: str,
    original: OriginalSettings,
    *,
    keep_topics: frozenset[str] = frozenset(),
    brokers: bool = True,
    replicates: bool = False,
) -> tuple[str, ...]:
    """Restore original settings where they are still overridden; returns what was, nothing on a second call.

    The record of a namespace is removed when nothing of it is overridden any more.

    :param keep_topics: namespaces whose inactive topics must not be deleted yet.
    :param brokers: restore the settings of the brokers too, if no other live run needs them.
    :param replicates: see `restore_blue`.
    :raises PreconditionFailed: after everything was tried; the message lists what is not restored.
    :raises Unavailable: the cluster did not answer, so that a retry may succeed.
    """
    restored: list[str] = []
    failures: list[FleetError] = []
    await asyncio.gather(
        _run_group([restore_brokers(blue, run_id)] if brokers else [], restored, failures),
        *(
            _restore_namespace(blue, original, name, restored, failures, keep_topics, replicates=replicates)
            for name in original.namespaces
        ),
    )
    await _run_group(_tenants(blue, original), restored, failures)
    if failures:
        listed = "\n".join(f"  {failure}" for failure in failures)
        kind = Unavailable if all(isinstance(failure, Unavailable) for failure in failures) else PreconditionFailed
        raise kind(
            f"{len(failures)} settings of {blue.connection.name} could not be restored ({len(restored)} were). It "
            f"still has the migration's overrides: run this step again, or restore them by hand.\n{listed}",
            cluster=blue.connection.name,
        )
    return tuple(restored)


Restoration = Awaitable[tuple[str, ...]]


async def _restore_namespace(
    blue: AdminClient,
    original: OriginalSettings,
    name: NamespaceName,
    restored: list[str],
    failures: list[FleetError],
    keep_topics: frozenset[str],
    *,
    replicates: bool,
) -> None:
    keep, failed = str(name) in keep_topics, list[FleetError]()
    await _run_group(_policies(blue, original, name, keep=keep), restored, failed)
    if not keep and not failed:
        await _run_group([_remove_record(blue, name, replicates=replicates)], restored, failed)
    failures += failed


async def _run_group(group: Iterable[Restoration], restored: list[str], failures: list[FleetError]) -> None:
    """Run restorations of one owner in sequence: its setters must not overlap. After a failure the rest is tried."""
    for action in group:
        try:
            restored += await action
        except NotFound as error:
            log.warning("nothing to restore: %s", error)
        except FleetError as error:
            failures.append(error)


def _policies(
    blue: AdminClient, original: OriginalSettings, name: NamespaceName, *, keep: bool
) -> Iterator[Restoration]:
    yield restore_publish_rates(blue, name, original)
    yield release_replication(blue, name, original)
    if keep:
        return
    if str(name) in original.inactive:
        yield _restore_inactive(blue, name, original.inactive[str(name)])
    for topic, value in original.own_inactive(name).items():
        yield _restore_inactive(blue, topic, value)


def _tenants(blue: AdminClient, original: OriginalSettings) -> Iterator[Restoration]:
    for tenant, clusters in original.allowed.items():
        if original.green not in clusters:
            yield disallow_cluster(blue, tenant, original.green)


async def _restore_inactive(
    blue: AdminClient, owner: NamespaceName | TopicName, value: JsonObject | None
) -> tuple[str, ...]:
    return (f"{INACTIVE} of {owner}",) if await restore_inactive(blue, owner, value) else ()


async def is_replicating(blue: AdminClient, document: JsonObject, record: NamespaceOverrides) -> bool:
    """Whether the namespace with these policies, or a topic with its own list, still names the cluster of the run."""
    extended = record.original_policies(document)["replication_clusters"] != document.get("replication_clusters")
    # Where brokers redirect the whole cluster the lists of its topics stay as they are: see `end_replication`.
    if not record.topic_replication or await redirects_every_topic(blue):
        return bool(extended)
    topics = map(TopicName.parse, record.topic_replication)
    return bool(extended or await topics_with(blue, record.replicates_to, [*topics]))


async def _remove_record(blue: AdminClient, name: NamespaceName, *, replicates: bool) -> tuple[str, ...]:
    """Remove the record, unless something is still overridden: replication goes on until it is ended."""
    document = await blue.namespace(name) or {}
    record = own_overrides(document, await blue.cluster_name())
    if record is not None and (replicates or not await is_replicating(blue, document, record)):
        await blue.delete(f"/namespaces/{name.path}/property/{PROPERTY}")
    return ()
