"""What a run leaves behind: what is agreed on now, how old our copies are, and who lost (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.reconciliation_store import Agreement, RecordedConflict
from pulsar_fleet.planning.apply.outcome import Applied
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.policy_sync.merge.compare import Compared
from pulsar_fleet.policy_sync.merge.fields import CLUSTERS, ROLES, Values, localised, policy_of, whole_value
from pulsar_fleet.policy_sync.merge.merge_field import Decision
from pulsar_fleet.policy_sync.merge.provenance import Seen, digest
from pulsar_fleet.policy_sync.merge.view import Item

Place = tuple[Resource, str, str]
Written = Mapping[Place, Json]
"""What is in place on a cluster by the run: resource, name and policy → the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What is to be kept.

    :param agreements: only those that are new or other than before; None is nowhere any more.
    :param in_force: resources and fields in which all clusters hold what was merged.
    """

    agreements: Mapping[Item, Agreement | None]
    in_force: frozenset[tuple[Item, str]]


def written(applied: Applied) -> dict[Place, Json]:
    """What a plan left in place."""
    return {_place(one.change): one.change.after for one in applied.results if one.outcome.in_place}


def conflicts_of(compared: Iterable[Compared]) -> Iterator[RecordedConflict]:
    """Every field in which clusters moved apart, with the values of all of them."""
    for one in compared:
        for name in one.conflicts:
            decision = one.merged.decisions[name]
            held = (side.held(name) for side in one.sides)
            yield RecordedConflict(
                kind=one.item[0].value,
                name=one.item[1],
                field=name,
                rule=decision.rule.value,
                winner=decision.winner,
                sides={
                    each.cluster: {
                        key: value
                        for key, value in asdict(each).items()
                        if key not in ("cluster", "joined", "replaced")
                    }
                    for each in held
                },
            )


def decided_values(compared: Iterable[Compared], now: float) -> dict[str, dict[Item, dict[str, Seen]]]:
    """Cluster → resource → field → the decided value, as old as its original, and knowing what it has beaten.

    :param now: in seconds since 1970, for values that no cluster holds yet.
    """
    found: dict[str, dict[Item, dict[str, Seen]]] = {}
    for one in compared:
        for field, decision in one.merged.decisions.items():
            age = _age(one, field, decision, now)
            for side in one.sides:
                found.setdefault(side.cluster, {}).setdefault(one.item, {})[field] = age
    return found


def settle(compared: Iterable[Compared], done: Mapping[str, Written], *, all_seen: bool) -> Settled:
    """What the clusters hold alike after a run.

    :param done: cluster → what is in place there by the run.
    :param all_seen: every cluster of the fleet took part. Else nothing is agreed on: the one that is away would look as
        if it had gone back to the old value when it returns.
    """
    agreements: dict[Item, Agreement | None] = {}
    in_force: set[tuple[Item, str]] = set()
    for one in compared:
        after = {cluster: _values_after(one, cluster, done.get(cluster, {})) for cluster in _clusters(one)}
        if all_seen:
            found = _agreement(one, {name: values for name, values in after.items() if values is not None})
            if found != one.agreed:
                agreements[one.item] = found
        for name, decision in one.merged.decisions.items():
            if all(values is None or same(values.get(name), decision.value) for values in after.values()):
                in_force.add((one.item, name))
    return Settled(agreements=agreements, in_force=frozenset(in_force))


def _clusters(one: Compared) -> list[str]:
    return [*(side.cluster for side in one.sides), *one.missing]


def _values_after(one: Compared, cluster: str, done: Written) -> Values | None:
    kind, name = one.item
    whole = (kind, name, "")
    if cluster in one.missing:
        return dict(one.merged.values) if whole in done else None
    held = dict(next(side.values for side in one.sides if side.cluster == cluster))
    if one.gone and whole in done and done[whole] is None:
        return None
    for field in (field for field, clusters in one.drifting.items() if cluster in clusters):
        if _is_written(one, field, cluster, done):
            held[field] = one.merged.values.get(field)
    return {field: value for field, value in held.items() if value is not None}


def _is_written(one: Compared, field: str, cluster: str, done: Written) -> bool:
    kind, name = one.item
    values = one.merged.values
    if kind is Resource.TENANT:
        wanted = {ROLES: values.get(ROLES) or [], CLUSTERS: localised(values.get(CLUSTERS) or [], cluster)}
        return same(done.get((kind, name, "")), wanted)
    policy = policy_of(field) if kind is Resource.NAMESPACE else field
    place = (Resource.POLICY if kind is Resource.NAMESPACE else kind, name, policy)
    return place in done and same(done[place], whole_value(policy, values, cluster))


def _agreement(one: Compared, holders: Mapping[str, Values]) -> Agreement | None:
    """What all holders have alike; where they do not, what they agreed on before."""
    if not holders:
        return None
    base = one.agreed.document if one.agreed else {}
    document: Values = {}
    for field in sorted({*base, *(field for values in holders.values() for field in values)}):
        first, *rest = (values.get(field) for values in holders.values())
        value = first if all(same(first, other) for other in rest) else base.get(field)
        if value is not None:
            document[field] = value
    had = {*one.agreed.clusters, *one.agreed.gone} if one.agreed else set()
    gone = had - set(holders) if one.item[0] is not Resource.TOPIC_POLICY else set()
    return Agreement(document=document, clusters=tuple(sorted(holders)), gone=tuple(sorted(gone)))


def _age(one: Compared, field: str, decision: Decision, now: float) -> Seen:
    """When the decided value was written at its origin, and all that it has beaten."""
    alike = [side for side in one.sides if same(side.values.get(field), decision.value) and field in side.seen]
    alike.sort(key=lambda side: side.cluster != decision.winner)
    age = alike[0].seen[field] if alike else Seen(digest(decision.value), now, now)
    beaten = [older for loser in decision.losers for older in (digest(loser.value), *loser.replaced)]
    return age.having_replaced(*beaten)


def _place(change: Change) -> Place:
    return change.resource, change.name, change.field
