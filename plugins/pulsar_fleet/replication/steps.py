"""The steps of setting up, changing and ending replication, in the order of the DAG; each can be repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, PlanOutdated, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import wait_ended
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.preflight.bookies import read_bookies
from pulsar_fleet.preflight.findings import Finding, Planned, blockers_first
from pulsar_fleet.preflight.waivers import accept, apply_waivers
from pulsar_fleet.replication.clusters import Clusters, wrong_addresses
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.checks import (
    NEVER,
    Observations,
    check_replication,
    notes,
    topics_under_quotas,
    topics_with_history,
)
from pulsar_fleet.replication.setup.departure import (
    cluster_data_in_use,
    cluster_data_of,
    connected_producers,
    ending_links,
    growing_topic_lists,
    lists_of,
    require_lists_kept,
    tenants_in_use,
    tenants_of,
    unsent,
)
from pulsar_fleet.replication.setup.links import (
    ConfirmedLinks,
    StartedLink,
    confirm_links,
    copy_history,
    never_used,
    partitions_of,
    require_unused,
    stored_bytes,
)
from pulsar_fleet.replication.setup.plan import ReplicationPlan, changed_lists, described
from pulsar_fleet.replication.setup.stages import plan_replication, selected
from pulsar_fleet.replication.topology import Link
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.resources import read_clusters_in_effect

CONTENTS, STARTS, ENDS = "contents", "starts", "ends"
CONFIRM_SECONDS = 60.0
_MOST_SHOWN = 20
Progress = Callable[[int, int], None]


async def plan(clusters: Clusters, request: Request) -> Planned[ReplicationPlan]:
    """Read every cluster, check every link, and plan what each lacks; nothing is changed.

    Calls: those of a snapshot of each cluster, and one for its bookies; where a cluster leaves, the statistics of its
    topics, which loads them; with history, those of topics that exist already or are under a backlog quota.

    :raises NotFound: a selected namespace or topic exists on no member.
    :raises InvalidRequest: a waiver that matches no blocker.
    """
    planned, findings = await _examine(clusters, request)
    return described(planned, accept(findings, request.waivers, NEVER))


async def _examine(clusters: Clusters, request: Request) -> tuple[ReplicationPlan, tuple[Finding, ...]]:
    redactor = open_redactor()
    snapshots = await _snapshots(clusters, request, redactor)
    _require_present(snapshots, clusters, request)
    data = {name: admin.connection.cluster_data() for name, admin in clusters.admins.items()}
    shown = {name: redactor.redact(document) for name, document in data.items()}
    planned = plan_replication(snapshots, clusters.topology, request, shown, redactor.secrets(data))
    observations = Observations(
        wrong_addresses=await wrong_addresses(snapshots, clusters.connections, clusters.topology),
        producers={
            name: await connected_producers(clusters.admins[name], _present(snapshots[name], planned.namespaces))
            for name in clusters.topology.leaving
            if name in clusters.admins
        },
        never_used={
            name: await never_used(clusters.admins[name], topics)
            for name, topics in topics_with_history(snapshots, planned, request).items()
        },
        stored={
            name: await stored_bytes(clusters.admins[name], topics)
            for name, topics in topics_under_quotas(snapshots, planned, request).items()
        },
        bookies={name: await read_bookies(clusters.admins[name]) for name in clusters.topology.remaining},
    )
    found = check_replication(snapshots, planned, request, observations)
    planned = replace(planned, unused={name: tuple(sorted(names)) for name, names in observations.never_used.items()})
    return planned, blockers_first((*found, *notes(request, clusters.topology)))


async def apply_contents(
    clusters: Clusters, planned: Planned[ReplicationPlan], request: Request, run: Run
) -> StepResult:
    """Create cluster data, tenants, namespaces, topics and schemas on all clusters; nothing is replicated yet.

    :raises PlanOutdated: see `_require_as_planned`.
    """
    stored, stage = planned.plan, Stage(clusters, run, CONTENTS)
    if any(not plans.contents.empty for plans in stored.clusters.values()) and not stage.has_begun:
        await _require_as_planned(clusters, planned, request)
    await stage.apply({name: plans.contents for name, plans in stored.clusters.items()})
    return stage.result()


async def start_links(clusters: Clusters, planned: Planned[ReplicationPlan], request: Request, run: Run) -> StepResult:
    """Store the lists that start links. With history, new links begin in what is stored.

    :raises PlanOutdated: a topic that held nothing on one side when the run was planned holds something on both;
        see also `_require_as_planned`.
    """
    stored, stage = planned.plan, Stage(clusters, run, STARTS)
    if not stage.has_begun:
        await _require_as_planned(clusters, planned, request)
    if request.history:
        await require_unused(clusters, stored)
        await asyncio.gather(*(_copy_history(admin, name, stored, request) for name, admin in clusters.admins.items()))
    await stage.apply({name: plans.starts for name, plans in stored.clusters.items()})
    return stage.result()


async def _require_as_planned(clusters: Clusters, planned: Planned[ReplicationPlan], request: Request) -> None:
    """Read every cluster again before the first write of a stage: an approval may come hours after the plan.

    New topics and namespaces without a list are no reason: a plan that is made now does the same to lists.

    :raises PlanOutdated: a list, or a blocker, that the plan did not have. Nothing of the stage was written.
    """
    stored, known = planned.plan, planned.findings
    _require_same_clusters(clusters, stored)
    now, found = await _examine(clusters, request)
    keys = {(finding.id, finding.resource) for finding in known}
    new = [
        finding
        for finding in apply_waivers(found, request.waivers, whole_run=False).unwaived
        if (finding.id, finding.resource) not in keys
    ]
    changed = changed_lists(stored, now, history=request.history)
    if changed or new:
        lines = [f"  {finding.text()}" for finding in new]
        what = f"{listed(changed)} is not as it was planned. " if changed else ""
        raise PlanOutdated(
            f"The clusters have changed since the plan. {what}Nothing of this step was written: start a new run, "
            + "\n".join(["which plans again.", *lines])
        )


async def confirm(
    clusters: Clusters,
    planned: Planned[ReplicationPlan],
    *,
    seconds: float = CONFIRM_SECONDS,
    progress: Progress | None = None,
) -> ConfirmedLinks:
    """Load every topic, and wait until each link is connected and sends.

    Calls: two for each namespace and one for each topic of every member, and again for those that do not work yet.

    :raises PreconditionFailed: a link does not work after `seconds`; the message names the first and what to do.
    """
    stored, began, calls = planned.plan, time.monotonic(), clusters.calls
    states = [
        state
        for answer in await asyncio.gather(
            *(
                _confirm(admin, name, stored, seconds, progress)
                for name, admin in clusters.admins.items()
                if name in stored.topology.members
            )
        )
        for state in answer
    ]
    broken = tuple(state for state in states if not state.works)
    result = ConfirmedLinks(
        links=len(states),
        broken=broken[:_MOST_SHOWN],
        calls=clusters.calls - calls,
        seconds=round(time.monotonic() - began, 1),
    )
    if broken:
        names = [clusters.admins[name].connection.argument for name in stored.topology.remaining]
        doctor = command_line("doctor", *names, "--select", TopicName.parse(broken[0].topic).namespace)
        raise PreconditionFailed(
            f"{len(broken)} of {counted(len(states), 'link')} do not replicate after {seconds:.0f} s. First "
            f"{broken[0].text()}. For the cause: {doctor}"
        )
    return result


async def backlog_of_ending_links(clusters: Clusters, planned: Planned[ReplicationPlan]) -> str:
    """What still has to be sent before links may end, in a sentence; empty if nothing.

    A link to a cluster that is gone has nothing to wait for. It loads the topics.

    :raises PlanOutdated: a cluster that leaves has gone, or has come back, since the plan.
    """
    stored = planned.plan
    _require_same_clusters(clusters, stored)
    for name, admin in clusters.admins.items():
        for link in _ending(stored, name):
            if link.target in clusters.absent:
                continue
            progress = await unsent(admin, stored, _namespaces_of(stored, link), link)
            if not progress.is_near:
                return f"{link}: {progress.lag.entries:,} entries are not sent yet{progress.text()}"
    return ""


async def end_links(clusters: Clusters, planned: Planned[ReplicationPlan], run: Run) -> StepResult:
    """Store the lists that end links: those of clusters that leave first; then free tenants and cluster data.

    What something else still uses stays, and is named.

    :raises Unavailable: something is not sent yet; nothing was changed.
    :raises PreconditionFailed: a replicator does not end; a cluster that leaves has gone or come back since the plan; a
        topic would lose a cluster that remains.
    """
    if waiting := await backlog_of_ending_links(clusters, planned):
        raise Unavailable(f"{waiting}. Nothing has been ended.")
    stored, stage = planned.plan, Stage(clusters, run, ENDS)
    order = [*stored.topology.leaving, *stored.topology.receive_only, *stored.topology.members]
    ends = {name: stored.clusters[name].ends for name in order if name in stored.clusters}
    for name, changes in ends.items():
        await require_lists_kept(clusters.admins[name], stored, name)
        await stage.apply_one(name, lists_of(changes), checked=True)
        await _wait_ended(clusters.admins[name], name, stored)
    for name, changes in ends.items():
        used = await tenants_in_use(clusters.admins[name], changes)
        stage.kept += [f"the clusters of tenant {tenant} on {name}: {user} uses them" for tenant, user in used.items()]
        await stage.apply_one(name, tenants_of(changes, used), checked=True)
    for name, changes in ends.items():
        used = await cluster_data_in_use(clusters.admins[name], changes, open_redactor())
        stage.kept += [f"the data of cluster {peer} on {name}: {user} refers to it" for peer, user in used.items()]
        await stage.apply_one(name, cluster_data_of(changes, used), checked=True)
    return stage.result()


def _require_same_clusters(clusters: Clusters, stored: ReplicationPlan) -> None:
    """What a cluster that leaves still has to send, and its own lists, are planned only while it answers."""
    for name in stored.topology.leaving:
        planned, answers = name in stored.clusters, name in clusters.admins
        if planned != answers:
            then, now = ("answered", "does not answer") if planned else ("did not answer", "answers")
            raise PlanOutdated(
                f"{name} {then} when this run was planned, and {now} now. Start a new run, which plans what to do "
                "about its links. Nothing has been ended."
            )


async def _snapshots(clusters: Clusters, request: Request, redactor: Redactor) -> dict[str, Snapshot]:
    collected = await asyncio.gather(
        *(collect(admin, request.selection, redactor=redactor) for admin in clusters.admins.values())
    )
    return {name: selected(snapshot, request) for name, snapshot in zip(clusters.admins, collected, strict=True)}


def _require_present(snapshots: Mapping[str, Snapshot], clusters: Clusters, request: Request) -> None:
    members = [snapshots[name] for name in clusters.topology.members]
    namespaces = [NamespaceName.parse(state.name) for member in members for state in member.namespaces]
    tenants = {namespace.tenant for namespace in namespaces}
    names = ", ".join(clusters.topology.members)
    if absent := request.selection.absent(tenants, namespaces):
        raise NotFound(f"No member ({names}) has {', '.join(absent)}: check 'namespaces'. Nothing has been changed.")
    topics = {row.name for member in members for row in member.topics}
    if missing := sorted(str(topic) for topic in request.topics if str(topic) not in topics):
        raise NotFound(f"No member ({names}) has the topic {missing[0]}: check 'topics'. Nothing has been changed.")


def _present(snapshot: Snapshot, namespaces: Sequence[str]) -> list[str]:
    return [state.name for state in snapshot.namespaces if state.name in namespaces]


async def _copy_history(admin: AdminClient, own: str, stored: ReplicationPlan, request: Request) -> None:
    for namespace, links in stored.new_links.items():
        targets = [link.target for link in links if link.source == own]
        if targets:
            partitions = await _replicated_partitions(admin, own, stored, [namespace])
            await copy_history(admin, partitions, targets, request.history_since)
    for topic, grown in growing_topic_lists(stored, own).items():
        added = {*grown} - {*await read_clusters_in_effect(admin, topic)}
        stored_in = await partitions_of(admin, [str(topic.namespace)], [str(topic)])
        await copy_history(admin, stored_in, sorted(added), request.history_since)


async def _replicated_partitions(
    admin: AdminClient, own: str, stored: ReplicationPlan, namespaces: Sequence[str]
) -> list[TopicName]:
    """What stores the messages that a cluster replicates: without topics that it keeps by lists of their own."""
    partitions = await partitions_of(admin, namespaces, stored.topics)
    return [partition for partition in partitions if str(partition.parent) not in stored.kept_local.get(own, ())]


async def _confirm(
    admin: AdminClient, own: str, stored: ReplicationPlan, seconds: float, progress: Progress | None
) -> Sequence[StartedLink]:
    targets = [link.target for link in stored.topology.links() if link.source == own]
    partitions = await _replicated_partitions(admin, own, stored, stored.namespaces)
    return await confirm_links(admin, own, targets, partitions, seconds=seconds, progress=progress)


def _ending(stored: ReplicationPlan, source: str) -> list[Link]:
    return sorted({link for namespace in stored.namespaces for link in ending_links(stored, namespace, source)})


def _namespaces_of(stored: ReplicationPlan, link: Link) -> list[str]:
    return [name for name in stored.namespaces if link in ending_links(stored, name, link.source)]


async def _wait_ended(admin: AdminClient, own: str, stored: ReplicationPlan) -> None:
    for namespace in stored.namespaces:
        for link in ending_links(stored, namespace, own):
            await wait_ended(admin, own, NamespaceName.parse(namespace), link.target)


PROCEDURE = "replicate_namespaces"


class Stage:
    """The changes of one stage, and what they cost since it was created."""

    def __init__(self, clusters: Clusters, run: Run, name: str) -> None:
        self._clusters = clusters
        self._run = run
        self._name = name
        self._began = time.monotonic()
        self._calls = clusters.calls
        self._changes = 0
        self.kept: list[str] = []

    @property
    def has_begun(self) -> bool:
        """Whether an earlier try of this run, or this one, has written on a cluster."""
        return len(self._run.ledger.runs_below(f"{self._run.id}/{self._name}")) > 0

    async def apply(self, plans: Mapping[str, Plan]) -> None:
        """Apply plans on all clusters at once; the calls to one namespace of one cluster are serial.

        A failure on one cluster does not stop the others; the first is raised when all are done.
        """
        names = [name for name in self._clusters.admins if name in plans]
        outcomes = await asyncio.gather(*(self.apply_one(name, plans[name]) for name in names), return_exceptions=True)
        for error in filter(None, outcomes):
            raise error

    async def apply_one(self, name: str, plan: Plan, *, checked: bool = False) -> None:
        """Apply a plan on one cluster; a second call skips changes that are in place.

        :param checked: this run has checked what the hazards of these changes are about, so they need no permission.
        :raises Unavailable: a change failed, and a second call may succeed.
        :raises InvalidRequest: a change failed, was refused, or found another value than the plan was made from.
        """
        if plan.empty:
            return
        clusters, redactor, admin = self._clusters, open_redactor(), self._clusters.admins[name]
        data = {peer: other.connection.cluster_data() for peer, other in clusters.admins.items()}
        secrets = redactor.secrets(data)
        for other in clusters.admins.values():
            if other is not admin:
                secrets |= await read_secrets(plan, other, redactor)
        run_id, ledger = f"{self._run.id}/{self._name}/{name}", self._run.ledger
        ledger.start_run(run_id, PROCEDURE, {"target": admin.connection.argument, "plan": plan.id})
        allow = frozenset(change.id for change in plan.changes) if checked else frozenset()
        applied = await apply_plan(plan, admin, ledger, run_id, redactor=redactor, allow=allow, secrets=secrets)
        ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
        self._changes += len(plan.changes)
        applied.require_in_place()

    def result(self) -> StepResult:
        """What was done so far, with the admin calls on all clusters."""
        return StepResult(
            changes=self._changes,
            calls=self._clusters.calls - self._calls,
            seconds=round(time.monotonic() - self._began, 1),
            kept=tuple(self.kept),
        )
