"""Apply a plan as a run of its own in the ledger, and what a deletion needs from its cluster (client)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.redaction import Redactor, fingerprints
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan, read_secrets
from pulsar_fleet.planning.apply.outcome import ChangeResult, Outcome, PlanResult, creates_resource, dependencies
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Plan
from pulsar_fleet.snapshot.resources import read_namespace


async def apply_recorded(
    plan: Plan,
    target: AdminClient,
    sources: Sequence[AdminClient],
    ledger: Ledger,
    run_id: str,
    procedure: str,
    *,
    redactor: Redactor,
    allow: frozenset[str] = frozenset(),
    behind: Mapping[str, str] | None = None,
) -> PlanResult:
    """Apply a plan as a run of its own in the ledger, so that it can be undone separately.

    An allowed deletion of a topic that somebody uses is refused. A change whose secret cannot be read now is left to a
    second attempt; if nothing else is to be made, there is no run.

    :param sources: the clusters from which secrets are read: those of other clusters only while one is missing.
    :param behind: connection → why its cluster does not answer: it may hold a secret too.
    """
    secrets, unread = await _secrets(plan, sources, redactor)
    why = "; ".join([*unread, *(behind or {}).values()])
    waiting = _without_secrets(plan, secrets, why) if why else ()
    later = {result.change.id for result in waiting}
    unused, refused = await without_used_topics(plan, target, allow)
    unused = replace(unused, changes=tuple(change for change in unused.changes if change.id not in later))
    if unused.empty and not refused and waiting:
        return PlanResult(plan.id, plan.target, waiting)
    ledger.start_run(run_id, procedure, {"target": target.connection.name, "plan": plan.id})
    applied = await apply_plan(unused, target, ledger, run_id, redactor=redactor, allow=allow, secrets=secrets)
    applied = replace(applied, plan_id=plan.id, results=(*applied.results, *refused, *waiting))
    ledger.finish_run(run_id, "succeeded" if applied.complete else "failed")
    return applied


async def _secrets(plan: Plan, sources: Sequence[AdminClient], redactor: Redactor) -> tuple[dict[str, str], list[str]]:
    """The secrets that a plan writes, and why clusters that may have a missing one do not answer."""
    needed = {text for change in plan.changes for text in _fingerprints(change)}
    secrets: dict[str, str] = {}
    unread: list[str] = []
    for admin in sources:
        if needed <= secrets.keys():
            break
        try:
            secrets |= await read_secrets(plan, admin, redactor)
        except Unavailable as error:
            unread.append(str(error))
    return secrets, unread


def _without_secrets(plan: Plan, secrets: Mapping[str, str], why: str) -> tuple[ChangeResult, ...]:
    """The changes that lack a secret, and those that need what they create: a second attempt may make them."""
    lacking = [change for change in plan.changes if not _fingerprints(change) <= secrets.keys()]
    absent = {(change.resource, change.name) for change in lacking if creates_resource(change)}
    detail = f"its secret cannot be read now: {why}"
    failed = [ChangeResult(change, Outcome.FAILED, detail, passing=True) for change in lacking]
    skipped = [
        ChangeResult(change, Outcome.SKIPPED, f"{min(missing)[1]} was not made", passing=True)
        for change in plan.changes
        if change not in lacking and (missing := dependencies(change) & absent)
    ]
    return (*failed, *skipped)


def _fingerprints(change: Change) -> frozenset[str]:
    return frozenset(text for call in change.calls for text in fingerprints(call.body))


async def current_documents(
    admin: AdminClient, namespaces: Iterable[str], own: str, redactor: Redactor
) -> dict[str, JsonObject]:
    """The current documents of namespaces that may be deleted: an apply compares them with the live state."""
    documents: dict[str, JsonObject] = {}
    for name in namespaces:
        document = await read_namespace(admin, NamespaceName.parse(name), redactor)
        documents[name] = comparable(document or {}, own)
    return documents


async def without_used_topics(
    plan: Plan, admin: AdminClient, allow: Collection[str]
) -> tuple[Plan, tuple[ChangeResult, ...]]:
    """The plan without the allowed deletions of topics that are in use, and the refusal of each of them.

    The broker itself refuses to delete a topic with connected clients or a replicator and a namespace with topics, but
    deletes a topic with a backlog (observed). One call for each partition that exists, which loads it.
    """
    refused: list[ChangeResult] = []
    for change in plan.changes:
        if change.resource is Resource.TOPIC and change.action is Action.DELETE and change.id in allow:
            reason = await _use_of(admin, TopicName.parse(change.name), int(change.before["partitions"]))
            refused += [ChangeResult(change, Outcome.REFUSED, reason)] if reason else []
    kept = {result.change.id for result in refused}
    return replace(plan, changes=tuple(change for change in plan.changes if change.id not in kept)), tuple(refused)


async def _use_of(admin: AdminClient, topic: TopicName, partitions: int) -> str:
    """Why a topic is in use, empty if it is not; a partition that cannot be read is in use."""
    try:
        existing = set(await admin.topics(topic.namespace))
        for partition in topic.partitions(partitions):
            if partition not in existing:
                continue
            if reason := use_text(TopicStats.of(partition, await admin.stats(partition))):
                return f"{partition} {reason}: it is not deleted"
    except NotFound:
        return ""
    except FleetError as error:
        return f"it is unknown whether {topic} is in use, so it is not deleted: {error}"
    return ""


def use_text(stats: TopicStats) -> str:
    """What of a topic would be lost or disturbed by its deletion, as the rest of a sentence; empty for nothing."""
    if stats.clients:
        return f"has {counted(len(stats.clients), 'connected client')}, first {stats.clients[0].text()}"
    backlogs = {name: entry.backlog for name, entry in stats.subscriptions.items() if entry.backlog}
    if backlogs:
        name, backlog = next(iter(sorted(backlogs.items())))
        entries = "1 entry" if backlog == 1 else f"{backlog:,} entries"
        return f"has a backlog: {entries} in subscription {name!r}"
    return f"is replicated between this cluster and {', '.join(sorted(stats.links))}" if stats.links else ""
