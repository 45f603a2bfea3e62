"""Deletions: those that meet an edit, and those that one approval covers: topics, then namespaces, then tenants (pure).

Rights and policies are values of a namespace, so unsetting one is an ordinary change that is always carried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan
from pulsar_fleet.policy_sync.merge.merge_resource import ClusterValues
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


EXISTENCE = ""
"""The field of a conflict about the resource itself."""

EDIT_WINS = "an edit wins against a deletion"


class Fate(StrEnum):
    """What is to become of such a resource."""

    UNDECIDED = "undecided"
    """It is left alone until the operator chooses a cluster."""
    KEPT = "kept"
    """The operator chose a cluster that has it: it is recreated on the others."""
    DELETED = "deleted"
    """The operator chose a cluster that deleted it: its deletion may be planned on the others."""


@dataclass(frozen=True, slots=True)
class DeletionConflict:
    """The conflict between the deletions and the edits of one resource.

    :param sides: cluster → the fields that were edited there with their values (unset ones as None); None where the
        resource was deleted.
    """

    sides: Mapping[str, Json]
    fate: Fate = Fate.UNDECIDED

    @property
    def winner(self) -> str:
        """The first cluster with an edit."""
        return min(cluster for cluster, edited in self.sides.items() if edited)

    @property
    def text(self) -> str:
        """Where it was deleted, and where it was edited."""
        deleted = ", ".join(sorted(cluster for cluster, edits in self.sides.items() if edits is None))
        edited = ", ".join(sorted(cluster for cluster, edits in self.sides.items() if edits))
        return f"deleted on {deleted}, edited on {edited}"


def deletion_conflict(
    base: Mapping[str, Json],
    holders: Sequence[ClusterValues],
    gone: Collection[str],
    recorded: Sequence[DeletionConflict],
) -> DeletionConflict | None:
    """The conflict of a resource that is gone on some clusters; None if nobody edited it since the merge base.

    The merge base follows the clusters that have the resource, so an edit is only visible in the first run after it.
    From then on the recorded conflict stands, until the clusters agree on the existence.

    :param recorded: the open conflicts of this resource, the newest first.
    """
    edits = {side.cluster: _edits(base, side.values) for side in holders}
    if not any(edits.values()):
        return recorded[0] if recorded else None
    sides = {**dict.fromkeys(gone), **edits}
    return next((known for known in recorded if same(dict(known.sides), sides)), DeletionConflict(sides))


def _edits(base: Mapping[str, Json], values: Mapping[str, Json]) -> dict[str, Json]:
    names = sorted({*base, *values})
    return {name: values.get(name) for name in names if not same(values.get(name), base.get(name))}
