"""A resource that was deleted on one cluster and edited on another: a deletion wins against no edit unasked (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.merge_resource import ClusterValues

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
