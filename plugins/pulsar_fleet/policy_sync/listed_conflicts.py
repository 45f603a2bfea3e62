"""A recorded conflict as reports list it, whichever procedure recorded it (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.reconciliation_store import RecordedConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedConflict(Document):
    """A field that clusters wrote differently, or a resource that was deleted on one and edited on another.

    :param id: by which another value can be chosen, once a run other than a dry run has recorded it.
    :param field: empty if the conflict is about the resource itself.
    :param rule: why the winner won.
    :param winner: empty if the last agreement won.
    :param values: cluster → value; for the resource itself its edited fields, None where it was deleted.
    """

    id: str
    resource: str
    field: str
    rule: str
    winner: str
    values: Mapping[str, Json]


def listed(conflict_id: str, conflict: RecordedConflict) -> ListedConflict:
    """A conflict with the id by which another value can be chosen."""
    return ListedConflict(
        id=conflict_id,
        resource=f"{conflict.kind} {conflict.name}",
        field=conflict.field,
        rule=conflict.rule,
        winner=conflict.winner,
        values={cluster: side["value"] for cluster, side in conflict.sides.items()},
    )
