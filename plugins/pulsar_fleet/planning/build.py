"""Plan how one cluster becomes equal to another (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.partial_reads import CLUSTERS, Area, unread_text
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.planning.decisions import Planner
from pulsar_fleet.planning.diff import diff
from pulsar_fleet.planning.diff_entry import Difference, Resource
from pulsar_fleet.planning.hazards import OtherDirection
from pulsar_fleet.planning.plan import LeftAlone, Plan
from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.planning.unread import Unread
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot

# Of the fields of a namespace, only a superuser may read and set this one.
_SUPERUSER_FIELD = "bookie_affinity"


def without_hidden(source: Snapshot, target: Snapshot) -> tuple[Snapshot, Snapshot, tuple[LeftAlone, ...]]:
    """Both snapshots without the field that one of the roles may not read, and where the source has it.

    A hidden field looks unset: the plan would unset it on the other cluster, or set it without permission.
    """
    hiding = [snapshot.cluster for snapshot in (source, target) if snapshot.hides(Area.BOOKIE_AFFINITY)]
    if not hiding:
        return source, target, ()
    reason = f"our role on {hiding[-1]} may not read or set it"
    left_alone = tuple(
        LeftAlone(Resource.POLICY, namespace.name, _SUPERUSER_FIELD, reason)
        for namespace in source.namespaces
        if namespace.policies.get(_SUPERUSER_FIELD)
    )
    return _stripped(source), _stripped(target), left_alone


def _stripped(snapshot: Snapshot) -> Snapshot:
    kept = (
        NamespaceState(state.name, {name: value for name, value in state.policies.items() if name != _SUPERUSER_FIELD})
        for state in snapshot.namespaces
    )
    return replace(snapshot, namespaces=tuple(kept))


def plan_changes(source: Snapshot, target: Snapshot, *, subscriptions: bool = True) -> Plan:
    """The changes that give the target everything that the source has; empty when nothing differs.

    Nothing is ever deleted: what exists only on the target is listed in `left_alone`, and so is what could not be read
    on one of the clusters, which is neither created nor changed.

    :param subscriptions: compare and create subscriptions; False skips them.
    :raises PreconditionFailed: the snapshots cannot be compared.
    """
    require_comparable(source, target)
    aligned = align(source, target, subscriptions=subscriptions)
    planner = Planner(aligned.source, aligned.target, aligned.unread)
    for difference in aligned.differences():
        if subscriptions or difference.resource is not Resource.SUBSCRIPTION:
            planner.add(difference)
    return Plan(
        source=source.cluster,
        target=target.cluster,
        changes=tuple(map(OtherDirection(source, target).with_risk, planner.ordered())),
        left_alone=(*aligned.left_alone, *planner.left_alone),
    )


@dataclass(frozen=True, slots=True)
class Aligned:
    """Two snapshots in the target's terms, without the fields that one of the roles may not read.

    :param left_alone: what could not be read, what these terms cannot express, and what no plan copies.
    """

    source: Snapshot
    target: Snapshot
    left_alone: tuple[LeftAlone, ...]
    unread: Unread

    def differences(self) -> Iterator[Difference]:
        """Every difference between what was read on both clusters, in the order of creation."""
        return (entry for entry in diff(self.source, self.target) if not self.unread.hides(entry))


def align(source: Snapshot, target: Snapshot, *, subscriptions: bool = True) -> Aligned:
    """Translate both snapshots into the terms in which `diff` compares them.

    :param subscriptions: subscriptions are compared.
    """
    unread = Unread(source, target, subscriptions=subscriptions)
    source, target = (unread.without_unread_properties(side) for side in (source, target))
    source, target, hidden = without_hidden(source, target)
    translated, unknown = translate_snapshot(source, target)
    left_alone = (*unread.left_alone(), *hidden, *unknown, *_scalable(source), *_scalable(target))
    return Aligned(translated, target, left_alone, unread)


def _scalable(snapshot: Snapshot) -> Iterator[LeftAlone]:
    reason = f"on {snapshot.cluster}; scalable topics are neither copied nor compared"
    return (LeftAlone(Resource.SCALABLE_TOPIC, topic.name, "", reason) for topic in snapshot.scalable_topics)


def differing_names(source: Snapshot, target: Snapshot) -> frozenset[str]:
    """The names of all resources that a plan between the two would change or leave alone."""
    aligned = align(source, target)
    rows: tuple[Difference | LeftAlone, ...] = (*aligned.differences(), *aligned.left_alone)
    return frozenset(row.name for row in rows)


def require_comparable(source: Snapshot, target: Snapshot) -> None:
    """Refuse two snapshots without known clusters, or whose fingerprint keys differ."""
    for snapshot in (source, target):
        for note in snapshot.unreadable:
            if note.resource == CLUSTERS:
                raise PreconditionFailed(
                    f"The names of the clusters that {snapshot.cluster} knows could not be read, so cluster lists "
                    f"cannot be compared: {note.detail}"
                )
    if source.key_id != target.key_id:
        raise PreconditionFailed(
            f"The snapshots of {source.cluster} and {target.cluster} were taken under different fingerprint keys, so "
            "their secrets cannot be compared: set one PULSAR_FLEET_FINGERPRINT_KEY on every worker, take both again."
        )


def require_complete(snapshot: Snapshot) -> None:
    """Refuse a snapshot with unreadable resources: for a procedure that must not leave anything out.

    Settings of the brokers are not copied; each procedure has a gate for those that it depends on.
    """
    if unreadable := [note for note in snapshot.unreadable if not note.concerns_brokers]:
        raise PreconditionFailed(
            f"{unread_text(snapshot.cluster, unreadable)} Nothing was changed: the copy would lack it."
        )
