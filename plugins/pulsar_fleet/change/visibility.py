"""What neither side may conclude, because the role of one of them may not see it (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.change.diff import Resource
from pulsar_fleet.change.plan import LeftAlone
from pulsar_fleet.cluster.states import Area, NamespaceState, Snapshot

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
