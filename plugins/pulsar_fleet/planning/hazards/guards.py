"""Assess the hazard of every planned change, and refuse the calls that no permission allows (pure).

The rules, each with its hazard and its reason, are the tables in `hazards/rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.model import TOPIC_CLUSTERS, TopicPolicyField
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazard import Hazard, Risk, cluster_lists, is_global_topic_list, worst
from pulsar_fleet.planning.hazards.rules import CALL_RULES, VALUE_RULES, WAY_BACK, ValueChange
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.resources import lists_of_topics


def with_risks(change: Change, own: str, values: Iterable[ValueChange]) -> Change:
    """The change with the highest hazard of its calls to the cluster `own` and of `values`; the reason names it."""
    risks = risks_of_calls(change.calls, own) + risks_of_values(values)
    hazard = worst(change.hazard, *(risk.hazard for risk in risks))
    reasons = dict.fromkeys(risk.reason for risk in risks if risk.hazard is hazard)
    return replace(change, hazard=hazard, reason="; ".join([change.reason, *reasons]))


def risks_of_calls(calls: Iterable[Call], own: str) -> tuple[Risk, ...]:
    """What calls to the cluster `own` can do, whatever the plan says about them; the highest hazard first."""
    return _worst_first(rule.risk for call in calls for rule in CALL_RULES if rule.matches(call, own))


def risks_of_values(values: Iterable[ValueChange]) -> tuple[Risk, ...]:
    """What a change of a value can do; several values are all that may be effective."""
    return _worst_first(rule.risk for value in values for rule in VALUE_RULES if rule.matches(value))


class OtherDirection:
    """Finds the changes that make the target replicate to a sender that only sends to it now.

    :param sender: in its own terms, with the namespaces of the changes.
    """

    def __init__(self, sender: Snapshot, target: Snapshot) -> None:
        self._sender, self._target = _Lists(sender), _Lists(target)

    def with_risk(self, change: Change) -> Change:
        """The change as an irreversible one where it does; what a plan creates on the target gets its whole list."""
        sender, target = self._sender, self._target
        if not _is_list_of_clusters(change) or not target.has(change.name):
            return change
        asked = sender.cluster in (change.after or ()) and sender.cluster not in target.of(change.name)
        if not asked or target.cluster not in sender.of(change.name):
            return change
        reason = f"{change.reason}; {WAY_BACK.format(sender.cluster)}"
        return replace(change, hazard=worst(change.hazard, Hazard.IRREVERSIBLE), reason=reason)


class _Lists:
    """The lists of clusters in effect on a cluster, of namespaces and topics."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cluster = snapshot.cluster
        self._topics = {topic.name for topic in snapshot.topics}
        self._namespaces = {
            state.name: frozenset(state.policies.get("replication_clusters") or ()) for state in snapshot.namespaces
        }
        self._own = lists_of_topics(snapshot.topic_policies)

    def has(self, name: str) -> bool:
        return name in self._namespaces or name in self._topics

    def of(self, name: str) -> frozenset[str]:
        if "://" not in name:
            return self._namespaces.get(name, frozenset())
        topic = TopicName.parse(name)
        return self._own.get(topic) or self._namespaces.get(str(topic.namespace), frozenset())


def _is_list_of_clusters(change: Change) -> bool:
    if change.resource is Resource.TOPIC_POLICY:
        return TopicPolicyField.parse(change.field).policy == TOPIC_CLUSTERS
    return change.resource is Resource.POLICY and change.field == "replication_clusters"


def guard_call(call: Call, own: str) -> None:
    """Refuse a call that no permission allows. Every planned call passes here immediately before it is sent."""
    guard_cluster_lists(call, own)
    for rule in CALL_RULES:
        if rule.never and rule.matches(call, own):
            raise PreconditionFailed(f"{call.text()} on {own!r}: {rule.risk.reason}. Nothing was sent.", cluster=own)


def guard_cluster_lists(call: Call, own: str) -> None:
    """Refuse a cluster list without the name of the cluster that stores it.

    The broker answers 200 to such a list and deletes all topics of the namespace within a second (observed). Every
    call passes this function immediately before it is sent, with the cluster name that the brokers report.

    :raises PreconditionFailed: the list lacks `own`, or it is a topic's global cluster list.
    """
    for field, names in cluster_lists(call):
        if own not in names:
            raise PreconditionFailed(
                f"{call.text()} would set {field} to {sorted(names)!r} on {own!r}, without {own!r} itself: "
                f"{own} would delete all topics under it. Nothing was sent; add {own!r} to the list.",
                cluster=own,
            )
    if is_global_topic_list(call):
        raise PreconditionFailed(
            f"{call.text()}: a topic's global cluster list deletes the topic on every cluster that is not in it. "
            "Nothing was sent; set the list of the namespace, or the local list of the topic, instead.",
            cluster=own,
        )


def _worst_first(risks: Iterable[Risk]) -> tuple[Risk, ...]:
    return tuple(sorted(dict.fromkeys(risks), key=lambda risk: -list(Hazard).index(risk.hazard)))
