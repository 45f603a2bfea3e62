"""Differences turned into changes, one by one, and put in order (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.lookup import BY_FIELD, known_at, setting_order
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.planning.changes.clusters import (
    cluster_change,
    failure_domain_change,
    isolation_change,
    resource_group_change,
)
from pulsar_fleet.planning.changes.namespaces import (
    OPEN_STRATEGY,
    STRATEGY,
    TOPIC_GRANTS,
    left_alone,
    namespace_change,
    policy_change,
    strategy_changes,
    tenant_change,
)
from pulsar_fleet.planning.changes.subscriptions import StartAt, subscription_change
from pulsar_fleet.planning.changes.topics import (
    schema_change,
    setting_rank,
    topic_change,
    topic_policy_change,
    versions_after,
)
from pulsar_fleet.planning.diff_entry import Difference, Resource
from pulsar_fleet.planning.hazards.effective_change import InForce, configurations
from pulsar_fleet.planning.hazards.guards import guard_call, lint_calls, lint_settings
from pulsar_fleet.planning.hazards.model import Hazard, worst
from pulsar_fleet.planning.plan import Action, Change, LeftAlone
from pulsar_fleet.snapshot.model import Snapshot


class Planner:
    """Turns differences into changes, one by one, and puts them in order.

    :param exact: rights, properties, roles and policies that only the target has are taken away; clusters are not.
    """

    def __init__(self, source: Snapshot, target: Snapshot, start_at: StartAt, *, exact: bool = False) -> None:
        self._exact = exact
        self._source = source
        self._target = target
        self._version = target.oldest_version()
        self._held = {one.name: comparable(one.policies, target.cluster) for one in target.namespaces}
        self._wanted = {one.name: comparable(one.policies, target.cluster) for one in source.namespaces}
        self._topics = {one.name for one in source.topics}
        self._brokers = [broker.address for broker in target.brokers]
        self._start_at = start_at
        self._in_force = InForce(
            brokers=configurations(target.brokers),
            namespaces=self._held,
            topics=_topic_documents(target),
            namespaces_after=self._wanted,
            topics_after=_topic_documents(source),
        )
        self._changes: list[Change] = []
        self._without: set[str] = set()
        self.left: list[LeftAlone] = []

    def take(self, found: Difference) -> None:
        """Plan for one difference. What lies in a topic that is not created is left alone with it."""
        if found.name in self._without:
            self.left.append(left_alone(found, "its topic is left alone"))
            return
        decided = self._decide(found)
        if isinstance(decided, LeftAlone):
            self.left.append(decided)
            if found.resource is Resource.TOPIC and (found.target is None or 0 in (found.source, found.target)):
                self._without.add(found.name)
            return
        for call in decided.calls:
            guard_call(call, self._target.cluster)
        self._changes.append(decided)

    def ordered(self) -> tuple[Change, ...]:
        """What belongs to the cluster, then namespace by namespace what it needs, each after what it depends on."""
        shared: list[Change] = []
        within: dict[str, list[Change]] = {}
        for change in self._changes:
            namespace = change.namespace
            (shared if namespace is None else within.setdefault(str(namespace), [])).append(change)
        ordered = (*shared, *(change for name in sorted(within) for change in self._of_namespace(name, within[name])))
        created = {change.name for change in ordered if change.action is Action.CREATE and not change.field}
        return tuple(self._marked(change, new=change.name in created) for change in ordered)

    def _marked(self, change: Change, *, new: bool) -> Change:
        """The change with its hazard, and with what happens in its reason.

        In something that the same plan creates nothing is stored yet that a setting could lose.
        """
        marks = lint_calls(change.calls, self._target.cluster)
        if not new:
            marks += lint_settings(self._in_force.settings(change))
        own = Hazard.NONE if new else change.hazard
        hazard = worst(own, *(mark.hazard for mark in marks))
        reasons = dict.fromkeys(mark.reason for mark in marks if mark.hazard is hazard)
        return replace(change, hazard=hazard, reason="; ".join([change.reason, *reasons]))

    def _decide(self, found: Difference) -> Change | LeftAlone:
        if not found.resource.in_namespace:
            return self._decide_shared(found)
        match found.resource:
            case Resource.NAMESPACE:
                return namespace_change(self._without_newer(found), self._source, self._target)
            case Resource.POLICY:
                return policy_change(
                    self._without_orphans(found), self._held[found.name], self._version, exact=self._exact
                )
            case Resource.TOPIC:
                return topic_change(found)
            case Resource.SCHEMA:
                return schema_change(found)
            case Resource.TOPIC_POLICY:
                return topic_policy_change(found, self._version)
            case _:
                return subscription_change(found, self._start_at)

    def _decide_shared(self, found: Difference) -> Change | LeftAlone:
        own = self._target.cluster
        match found.resource:
            case Resource.CLUSTER:
                return cluster_change(found)
            case Resource.RESOURCE_GROUP:
                return resource_group_change(found)
            case Resource.FAILURE_DOMAIN:
                return failure_domain_change(found, own, self._brokers)
            case Resource.ISOLATION:
                return isolation_change(found, own, self._brokers)
            case _:
                return tenant_change(found, exact=self._exact)

    def _without_newer(self, found: Difference) -> Difference:
        """The target's brokers would drop what they do not know without a word, so it is told and left out."""
        document = found.source or {}
        newer = [
            field for field in document if field in BY_FIELD and not known_at(BY_FIELD[field].since, self._version)
        ]
        for field in comparable({field: document[field] for field in newer}, self._target.cluster):
            reason = f"needs Pulsar {BY_FIELD[field].since} on the target, which runs {self._version}"
            self.left.append(left_alone(replace(found, field=field), reason))
        return replace(found, source={field: document[field] for field in document if field not in newer} or None)

    def _without_orphans(self, found: Difference) -> Difference:
        """Rights on topics that the source itself no longer has are left alone: the broker refuses to grant them."""
        grants = (found.source or {}).get(TOPIC_GRANTS) if found.field == "auth_policies" else None
        orphans = sorted(topic for topic in grants or {} if str(TopicName.parse(topic).parent) not in self._topics)
        if not grants or not orphans:
            return found
        self.left.append(left_alone(found, f"rights on topics that are not there: {', '.join(orphans)}"))
        kept = {topic: grant for topic, grant in grants.items() if topic not in orphans}
        rest = {section: entries for section, entries in found.source.items() if section != TOPIC_GRANTS}
        return replace(found, source={**rest, TOPIC_GRANTS: kept} if kept else rest)

    def _of_namespace(self, name: str, mine: list[Change]) -> Iterable[Change]:
        by_kind = {kind: [change for change in mine if change.resource is kind] for kind in Resource}
        policies = _in_setting_order(by_kind[Resource.POLICY])
        schemas = by_kind[Resource.SCHEMA]
        if any(versions_after(change) > 1 for change in schemas):
            policies, schemas = self._with_open_strategy(name, policies, schemas)
        topic_policies = sorted(by_kind[Resource.TOPIC_POLICY], key=setting_rank)
        # Rights on topics can only be granted when the topics are there.
        grants = [change for change in policies if change.field == "auth_policies"]
        return (
            *by_kind[Resource.NAMESPACE],
            *(change for change in policies if change not in grants),
            *by_kind[Resource.TOPIC],
            *grants,
            *schemas,
            *topic_policies,
            *by_kind[Resource.SUBSCRIPTION],
        )

    def _with_open_strategy(
        self, name: str, policies: list[Change], schemas: list[Change]
    ) -> tuple[list[Change], list[Change]]:
        final = self._wanted[name].get(STRATEGY)
        if final == OPEN_STRATEGY:
            return policies, schemas
        now = self._held[name].get(STRATEGY) if name in self._held else final
        opened, restored = strategy_changes(name, now, final)
        others = [change for change in policies if change.field != STRATEGY]
        return others, [*([] if now == OPEN_STRATEGY else [opened]), *schemas, restored]


def _topic_documents(snapshot: Snapshot) -> dict[tuple[str, str], dict[str, Json]]:
    return {(one.topic, one.scope): topic_comparable(one.policies) for one in snapshot.topic_policies}


def _in_setting_order(changes: list[Change]) -> list[Change]:
    by_field = {change.field: change for change in changes}
    values: Mapping[str, tuple[Json, Json]] = {one.field: (one.before, one.after) for one in changes}
    return [by_field[field] for field in setting_order(values)]
