"""From facts to states and causes of replicators, and to a row for each pair of clusters (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.defects.catalogue import defects_text
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.planning.hazards import cluster_lists
from pulsar_fleet.replication.doctor.causes.catalogue import CATALOGUE
from pulsar_fleet.replication.doctor.causes.clusters import find_cluster_causes
from pulsar_fleet.replication.doctor.causes.limits import (
    find_expiry,
    find_limit_causes,
    find_lower_limits,
    find_refusals,
)
from pulsar_fleet.replication.doctor.causes.namespaces import (
    find_auto_creation_cause,
    find_direction_causes,
    find_namespace_cause,
    find_own_cluster_causes,
    find_stray_clusters,
    find_subscription_causes,
    storing,
)
from pulsar_fleet.replication.doctor.causes.pair import (
    Assessed,
    ClusterPair,
    Explained,
    NamespacePair,
    forecast_seconds,
    lag_text,
    link_state,
    on,
)
from pulsar_fleet.replication.doctor.causes.returns import find_return_causes, return_states
from pulsar_fleet.replication.doctor.causes.topics import find_schema_causes, find_topic_causes
from pulsar_fleet.replication.doctor.facts import FleetFacts, ReplicatorFacts
from pulsar_fleet.replication.doctor.model import (
    Diagnosis,
    Examination,
    LinkState,
    RemedyCall,
    ReplicatorState,
    State,
    ordered,
)
from pulsar_fleet.replication.doctor.request import Request


def link_states(assessed: Iterable[Assessed]) -> tuple[LinkState, ...]:
    """A row for each source and target."""
    links: dict[tuple[str, str], list[Assessed]] = {}
    for row in assessed:
        links.setdefault((row.facts.source, row.facts.target), []).append(row)
    return tuple(link_state(source, target, rows) for (source, target), rows in sorted(links.items()))


_REMAINING = {
    State.BEHIND: "behind",
    State.STALLED: "stalled-unexplained",
    State.DISCONNECTED: "disconnected-unexplained",
    State.MISSING: "missing-unexplained",
}


def diagnose(facts: FleetFacts, request: Request) -> Examination:
    """The state of every replicator that a list asks for, and the causes of those that are not healthy."""
    assessed = [Assessed(row, state_of(row, request.behind_seconds)) for row in facts.replicators if row.expected]
    explained = list(_explain(facts, assessed, request))
    names = _names(explained)
    rows = [_row(row, names.get(_key(row.facts), ())) for row in assessed if row.needs_cause]
    return Examination(
        clusters=tuple(sorted(facts.clusters)),
        namespaces=len({name for _, name in facts.namespaces}),
        counts=Counter(row.state.value for row in assessed),
        replicators=tuple(sorted(rows, key=lambda row: (row.state.value, row.key))),
        links=link_states(assessed),
        returns=tuple(return_states(facts, assessed, request.moved, request.selection)),
        diagnoses=ordered([_with_lists(facts, _with_defects(facts, diagnosis)) for diagnosis in _once(explained)]),
        unread=tuple(dict.fromkeys(unread.text() for unread in facts.unread)),
        outages={cluster.connection: cluster.outage for cluster in facts.clusters.values() if cluster.outage},
        calls=dict(facts.calls),
    )


def state_of(row: ReplicatorFacts, behind_seconds: float) -> State:
    """The state by both readings.

    An entry that the target confirmed in between tells a slow replicator from one that a schema holds: both are
    connected and have a backlog.
    """
    if row.error:
        return State.UNKNOWN
    if row.last is None or (not row.last.connected and row.cursors and row.cursors[-1] is None):
        return State.MISSING
    if not row.last.connected:
        return State.DISCONNECTED
    if row.last.backlog == 0:
        return State.HEALTHY
    if row.moved is None:
        return State.UNKNOWN
    if row.moved == 0:
        return State.STALLED
    return State.BEHIND if row.last.backlog > row.per_second * behind_seconds else State.HEALTHY


def _explain(facts: FleetFacts, assessed: Sequence[Assessed], request: Request) -> Iterator[Explained]:
    done: set[tuple[str, str, str]] = set()
    for explanation in find_own_cluster_causes(facts, assessed, request.receive_only):
        done |= {_key(row.facts) for row in explanation.replicators}
        yield explanation
    for pair in _cluster_pairs(facts, assessed):
        for explanation in find_cluster_causes(pair):
            done |= {_key(row.facts) for row in explanation.replicators}
            yield explanation
    remaining: list[NamespacePair] = []
    limited: dict[tuple[str, str], list[str]] = {}
    for namespaces in _namespace_pairs(facts, assessed):
        for explanation in _of_namespace(namespaces, done, request, remaining):
            done |= {_key(row.facts) for row in explanation.replicators}
            if explanation.diagnosis.id == "target-publish-limited":
                limited.setdefault((namespaces.source, namespaces.target), []).append(explanation.diagnosis.resource)
            yield explanation
    for namespaces in remaining:
        yield from _remaining(namespaces, limited.get((namespaces.source, namespaces.target), ()))
    yield from find_return_causes(facts, request.moved, request.selection)
    yield from find_subscription_causes(facts, assessed)
    yield from find_stray_clusters(facts)


def _of_namespace(
    pair: NamespacePair, done: Collection[tuple[str, str, str]], request: Request, remaining: list[NamespacePair]
) -> Iterator[Explained]:
    """The causes of one namespace; what none of them explains is added to `remaining`."""
    every, pair = pair, _without(pair, done)
    causes = list(find_namespace_cause(pair))
    yield from causes
    yield from find_direction_causes(pair, request.receive_only)
    if causes or not pair.here.is_served or (pair.there and not pair.there.is_served):
        return
    yield from find_auto_creation_cause(pair)
    for find in (find_refusals, find_topic_causes, find_schema_causes, find_limit_causes):
        found = list(find(pair))
        yield from found
        pair = _without(pair, {_key(row.facts) for explanation in found for row in explanation.replicators})
    yield from find_expiry(every, every.failing)
    yield from find_lower_limits(every)
    remaining.append(pair)


def _without(pair: NamespacePair, done: Collection[tuple[str, str, str]]) -> NamespacePair:
    failing = tuple(row for row in pair.failing if _key(row.facts) not in done)
    return NamespacePair(clusters=pair.clusters, here=pair.here, there=pair.there, failing=failing)


def _remaining(pair: NamespacePair, limited: Sequence[str]) -> Iterator[Explained]:
    """Replicators that no cause of their own explains, by state and topic.

    :param limited: topics of the same pair of clusters whose publish rate is limited on the target, and exceeded.
    """
    if limited:
        for topic, rows in pair.by_topic((State.DISCONNECTED, State.STALLED)).items():
            evidence = f"{lag_text(rows)}; a publish rate on {pair.target} holds back {listed(sorted(limited))}."
            yield pair.diagnose("connection-held-back", evidence, explained=rows, resource=str(topic))
        slow = tuple(row for row in pair.failing if row.state not in (State.DISCONNECTED, State.STALLED))
        pair = replace(pair, failing=slow)
    for state, id_ in _REMAINING.items():
        for topic, rows in pair.by_topic((state,)).items():
            evidence = f"{lag_text(rows)}, {sum(row.facts.per_second for row in rows):,.1f} entries/s confirmed."
            calls: tuple[RemedyCall, ...] = ()
            if state is State.MISSING and pair.target in pair.here.clusters:
                calls = on(pair.source, storing(pair.name, {*pair.here.clusters, pair.source}))
            if state is State.STALLED:
                calls = on(pair.target, *(bare("PUT", f"/{row.facts.topic.path}/unload") for row in rows))
            yield pair.diagnose(id_, evidence, explained=rows, resource=str(topic), calls=calls)


def _cluster_pairs(facts: FleetFacts, assessed: Sequence[Assessed]) -> Iterator[ClusterPair]:
    lists = {(namespace.cluster, target) for namespace in facts.namespaces.values() for target in namespace.targets}
    pairs = lists | {(row.facts.source, row.facts.target) for row in assessed}
    for source, target in sorted(pairs):
        rows = [row for row in assessed if _pair(row) == (source, target)]
        yield ClusterPair(
            facts=facts,
            source=facts.clusters[source],
            target_name=target,
            failing=tuple(row for row in rows if row.needs_cause),
            connected=sum(bool(row.facts.last and row.facts.last.connected) for row in rows),
            lists=(source, target) in lists,
        )


def _namespace_pairs(facts: FleetFacts, assessed: Sequence[Assessed]) -> Iterator[NamespacePair]:
    groups: dict[tuple[str, str, NamespaceName], list[Assessed]] = {}
    for row in assessed:
        if row.needs_cause:
            groups.setdefault((*_pair(row), row.facts.namespace), []).append(row)
    for here in sorted(facts.namespaces.values(), key=lambda row: (row.cluster, row.name)):
        for target in here.targets if here.exists else ():
            clusters = ClusterPair(facts=facts, source=facts.clusters[here.cluster], target_name=target)
            yield NamespacePair(
                clusters=clusters,
                here=here,
                there=facts.namespaces.get((target, here.name)),
                failing=tuple(groups.get((here.cluster, target, here.name), ())),
            )


def _pair(row: Assessed) -> tuple[str, str]:
    return row.facts.source, row.facts.target


def _key(row: ReplicatorFacts) -> tuple[str, str, str]:
    return row.source, row.target, str(row.topic)


def _once(explained: Sequence[Explained]) -> list[Diagnosis]:
    """Each diagnosis once; a mutual one of both directions together."""
    merged: dict[str, Diagnosis] = {}
    for explanation in explained:
        found = explanation.diagnosis
        pair = sorted((found.source, found.target)) if CATALOGUE[found.id].mutual else [found.source, found.target]
        key = " ".join([found.id, *pair, found.resource])
        first = merged.setdefault(key, found)
        if first is not found:
            merged[key] = replace(first, replicators=first.replicators + found.replicators)
    return list(merged.values())


def _with_defects(facts: FleetFacts, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with the known defects of brokers that show so: of the source, or of both where it is mutual."""
    names = [diagnosis.source, *([diagnosis.target] if CATALOGUE[diagnosis.id].mutual else [])]
    known = defects_text(diagnosis.id, {facts.clusters[name].version for name in names if name in facts.clusters})
    return replace(diagnosis, evidence=f"{diagnosis.evidence} {known}") if known else diagnosis


def _with_lists(facts: FleetFacts, diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with the lists that its calls replace, as they were read."""
    return replace(diagnosis, calls=tuple(replace(row, replaces=_list_of(facts, row)) for row in diagnosis.calls))


def _list_of(facts: FleetFacts, remedy: RemedyCall) -> tuple[str, ...] | None:
    for namespace in facts.namespaces.values() if cluster_lists(remedy.call) else ():
        if namespace.cluster != remedy.cluster:
            continue
        base = f"/namespaces/{namespace.name.path}"
        lists = {
            f"{base}/replication": namespace.clusters if namespace.exists else None,
            f"{base}/allowedClusters": namespace.allowed_clusters if namespace.exists else None,
            f"/tenants/{quote(namespace.name.tenant, safe='')}": namespace.tenant_clusters,
        }
        if (names := lists.get(remedy.call.path)) is not None:
            return names
    return None


def _names(explained: Sequence[Explained]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    names: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for explanation in explained:
        for row in explanation.replicators:
            key = _key(row.facts)
            names[key] = (*names.get(key, ()), explanation.diagnosis.id)
    return names


def _row(row: Assessed, causes: tuple[str, ...]) -> ReplicatorState:
    facts = row.facts
    return ReplicatorState(
        source=facts.source,
        target=facts.target,
        topic=str(facts.topic),
        state=row.state,
        causes=causes,
        backlog=facts.backlog,
        delay_seconds=facts.last.delay_seconds if facts.last else 0.0,
        per_second=round(facts.per_second, 2),
        forecast_seconds=forecast_seconds(facts),
    )
