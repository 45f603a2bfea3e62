"""Whether positions of replicated subscriptions are still copied after the run (pure).

A broker copies a position when every cluster to which it sends the topic has answered through its own replicator; one
that only receives never answers, and then no position is copied to any cluster (observed, 4.2.4, with lists of
namespaces and of topics).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.effective import clusters_in_effect
from pulsar_fleet.cluster.policies.model import OWN_LIST, TOPIC_CLUSTERS
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.preflight.context import blocker, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.plan import ClusterPlan, ReplicationPlan
from pulsar_fleet.snapshot.model import Snapshot

_LIST = "replication_clusters"


@dataclass(frozen=True, slots=True)
class _Lists:
    """The documents with lists of one cluster: of namespaces, and of topics by scope."""

    own: str
    namespaces: Mapping[str, JsonObject]
    topics: Mapping[tuple[str, str], JsonObject]

    def of(self, topic: TopicName) -> frozenset[str]:
        """The list in effect for a topic."""
        local, shared = (self.topics.get((str(topic), scope), {}) for scope in (Scope.LOCAL, Scope.GLOBAL))
        namespace = self.namespaces.get(str(topic.namespace), {})
        return frozenset(clusters_in_effect(local=local, shared=shared, namespace=namespace, own=self.own))


@dataclass(frozen=True, slots=True)
class _Answers:
    """Which of the other clusters in a topic's list replicate back, and which do not."""

    partners: frozenset[str]
    silent: frozenset[str]

    @classmethod
    def of(cls, own: str, topic: TopicName, lists: Mapping[str, _Lists]) -> _Answers:
        """A cluster that the run does not name may answer: what it does is not changed."""
        others = lists[own].of(topic) - {own}
        silent = frozenset(name for name in others if name in lists and own not in lists[name].of(topic))
        return cls(others - silent, silent)


def stopped_positions(
    snapshots: Mapping[str, Snapshot], planned: ReplicationPlan, request: Request
) -> Iterator[Finding]:
    """Subscriptions whose positions are copied to no cluster because a cluster of the list does not answer.

    What does not change is no finding: the doctor names it.
    """
    before = {name: _lists_now(snapshot) for name, snapshot in snapshots.items()}
    after = {name: _planned(before[name], planned.clusters[name]) for name in snapshots}
    for own, snapshot in snapshots.items():
        stopped: dict[tuple[str, bool, frozenset[str], frozenset[str]], list[str]] = {}
        for (topic, name), flagged in sorted(_flags(snapshot).items()):
            sets_flag = request.replicated_subscriptions and own in planned.topology.members
            if not flagged and not (sets_flag and request.has_topic(topic)):
                continue
            was, will = (_Answers.of(own, topic, lists) for lists in (before, after))
            worked = flagged and not was.silent and bool(was.partners)
            worse = not flagged or will.silent - was.silent or will.partners - was.partners
            if will.silent and worse:
                key = (str(topic.namespace), worked or bool(will.partners), will.silent, will.partners | was.partners)
                stopped.setdefault(key, []).append(f"{name} of {topic}")
        for (namespace, stops, silent, partners), names in stopped.items():
            yield _finding(own, namespace, names, silent, partners if stops else frozenset())


def _finding(own: str, namespace: str, names: list[str], silent: frozenset[str], partners: frozenset[str]) -> Finding:
    away = listed(sorted(silent))
    evidence = f"{away} will not replicate back to {own}; {counted(len(names), 'subscription')}: {listed(names)}"
    if not partners:
        return warning(
            "receive-only-subscriptions",
            f"{namespace} on {own}",
            evidence,
            f"Their positions are not copied to {away}: an application that moves there has its own position.",
            "nothing, if applications do not fail over to it.",
        )
    return blocker(
        "replicated-subscriptions-stop",
        f"{namespace} on {own}",
        evidence,
        f"A position is copied only while every cluster of the list answers: those of {own} are copied to no cluster, "
        f"{listed(sorted(partners - silent) or sorted(partners))} included, and an application that fails over gets "
        "again what it has acknowledged.",
        f"name {away} in 'clusters', so that it replicates back, or leave it out. Accept this only if no application "
        f"of these topics fails over from {own}.",
    )


def _flags(snapshot: Snapshot) -> dict[tuple[TopicName, str], bool]:
    """Topic and subscription → whether it has the flag, on any partition."""
    flags: dict[tuple[TopicName, str], bool] = {}
    for row in snapshot.subscriptions:
        key = TopicName.parse(row.topic), row.name
        flags[key] = flags.get(key, False) or row.replicated
    return flags


def _lists_now(snapshot: Snapshot) -> _Lists:
    return _Lists(
        snapshot.cluster,
        {state.name: state.policies for state in snapshot.namespaces},
        {(row.topic, row.scope): row.policies for row in snapshot.topic_policies},
    )


def _planned(lists: _Lists, planned: ClusterPlan) -> _Lists:
    namespaces, topics = dict(lists.namespaces), dict(lists.topics)
    for plan in planned.stages:
        for change in plan.changes:
            if change.resource is Resource.POLICY and change.field == _LIST:
                namespaces[change.name] = {_LIST: change.after}
            if change.resource is Resource.TOPIC_POLICY and change.field == OWN_LIST:
                topics[change.name, Scope.LOCAL] = {TOPIC_CLUSTERS: change.after}
    return _Lists(lists.own, namespaces, topics)
