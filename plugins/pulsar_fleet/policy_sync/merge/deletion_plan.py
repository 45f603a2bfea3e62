"""The deletions that one approval covers: topics first, then namespaces, then tenants (pure).

Rights and policies are values of a namespace, so unsetting one is an ordinary change that is always carried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazard import Hazard
from pulsar_fleet.planning.plan import Action, Change, Plan
from pulsar_fleet.policy_sync.merge.view import Item

MOST_AT_ONCE = 200
_ORDER = (Resource.TOPIC, Resource.NAMESPACE, Resource.TENANT)


class PropagateDeletes(StrEnum):
    """Whether a tenant, a namespace or a partitioned topic that was deleted on one cluster is deleted on the others."""

    NEVER = "never"
    """It is listed as pending, with the id of its batch."""
    APPROVE = "approve"
    """It is deleted when a person allows the id of its batch, or its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletions(Document):
    """The deletions that wait on one cluster.

    :param id: allows exactly these deletions, as they were planned.
    :param resources: what would be deleted, and where it was deleted.
    :param command: deletes them after a question; it refuses what is in use or was changed since.
    """

    id: str
    resources: tuple[str, ...]
    command: str


def deletion(item: Item, before: Json, reason: str) -> Change:
    """Delete a resource without force, if it still has the value `before`."""
    kind, name = item
    paths = {
        Resource.TOPIC: lambda: f"/{TopicName.parse(name).path}/partitions",
        Resource.NAMESPACE: lambda: f"/namespaces/{NamespaceName.parse(name).path}",
        Resource.TENANT: lambda: f"/tenants/{quote(name, safe='')}",
    }
    return Change(
        resource=kind,
        name=name,
        field="",
        action=Action.DELETE,
        calls=(bare("DELETE", paths[kind]()),),
        before=before,
        after=None,
        hazard=Hazard.DESTRUCTIVE,
        reason=reason,
    )


def batch_of(plan: Plan) -> Plan:
    """The deletions of a plan: the batch that its own id allows."""
    return replace(plan, changes=tuple(change for change in plan.changes if change.action is Action.DELETE))


def deletion_batch(cluster: str, changes: Iterable[Change]) -> Plan:
    """A plan of deletions in an order that a broker accepts; at most `MOST_AT_ONCE`, so that a person sees all of them.

    The others are in the next batch.
    """
    ordered = sorted(changes, key=lambda change: (_ORDER.index(change.resource), change.name))
    return Plan(source="deletions on other clusters", target=cluster, changes=tuple(ordered[:MOST_AT_ONCE]))


def pending(plan: Plan, command: str) -> PendingDeletions | None:
    """The deletions of a plan as a list for people; None without any.

    :param command: the command line of a run that makes this plan, without the approval.
    """
    batch = batch_of(plan)
    resources = tuple(f"{change.label}: {change.reason}" for change in batch.changes)
    approved = f"{command} --propagate-deletes approve --allow {batch.id}"
    return PendingDeletions(id=batch.id, resources=resources, command=approved) if resources else None


def pending_lines(cluster: str, waiting: PendingDeletions) -> list[str]:
    """What waits on a cluster, then how to delete it."""
    first = f"deleted elsewhere and kept on {cluster}; to delete what nobody uses or edited: {waiting.command}"
    return [first, *waiting.resources]


def allowed_deletions(plan: Plan, allow: Collection[str]) -> frozenset[str]:
    """The ids of the deletions that are allowed, by the id of their batch or by their own."""
    batch = batch_of(plan)
    return frozenset(change.id for change in batch.changes if batch.id in allow or change.id in allow)
