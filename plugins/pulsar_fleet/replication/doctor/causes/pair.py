"""A pair of clusters, and a namespace on both, as causes look at them (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.preflight.target_limits import Effective
from pulsar_fleet.replication.doctor.causes.catalogue import CATALOGUE
from pulsar_fleet.replication.doctor.facts import (
    ClusterFacts,
    FleetFacts,
    NamespaceFacts,
    PeerData,
    ReplicatorFacts,
    TargetTopic,
    TopicPolicies,
)
from pulsar_fleet.replication.doctor.model import Diagnosis, LinkState, RemedyCall, State


@dataclass(frozen=True, slots=True)
class Assessed:
    """A replicator and its state."""

    facts: ReplicatorFacts
    state: State

    @property
    def needs_cause(self) -> bool:
        """Whether something is wrong with it."""
        return self.state is not State.HEALTHY


@dataclass(frozen=True, slots=True)
class Explained:
    """A diagnosis and the replicators that it explains."""

    diagnosis: Diagnosis
    replicators: tuple[Assessed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPair:
    """A cluster that replicates, and one to which it replicates.

    :param target: None if it is not among the examined clusters.
    :param failing: the replicators between them that are not healthy.
    :param connected: number of those that are connected: brokers then reach the target, and it accepts them.
    :param lists: whether a list of the source names the target.
    """

    facts: FleetFacts
    source: ClusterFacts
    target_name: str
    failing: tuple[Assessed, ...] = ()
    connected: int = 0
    lists: bool = True

    @property
    def target(self) -> ClusterFacts | None:
        """The facts of the target."""
        return self.facts.clusters.get(self.target_name)

    @property
    def peer(self) -> PeerData | None:
        """The target as the source knows it."""
        return (self.source.peers or {}).get(self.target_name)

    @property
    def resource(self) -> str:
        """The pair as a resource of a diagnosis."""
        return f"cluster {self.target_name} as {self.source.name} knows it"

    @property
    def never_connects(self) -> bool:
        """Whether replicators were read, and none is connected."""
        return bool(self.unlinked()) and not self.connected

    def unlinked(self) -> tuple[Assessed, ...]:
        """The replicators that are not connected, or could not be read."""
        return tuple(row for row in self.failing if row.state not in (State.BEHIND, State.STALLED))

    def diagnose(
        self, id_: str, evidence: str, *, calls: Iterable[RemedyCall] = (), automatic: bool | None = None
    ) -> Explained:
        """A diagnosis of the pair, which explains all replicators that are not connected."""
        unlinked, names = self.unlinked(), (self.source.name, self.target_name)
        return Explained(diagnosis(id_, self.resource, *names, evidence, len(unlinked), calls, automatic), unlinked)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacePair:
    """A namespace on the source and on the target.

    :param here: the namespace on the source.
    :param there: on the target, None if the target was not examined.
    :param failing: its replicators to the target that are not healthy.
    """

    clusters: ClusterPair
    here: NamespaceFacts
    there: NamespaceFacts | None
    failing: tuple[Assessed, ...] = ()

    @property
    def facts(self) -> FleetFacts:
        """Everything that was read."""
        return self.clusters.facts

    @property
    def name(self) -> NamespaceName:
        """The namespace."""
        return self.here.name

    @property
    def source(self) -> str:
        """Name of the source."""
        return self.clusters.source.name

    @property
    def target(self) -> str:
        """Name of the target."""
        return self.clusters.target_name

    def target_topic(self, topic: TopicName) -> TargetTopic:
        """The topic or partition on the target, as far as it was read."""
        return self.facts.targets.get((self.target, topic), TargetTopic())

    def effective(self, field: str, topic: TopicName, *, on_target: bool) -> Json:
        """The value of a topic policy that is in effect, None if no layer sets one."""
        layers = self.in_effect(topic, on_target=on_target)
        return None if layers is None else layers.value(field)

    def in_effect(self, topic: TopicName | None, *, on_target: bool) -> Effective | None:
        """What is in effect for a topic, or for the namespace without one; None for a target that was not read."""
        namespace = self.there if on_target else self.here
        cluster = self.clusters.target if on_target else self.clusters.source
        if namespace is None or cluster is None:
            return None
        own = TopicPolicies() if topic is None else namespace.policies_of(topic)
        return Effective(
            cluster=cluster.name,
            local=own.local,
            shared=own.shared,
            namespace=namespace.policies,
            configuration=cluster.configuration or {},
            bookies=cluster.bookies,
        )

    def diagnose(
        self,
        id_: str,
        evidence: str,
        *,
        explained: Sequence[Assessed] = (),
        resource: str = "",
        calls: Iterable[RemedyCall] = (),
        automatic: bool | None = None,
    ) -> Explained:
        """A diagnosis of the namespace, or of `resource`, such as a topic."""
        found = diagnosis(
            id_, resource or str(self.name), self.source, self.target, evidence, len(explained), calls, automatic
        )
        return Explained(found, tuple(explained))

    def by_topic(self, states: Collection[State]) -> dict[TopicName, list[Assessed]]:
        """The failing replicators in these states, by topic; the partitions of a topic together."""
        groups: dict[TopicName, list[Assessed]] = {}
        for row in self.failing:
            if row.state in states:
                groups.setdefault(row.facts.topic.parent, []).append(row)
        return groups


def diagnosis(
    id_: str,
    resource: str,
    source: str,
    target: str,
    evidence: str,
    replicators: int = 0,
    calls: Iterable[RemedyCall] = (),
    automatic: bool | None = None,
) -> Diagnosis:
    """A diagnosis with the texts of the catalogue."""
    cause, names = CATALOGUE[id_], {"source": source, "target": target, "resource": resource}
    sent = tuple(calls)
    return Diagnosis(
        id=id_,
        severity=cause.severity,
        resource=resource,
        source=source,
        target=target,
        evidence=evidence,
        consequence=cause.consequence.format(**names),
        remedy=cause.remedy.format(**names),
        replicators=replicators,
        calls=sent,
        automatic=bool(sent)
        and all(call.is_ready for call in sent)
        and (cause.automatic if automatic is None else automatic),
    )


def on(cluster: str, *calls: Call) -> tuple[RemedyCall, ...]:
    """Calls to one cluster."""
    return tuple(RemedyCall(cluster=cluster, call=call) for call in calls)


def forecast_seconds(row: ReplicatorFacts) -> float | None:
    """Until the backlog is sent if both rates stay; None if it does not shrink."""
    if row.growth_per_second >= 0 or row.last is None:
        return None
    return row.last.backlog / -row.growth_per_second


def link_state(source: str, target: str, rows: Sequence[Assessed]) -> LinkState:
    """All replicators from one cluster to another."""
    seconds = [_catch_up(row) for row in rows]
    known = [number for number in seconds if number is not None]
    return LinkState(
        source=source,
        target=target,
        counts=Counter(row.state.value for row in rows),
        backlog=sum(row.facts.backlog for row in rows),
        delay_seconds=max((row.facts.last.delay_seconds if row.facts.last else 0.0 for row in rows), default=0.0),
        per_second=round(sum(row.facts.per_second for row in rows), 2),
        catch_up_seconds=max(known, default=0.0) if len(known) == len(seconds) else None,
    )


def _catch_up(row: Assessed) -> float | None:
    """Until what waits now is sent, while a healthy replicator sends as fast as producers publish."""
    if row.state is State.HEALTHY:
        return row.facts.backlog / row.facts.per_second if row.facts.per_second else 0.0
    return forecast_seconds(row.facts)


def lag_text(rows: Sequence[Assessed]) -> str:
    """`3 replicators disconnected (t-partition-0, …), 1,200 entries behind`."""
    backlog = sum(row.facts.backlog for row in rows)
    states = ", ".join(dict.fromkeys(row.state.value for row in rows))
    names = listed([row.facts.topic.local for row in rows])
    return f"{counted(len(rows), 'replicator')} {states} ({names}), {counted(backlog, 'entry')} behind"
