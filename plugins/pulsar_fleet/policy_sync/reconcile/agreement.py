"""The records of a run: new merge bases, the provenance of its writes, and its conflicts (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.reconciliation_store import MergeBase, RecordedConflict
from pulsar_fleet.planning.apply.outcome import PlanResult
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.policy_sync.merge.compare import ComparedResource
from pulsar_fleet.policy_sync.merge.deletion_plan import EDIT_WINS, EXISTENCE, DeletionConflict
from pulsar_fleet.policy_sync.merge.fields import (
    CLUSTERS,
    PARTITIONS,
    ROLES,
    SCHEMAS,
    Values,
    entry_of,
    localised,
    policy_of,
    whole_value,
)
from pulsar_fleet.policy_sync.merge.merge_resource import Decision, Rule
from pulsar_fleet.policy_sync.merge.provenance import Provenance, digest
from pulsar_fleet.policy_sync.merge.view import Item

ChangeKey = tuple[Resource, str, str]
"""Kind, name and policy of a change; the policy is empty for a whole resource."""

Written = Mapping[ChangeKey, Json]
"""The values that the run wrote on a cluster, or that were already in place."""

PARTITIONED_ON_SOME = "partitioned on some clusters only"
"""The rule of the conflict about a topic that other clusters have without partitions."""

_NOT_RECORDED = ("cluster", "joined", "replaced", "decided_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The records of a run.

    :param merge_bases: only new and changed ones; None for a resource that no cluster has any more.
    :param in_force: resources and fields with the decided value on all clusters.
    :param confirmed: cluster → resource → its fields that were written there and read back.
    """

    merge_bases: Mapping[Item, MergeBase | None]
    in_force: frozenset[tuple[Item, str]]
    confirmed: Mapping[str, Mapping[Item, frozenset[str]]]


def written(applied: PlanResult) -> dict[ChangeKey, Json]:
    """The values of a plan that are in place, and those of which a part may be: somebody edited the rest meanwhile."""
    sent = (result for result in applied.results if result.outcome.in_place or result.read_back is not None)
    return {
        _key(result.change): result.change.after if result.outcome.in_place else result.read_back for result in sent
    }


def conflicts_of(compared: Iterable[ComparedResource]) -> Iterator[RecordedConflict]:
    """Every conflict, with the values of all clusters."""
    for resource in compared:
        if resource.deletion and EXISTENCE in resource.conflicts:
            yield _deletion(resource.item, resource.deletion)
        if resource.unpartitioned:
            yield _partitioning(resource)
        recorded = (EXISTENCE, PARTITIONS) if resource.unpartitioned else (EXISTENCE,)
        for name in (name for name in resource.conflicts if name not in recorded):
            decision = resource.merged.decisions[name]
            states = (side.state(name) for side in resource.sides)
            yield RecordedConflict(
                kind=resource.item[0].value,
                name=resource.item[1],
                field=name,
                rule=decision.rule.value,
                winner=decision.winner,
                sides={
                    state.cluster: {key: value for key, value in asdict(state).items() if key not in _NOT_RECORDED}
                    for state in states
                },
            )


def _deletion(item: Item, conflict: DeletionConflict) -> RecordedConflict:
    return RecordedConflict(
        kind=item[0].value,
        name=item[1],
        field=EXISTENCE,
        rule=EDIT_WINS,
        winner=conflict.winner,
        sides={cluster: {"value": edits} for cluster, edits in conflict.sides.items()},
    )


def _partitioning(resource: ComparedResource) -> RecordedConflict:
    """A topic without partitions on some clusters: neither is changed, so there is no winner."""
    counts = {side.cluster: side.values[PARTITIONS] for side in resource.sides} | dict.fromkeys(
        resource.unpartitioned, 0
    )
    return RecordedConflict(
        kind=resource.item[0].value,
        name=resource.item[1],
        field=PARTITIONS,
        rule=PARTITIONED_ON_SOME,
        winner="",
        sides={cluster: {"value": count} for cluster, count in counts.items()},
    )


def decided_values(compared: Iterable[ComparedResource], now: float) -> dict[str, dict[Item, dict[str, Provenance]]]:
    """Cluster → resource → field → provenance of the decided value: that of its original, and the values it beat.

    :param now: in seconds since 1970, for values that no cluster holds yet.
    """
    decided: dict[str, dict[Item, dict[str, Provenance]]] = {}
    for resource in compared:
        for field, decision in resource.merged.decisions.items():
            if decision.rule is Rule.UNDECIDED:
                continue
            provenance = _decided_provenance(resource, field, decision, now)
            for side in resource.sides:
                decided.setdefault(side.cluster, {}).setdefault(resource.item, {})[field] = provenance
    return decided


def conclude(compared: Iterable[ComparedResource], done: Mapping[str, Written], *, all_reachable: bool) -> Conclusion:
    """The merge bases after a run.

    :param done: cluster → the values that the run wrote there.
    :param all_reachable: whether every cluster of the fleet took part. If not, no merge base changes: the old value of
        the unreachable cluster would look like a new edit when it returns.
    """
    merge_bases: dict[Item, MergeBase | None] = {}
    in_force: set[tuple[Item, str]] = set()
    confirmed: dict[str, dict[Item, frozenset[str]]] = {}
    for resource in compared:
        clusters = [*(side.cluster for side in resource.sides), *resource.missing]
        after = {cluster: _values_after(resource, cluster, done.get(cluster, {})) for cluster in clusters}
        if all_reachable:
            base = _merge_base(resource, {name: values for name, values in after.items() if values is not None})
            if base != resource.base:
                merge_bases[resource.item] = base
        for side in resource.sides:
            if fields := _written_fields(resource, side.cluster, done.get(side.cluster, {})):
                confirmed.setdefault(side.cluster, {})[resource.item] = fields
        for name, decision in resource.merged.decisions.items():
            if all(values is None or same(values.get(name), decision.value) for values in after.values()):
                in_force.add((resource.item, name))
    return Conclusion(merge_bases=merge_bases, in_force=frozenset(in_force), confirmed=confirmed)


def _values_after(resource: ComparedResource, cluster: str, done: Written) -> Values | None:
    kind, name = resource.item
    whole = (kind, name, "")
    if cluster in resource.missing:
        if whole not in done:
            return None
        is_registered = kind is not Resource.TOPIC or (Resource.SCHEMA, name, "") in done
        return {field: value for field, value in resource.merged.values.items() if is_registered or field != SCHEMAS}
    values = dict(next(side.values for side in resource.sides if side.cluster == cluster))
    if resource.gone and whole in done and done[whole] is None:
        return None
    values |= {field: resource.merged.values.get(field) for field in _written_fields(resource, cluster, done)}
    return {field: value for field, value in values.items() if value is not None}


def _written_fields(resource: ComparedResource, cluster: str, done: Written) -> frozenset[str]:
    drifting = (field for field, clusters in resource.drifting.items() if cluster in clusters)
    return frozenset(field for field in drifting if _is_written(resource, field, cluster, done))


def _is_written(resource: ComparedResource, field: str, cluster: str, done: Written) -> bool:
    kind, name = resource.item
    values = resource.merged.values
    if kind is Resource.TENANT:
        tenant = {ROLES: values.get(ROLES) or [], CLUSTERS: localised(values.get(CLUSTERS) or [], cluster)}
        return same(done.get((kind, name, "")), tenant)
    policy = policy_of(field) if kind in (Resource.NAMESPACE, Resource.TOPIC) else field
    key = (Resource.POLICY if kind is Resource.NAMESPACE else kind, name, policy)
    if kind is Resource.TOPIC and policy == SCHEMAS:
        key = (Resource.SCHEMA, name, "")
    if key not in done:
        return False
    if field != policy:
        return same(entry_of(done[key], field), values.get(field))
    in_topic = kind is Resource.TOPIC
    return same(done[key], values.get(field) if in_topic else whole_value(policy, values, cluster))


def _merge_base(resource: ComparedResource, holders: Mapping[str, Values]) -> MergeBase | None:
    """The values that are identical on all holders; for other fields the value of the last merge base."""
    if not holders:
        return None
    base = resource.base.document if resource.base else {}
    document: Values = {}
    for field in sorted({*base, *(field for values in holders.values() for field in values)}):
        first, *others = (values.get(field) for values in holders.values())
        value = first if all(same(first, other) for other in others) else base.get(field)
        if value is not None:
            document[field] = value
    former = {*resource.base.clusters, *resource.base.gone} if resource.base else set()
    gone = former - set(holders) if resource.item[0] is not Resource.TOPIC_POLICY else set()
    return MergeBase(document=document, clusters=tuple(sorted(holders)), gone=tuple(sorted(gone)))


def _decided_provenance(resource: ComparedResource, field: str, decision: Decision, now: float) -> Provenance:
    """The provenance of the decided value on its cluster of origin, and the values it beat."""
    sources = [
        side for side in resource.sides if same(side.values.get(field), decision.value) and field in side.provenance
    ]
    sources.sort(key=lambda side: side.cluster != decision.winner)
    provenance = sources[0].provenance[field] if sources else Provenance(digest(decision.value), now, now)
    beaten = [older for loser in decision.losers for older in (digest(loser.value), *loser.replaced)]
    return replace(provenance.having_replaced(*beaten), decided_at=now) if beaten else provenance


def _key(change: Change) -> ChangeKey:
    return change.resource, change.name, change.field
