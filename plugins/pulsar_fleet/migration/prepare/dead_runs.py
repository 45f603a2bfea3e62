"""What a run that died left on a cluster: find it by the cluster's own records, and restore it without the ledger."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import without_nulls
from pulsar_fleet.cluster.runs.leases import ClusterRuns, Lease
from pulsar_fleet.cluster.runs.overrides import NamespaceOverrides, own_overrides
from pulsar_fleet.cluster.runs.state_topic import read_runs, update_runs
from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.links.cluster_lists import end_replication
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.prepare.restore import flagged_namespaces, is_replicating, restore_original_settings

log = logging.getLogger(__name__)

_POLICIES = {
    "publishMaxMessageRate": "publish rate",
    "inactive_topic_policies": "inactive-topic policies",
    "replication_clusters": "replication",
    "replicatorDispatchRate": "dispatch rate of replicators",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftNamespace(Document):
    """A namespace that a run changed last, and what is still overridden in it.

    :param until: when its lease ends or ended; empty where a run gave it up.
    :param is_live: the run has its lease, so that it may still work.
    :param flagged: its clients are redirected: topics that pattern consumers read must not be deleted yet.
    """

    name: str
    run: str
    until: str
    is_live: bool
    flagged: bool
    overridden: tuple[str, ...]

    def text(self) -> str:
        """A line for people."""
        state = f"has a lease until {self.until}" if self.is_live else f"had a lease until {self.until}"
        left = f"overridden: {', '.join(self.overridden)}" if self.overridden else "nothing is overridden"
        run = f"; the run {self.run} {state if self.until else 'has ended'}" if self.run else ""
        return f"{self.name}: {left}{run}{'; migrated' if self.flagged else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOverrides(Document):
    """What runs have left on a cluster, or hold at present.

    :param settings: settings of the brokers that are overridden.
    :param freezing: the live runs for which they are.
    """

    cluster: str
    namespaces: tuple[LeftNamespace, ...] = ()
    settings: tuple[str, ...] = ()
    freezing: tuple[str, ...] = ()

    @property
    def dead(self) -> tuple[LeftNamespace, ...]:
        """Namespaces whose run has lost its lease."""
        return tuple(namespace for namespace in self.namespaces if not namespace.is_live)

    @property
    def needs_restoration(self) -> bool:
        """Whether a dead run left something."""
        return bool(self.dead) or bool(self.settings and not self.freezing)

    def text(self) -> str:
        """Lines for people."""
        if not (self.namespaces or self.settings):
            return f"{self.cluster}: no run has left anything."
        lines = [f"  {namespace.text()}" for namespace in self.namespaces]
        if self.settings:
            users = ", ".join(self.freezing) or "no live run"
            lines.append(f"  brokers: {', '.join(self.settings)} overridden for {users}")
        return "\n".join([f"{self.cluster}:", *lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Document):
    """What was restored on a cluster, and what was left on purpose.

    :param replicating: namespaces that still replicate to the cluster to which their run was copying them.
    :param migrated: those of them that are migrated: only their run ends it, since entries may wait to be copied.
    :param draining: migrated namespaces because of which settings of the brokers were not restored.
    """

    cluster: str
    restored: tuple[str, ...] = ()
    replicating: tuple[str, ...] = ()
    migrated: tuple[str, ...] = ()
    draining: tuple[str, ...] = ()

    def text(self) -> str:
        """Lines for people."""
        lines = [f"Restored on {self.cluster}: {', '.join(self.restored) or 'nothing was overridden any more'}."]
        if self.migrated:
            lines.append(
                f"Still replicating, and migrated: {', '.join(self.migrated)}. The last entries may not be copied yet. "
                "Continue the run, which verifies the copy and then ends the replication."
            )
        if copying := [name for name in self.replicating if name not in self.migrated]:
            lines.append(
                f"Still replicating: {', '.join(copying)}. A run that is continued needs this, since what is "
                "published while replication is off is never copied. To give the run up: "
                f"{command_line('restore', self.cluster, '--end-replication')}."
            )
        if self.draining:
            lines.append(
                f"Load shedding and bundle splits stay off: {', '.join(self.draining)} may have a backlog, and a topic "
                "that is unloaded now cannot be read any more. Continue the run. If consumers have read everything: "
                f"{command_line('restore', self.cluster)}."
            )
        return "\n".join(lines)


async def find_overrides(admin: AdminClient, *, ended: str = "", namespaces: Sequence[str] = ()) -> LeftOverrides:
    """What runs have left on a cluster: a call for each of their namespaces. Changes nothing.

    Nothing, where the whole cluster is redirected: an unloaded topic, or a policy of one, would do harm there.

    :param ended: id of a run that a person knows to have ended, though it still has a lease.
    :param namespaces: more namespaces: a migration that succeeded leaves overrides on purpose, without a lease.
    """
    if await redirects_every_topic(admin):
        return LeftOverrides(cluster=admin.connection.argument)
    runs, now, own = await read_runs(admin), time.time(), await admin.cluster_name()
    names = [NamespaceName.parse(text) for text in sorted({*runs.leases, *namespaces})]
    documents = await asyncio.gather(*(admin.namespace(name) for name in names))
    left = tuple(
        _left(str(name), runs.leases.get(str(name)), document or {}, own, now=now, ended=ended)
        for name, document in zip(names, documents, strict=True)
    )
    return LeftOverrides(
        cluster=admin.connection.argument,
        namespaces=left,
        settings=tuple(runs.brokers.dynamic) if runs.brokers else (),
        freezing=runs.freezing(now, besides=ended),
    )


async def restore_overrides(
    admin: AdminClient,
    *,
    ended: str = "",
    namespaces: Sequence[str] = (),
    stop_replication: bool = False,
    delete_inactive_topics: bool = False,
    unattended: bool = False,
) -> Restored:
    """Restore what dead runs left, and remove their leases; a second call changes nothing.

    Values that somebody else has set since stay. A migrated namespace keeps its inactive-topic policies: consumers that
    subscribe by pattern would lose topics on the other cluster. Replication goes on, because a run that is continued
    needs it, and what is published while it is off is never copied.

    :param ended: as for `find_overrides`; `namespaces` too.
    :param delete_inactive_topics: restore the inactive-topic policies of migrated namespaces too.
    :param stop_replication: end the replication of namespaces that are not migrated too: their run is given up.
    :param unattended: nobody has decided it: beside a migrated namespace, whose backlog may not be read yet, settings
        of the brokers stay, and so do its leases. A topic that is unloaded then cannot be loaded again.
    :raises PreconditionFailed: a value could not be restored; all were tried, and the lease stays.
    """
    if await redirects_every_topic(admin):
        return Restored(cluster=admin.connection.argument)
    left = await find_overrides(admin, ended=ended, namespaces=namespaces)
    records = await _records(admin, [namespace.name for namespace in left.dead])
    original = OriginalSettings.recorded(records)
    # A live run may be about to replicate another namespace of the tenant.
    busy = {NamespaceName.parse(namespace.name).tenant for namespace in left.namespaces if namespace.is_live}
    allowed = {tenant: clusters for tenant, clusters in original.allowed.items() if tenant not in busy}
    original = replace(original, allowed=allowed)
    flagged = frozenset(namespace.name for namespace in left.dead if namespace.flagged)
    if stop_replication:
        for name, record in records.items():
            if name not in flagged:
                await _end_replication(admin, name, record)
    kept = flagged if unattended else frozenset[str]()
    keep = frozenset[str]() if delete_inactive_topics else flagged
    restored = await restore_original_settings(admin, ended, original, keep_topics=keep, brokers=not kept)
    replicating = await _replicating(admin, records)
    await _remove_leases(admin, frozenset(namespace.name for namespace in left.dead) - kept, ended)
    return Restored(
        cluster=admin.connection.argument,
        restored=restored,
        replicating=replicating,
        migrated=tuple(name for name in replicating if name in flagged),
        draining=tuple(sorted(kept)),
    )


async def restore_kept_policies(admin: AdminClient, namespaces: Sequence[str]) -> tuple[str, ...]:
    """Restore what an earlier move away from this cluster kept overridden in namespaces that are back on it.

    A namespace that a run has at present is left alone.
    """
    records = await _records(admin, namespaces)
    leases, now = (await read_runs(admin)).leases if records else {}, time.time()
    free = {name: record for name, record in records.items() if name not in leases or leases[name].expires <= now}
    original = OriginalSettings.recorded(free)
    flagged = await flagged_namespaces(admin, original.namespaces)
    return await restore_original_settings(admin, "", original, keep_topics=flagged, brokers=False)


async def _records(admin: AdminClient, namespaces: Sequence[str]) -> dict[str, NamespaceOverrides]:
    own = await admin.cluster_name()
    documents = await asyncio.gather(*(admin.namespace(NamespaceName.parse(name)) for name in namespaces))
    records = {name: own_overrides(document or {}, own) for name, document in zip(namespaces, documents, strict=True)}
    return {name: record for name, record in records.items() if record}


async def _replicating(admin: AdminClient, records: Mapping[str, NamespaceOverrides]) -> tuple[str, ...]:
    """Of namespaces with a record, those that still replicate to the cluster that their run added."""
    replicating = []
    for name, record in records.items():
        document = await admin.namespace(NamespaceName.parse(name)) or {}
        if await is_replicating(admin, document, record):
            replicating.append(name)
    return tuple(replicating)


def _overridden_policies(document: Mapping[str, Json], record: NamespaceOverrides) -> tuple[str, ...]:
    """Names of the namespace's policies that still have a run's override."""
    original = record.original_policies(dict(document))
    return tuple(
        text
        for key, text in _POLICIES.items()
        if without_nulls(original.get(key) or None) != without_nulls(document.get(key) or None)
    )


def _left(
    name: str, lease: Lease | None, document: Mapping[str, Json], own: str, *, now: float, ended: str
) -> LeftNamespace:
    record = own_overrides(document, own)
    run = lease or record
    return LeftNamespace(
        name=name,
        run=run.run if run else "",
        until=lease.until() if lease else "",
        is_live=lease is not None and _is_live(lease, now, ended),
        flagged=bool(document.get("migrated")),
        overridden=_overridden_policies(document, record) if record else (),
    )


def _is_live(lease: Lease, now: float, ended: str) -> bool:
    return lease.expires > now and lease.run != ended


async def _end_replication(admin: AdminClient, name: str, record: NamespaceOverrides) -> None:
    namespace, own = NamespaceName.parse(name), await admin.cluster_name()
    topics = OriginalSettings.recorded({name: record}).own_lists(namespace)
    await end_replication(admin, own, namespace, record.replicates_to, record.replication, topics)


async def _remove_leases(admin: AdminClient, names: frozenset[str], ended: str) -> None:
    async def remove(runs: ClusterRuns) -> ClusterRuns:
        # A run may have renewed its lease, or another may have taken the namespace, in the meantime.
        now = time.time()
        kept = {name: lease for name, lease in runs.leases.items() if name not in names or _is_live(lease, now, ended)}
        return ClusterRuns(leases=kept, brokers=runs.brokers)

    if names:
        await update_runs(admin, remove)
