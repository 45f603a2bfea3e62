"""Whether a resource is still the one that clusters agreed on: what a recreated one lacks, nobody removed (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.reconciliation_store import MergeBase
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.policy_sync.merge.merge_resource import ClusterValues, Decision, MergedResource, Rule
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN, Span
from pulsar_fleet.policy_sync.merge.view import Identity, Item, View


@dataclass(frozen=True, slots=True, order=True)
class Suspect:
    """A resource that lacks values which another cluster still has.

    :param at: when they were last observed there, in seconds since 1970 by our clock; `UNKNOWN` if never.
    :param lacking: the fields.
    """

    cluster: str
    item: Item
    at: float
    lacking: tuple[str, ...]


def suspects(views: Sequence[View], bases: Mapping[Item, MergeBase]) -> Iterator[Suspect]:
    """The resources of which it has to be known whether they were created again."""
    for view in views:
        for item, base in bases.items():
            values = view.values(item) if view.cluster in base.clusters and view.has_read(item) else None
            if values is None or same(values, base.document):
                continue
            others = [other.values(item) or {} for other in views if other is not view]
            taken = tuple(
                name
                for name in lacks(base.document, values)
                if any(not same(other.get(name), values.get(name)) for other in others)
            )
            if taken:
                times = view.provenance.get(item, {})
                at = min(times[name].not_before if name in times else UNKNOWN for name in taken)
                yield Suspect(view.cluster, item, at, taken)


def lacks(before: Mapping[str, Json], values: Mapping[str, Json]) -> tuple[str, ...]:
    """The fields that are not set any more, or whose list lacks an entry."""
    return tuple(name for name, value in before.items() if _is_taken_away(value, values.get(name)))


def _is_taken_away(before: Json, after: Json) -> bool:
    if before is None or after is None:
        return before is not None
    lists = isinstance(before, list | tuple) and isinstance(after, list | tuple)
    return lists and any(entry not in after for entry in before)


def identity_at(created: Sequence[Span], at: float) -> Identity:
    """Whether a topic whose partitions were created in these spans is the one that existed at a time.

    :param at: in seconds since 1970 by our clock.
    """
    if not created or at <= UNKNOWN:
        return Identity.UNKNOWN
    begin, end = min(created)
    return Identity.SAME if end <= at else Identity.RECREATED if begin > at else Identity.UNKNOWN


def keep_undecided(
    merged: MergedResource, base: Mapping[str, Json], sides: Sequence[ClusterValues], unknown: Sequence[str]
) -> MergedResource:
    """The merge without the values that would be taken away because of a resource of unknown identity.

    They stay as they are on every cluster until the operator chooses.

    :param unknown: the clusters on which the resource may have been created again.
    """
    decisions, values = dict(merged.decisions), dict(merged.values)
    for side in (side for side in sides if side.cluster in unknown):
        for name in lacks(base, side.values):
            decision, value = decisions.get(name), side.values.get(name)
            if decision is None or decision.rule is Rule.CHOSEN or not same(decision.value, value):
                continue
            if any(not same(other.values.get(name), value) for other in sides):
                decisions[name] = Decision(value=base[name], rule=Rule.UNDECIDED, losers=(side.state(name),))
                values[name] = base[name]
    return MergedResource(values=values, decisions=decisions, lost=merged.lost)
