"""Plan how one cluster becomes equal to another (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.read_problems import Area
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.planning.changes.subscriptions import StartAt
from pulsar_fleet.planning.decisions import Planner
from pulsar_fleet.planning.diff import diff
from pulsar_fleet.planning.diff_entry import Difference, Resource
from pulsar_fleet.planning.plan import LeftAlone, Plan
from pulsar_fleet.planning.translation import translate_snapshot
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot

# Area → the fields of a namespace that only a superuser may read and set.
_FIELDS = {Area.BOOKIE_AFFINITY: ("bookie_affinity",)}


def without_hidden(source: Snapshot, target: Snapshot) -> tuple[Snapshot, Snapshot, tuple[LeftAlone, ...]]:
    """Both snapshots without what one of the roles may not see, and what was left out for that.

    A field that one side hides would look unset there: it would be unset on the other, or set without the right to.
    """
    hidden = {field: snapshot.cluster for snapshot in (source, target) for field in _hidden_fields(snapshot)}
    left = tuple(
        LeftAlone(Resource.POLICY, namespace.name, field, f"our role on {hidden[field]} may not see or set it")
        for namespace in source.namespaces
        for field in sorted(hidden)
        if namespace.policies.get(field)
    )
    return _stripped(source, hidden), _stripped(target, hidden), left


def _hidden_fields(snapshot: Snapshot) -> Iterator[str]:
    for area, fields in _FIELDS.items():
        if snapshot.hides(area):
            yield from fields


def _stripped(snapshot: Snapshot, hidden: dict[str, str]) -> Snapshot:
    if not hidden:
        return snapshot
    kept = tuple(
        NamespaceState(one.name, {field: value for field, value in one.policies.items() if field not in hidden})
        for one in snapshot.namespaces
    )
    return replace(snapshot, namespaces=kept)


def plan_changes(
    source: Snapshot,
    target: Snapshot,
    *,
    subscriptions: bool = True,
    start_at: StartAt = StartAt.EARLIEST,
    accept_incomplete: Collection[str] = frozenset(),
) -> Plan:
    """What makes the target hold all that the source holds; empty when nothing differs.

    Nothing is ever deleted: what exists only on the target is named in `left_alone`.

    :param subscriptions: create missing subscriptions; without it they are skipped.
    :param start_at: where they stand then.
    :param accept_incomplete: resources, as the snapshots' notes name them, that may be unreadable: they are planned
        for as if they were not there, and applying looks at the live state once more.
    :raises Refused: an incomplete snapshot, or two whose secrets cannot be compared.
    """
    require_comparable(source, target, accept_incomplete)
    aligned = align(source, target)
    planner = Planner(aligned.source, aligned.target, start_at)
    for difference in diff(aligned.source, aligned.target):
        if subscriptions or difference.resource is not Resource.SUBSCRIPTION:
            planner.take(difference)
    return Plan(
        source=source.cluster,
        target=target.cluster,
        changes=planner.ordered(),
        left_alone=(*aligned.left, *planner.left),
    )


@dataclass(frozen=True, slots=True)
class Aligned:
    """Two snapshots in the target's terms, without what one of the roles may not see.

    :param left: what cannot be said in these terms, so that no difference tells it.
    """

    source: Snapshot
    target: Snapshot
    left: tuple[LeftAlone, ...]


def align(source: Snapshot, target: Snapshot) -> Aligned:
    """Bring both into the terms in which `diff` compares them."""
    source, target, hidden = without_hidden(source, target)
    translated, unknown = translate_snapshot(source, target)
    return Aligned(translated, target, (*hidden, *unknown))


def names_apart(source: Snapshot, target: Snapshot) -> frozenset[str]:
    """The names of all resources about which a plan between the two would say anything at all."""
    aligned = align(source, target)
    found: tuple[Difference | LeftAlone, ...] = (*diff(aligned.source, aligned.target), *aligned.left)
    return frozenset(one.name for one in found)


def require_comparable(source: Snapshot, target: Snapshot, accept: Collection[str] = frozenset()) -> None:
    """Refuse two snapshots from which nothing can be concluded: incomplete ones, or under different keys.

    :param accept: resources that may be unreadable.
    """
    for snapshot in (source, target):
        require_complete(snapshot, accept)
    if source.key_id != target.key_id:
        raise PreconditionFailed(
            f"The snapshots of {source.cluster} and {target.cluster} were taken under different fingerprint keys, so "
            "their secrets cannot be compared: set one PULSAR_FLEET_FINGERPRINT_KEY on every worker, take both again."
        )


def require_complete(snapshot: Snapshot, accept: Collection[str] = frozenset()) -> None:
    """Refuse a snapshot in which something could not be read, unless that is accepted."""
    unreadable = [note for note in snapshot.unreadable if note.resource not in accept]
    if unreadable:
        first = unreadable[0]
        raise PreconditionFailed(
            f"The snapshot of {snapshot.cluster} is incomplete: {len(unreadable)} resources could not be "
            f"read, first {first.resource}: {first.detail} Take the snapshot again; a plan from it would be wrong."
        )
