"""Turn differences into ordered changes (pure)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName, with_parent
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, is_supported
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.planning.changes.clusters import (
    cluster_change,
    failure_domain_change,
    isolation_change,
    resource_group_change,
)
from pulsar_fleet.planning.changes.limits import in_accepted_order
from pulsar_fleet.planning.changes.namespaces import (
    OPEN_STRATEGY,
    STRATEGY,
    TOPIC_GRANTS,
    namespace_change,
    policy_change,
    strategy_changes,
    tenant_change,
)
from pulsar_fleet.planning.changes.topics import (
    schema_change,
    setting_rank,
    subscription_change,
    topic_change,
    topic_policy_change,
    versions_after,
)
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side
from pulsar_fleet.planning.hazards import EffectiveValues, configurations, guard_call, with_risks
from pulsar_fleet.planning.plan import ONLY_ON_TARGET, Action, Change, Hazard, LeftAlone
from pulsar_fleet.planning.unread import Unread
from pulsar_fleet.snapshot.model import Snapshot

_RANKS = {field: rank for rank, field in enumerate(BY_FIELD)}
"""Position of each policy of a namespace in the order of setting."""


class Planner:
    """Turns differences into changes, and orders the changes.

    :param exact: remove permissions, properties, roles and policies that only the target has; clusters stay. Schemas
        are registered under the namespace's own strategy, which a copy of a whole history may have to set aside.
    :param given: fingerprints of the secrets of cluster data that the plan is applied with.
    """

    def __init__(
        self,
        source: Snapshot,
        target: Snapshot,
        unread: Unread | None = None,
        *,
        exact: bool = False,
        given: Collection[str] = (),
    ) -> None:
        self._exact = exact
        self._given = given
        self._source = source
        self._target = target
        self._version = target.oldest_version()
        self._target_documents = _namespace_documents(target, target.cluster)
        self._source_documents = _namespace_documents(source, target.cluster)
        self._topics = {topic.name for topic in source.topics}
        self._unread = unread or Unread(source, target)
        self._brokers = [broker.address for broker in target.brokers]
        self._effective = EffectiveValues(
            brokers=configurations(target.brokers),
            namespaces=self._target_documents,
            topics=_topic_documents(target),
            namespaces_after=self._source_documents,
            topics_after=_topic_documents(source),
        )
        self._changes: list[Change] = []
        self._skipped_topics: set[str] = set()
        self.left_alone: list[LeftAlone] = []

    def add(self, difference: Difference) -> None:
        """Plan one difference. What belongs to a topic that is not created is left alone with the topic."""
        if with_parent(difference.name) & self._skipped_topics:
            self.left_alone.append(LeftAlone.of(difference, "its topic is left alone"))
            return
        change = self._decide(difference)
        if isinstance(change, LeftAlone):
            self.left_alone.append(change)
            if difference.resource is Resource.TOPIC and (
                difference.target is None or 0 in (difference.source, difference.target)
            ):
                self._skipped_topics.add(difference.name)
            return
        for call in change.calls:
            guard_call(call, self._target.cluster)
        self._changes.append(change)

    def ordered(self) -> tuple[Change, ...]:
        """The cluster-wide changes, then those of each namespace; a change follows the changes that it depends on."""
        shared: list[Change] = []
        within: dict[str, list[Change]] = {}
        for change in self._changes:
            namespace = change.namespace
            (shared if namespace is None else within.setdefault(str(namespace), [])).append(change)
        ordered = (*shared, *(change for name in sorted(within) for change in self._of_namespace(name, within[name])))
        created = {change.name for change in ordered if change.action is Action.CREATE and not change.field}
        return tuple(self._with_risks(change, new=bool(with_parent(change.name) & created)) for change in ordered)

    def _with_risks(self, change: Change, *, new: bool) -> Change:
        """The change with its hazard. What the same plan creates stores no messages yet that a value could discard."""
        if new:
            return with_risks(replace(change, hazard=Hazard.NONE), self._target.cluster, ())
        return with_risks(change, self._target.cluster, self._effective.changes(change))

    def _decide(self, difference: Difference) -> Change | LeftAlone:
        if difference.side is Side.EXTRA and difference.whole:
            return LeftAlone.of(difference, ONLY_ON_TARGET)
        if not difference.resource.in_namespace:
            return self._decide_shared(difference)
        match difference.resource:
            case Resource.NAMESPACE:
                return namespace_change(self._without_newer(difference), self._source, self._target)
            case Resource.POLICY:
                return policy_change(
                    self._without_orphans(difference),
                    self._source_documents.get(difference.name, {}),
                    self._target_documents[difference.name],
                    self._version,
                    exact=self._exact,
                )
            case Resource.TOPIC:
                return topic_change(difference, exact=self._exact)
            case Resource.SCHEMA:
                return schema_change(difference)
            case Resource.TOPIC_POLICY:
                return topic_policy_change(difference, self._version)
            case _:
                return subscription_change(difference, self._version)

    def _decide_shared(self, difference: Difference) -> Change | LeftAlone:
        own = self._target.cluster
        match difference.resource:
            case Resource.CLUSTER:
                return cluster_change(difference, self._given)
            case Resource.RESOURCE_GROUP:
                return resource_group_change(difference)
            case Resource.FAILURE_DOMAIN:
                return failure_domain_change(difference, own, self._brokers)
            case Resource.ISOLATION:
                return isolation_change(difference, own, self._brokers)
            case _:
                return tenant_change(difference, exact=self._exact)

    def _without_newer(self, difference: Difference) -> Difference:
        """Without the policies that the target's brokers are too old for: they would drop them without an error."""
        document = difference.source or {}
        newer = [
            field for field in document if field in BY_FIELD and not is_supported(BY_FIELD[field].since, self._version)
        ]
        for field in comparable({field: document[field] for field in newer}, self._target.cluster):
            reason = f"needs Pulsar {BY_FIELD[field].since} on the target, which runs {self._version}"
            self.left_alone.append(LeftAlone.of(replace(difference, field=field), reason))
        return replace(difference, source={field: document[field] for field in document if field not in newer} or None)

    def _without_orphans(self, difference: Difference) -> Difference:
        """Without permissions on topics that the source no longer has, or that could not be read.

        The broker refuses to grant them.
        """
        grants = (difference.source or {}).get(TOPIC_GRANTS) if difference.field == "auth_policies" else None
        orphans = sorted(topic for topic in grants or {} if str(TopicName.parse(topic).parent) not in self._topics)
        if not grants or not orphans:
            return difference
        for why, unread in (("do not exist", False), ("could not be read", True)):
            topics = [topic for topic in orphans if self._unread.has_topic(TopicName.parse(topic).parent) is unread]
            reason = f"permissions on topics that {why}: {', '.join(topics)}"
            self.left_alone += [LeftAlone.of(difference, reason)] if topics else []
        kept = {topic: grant for topic, grant in grants.items() if topic not in orphans}
        rest = {section: entries for section, entries in difference.source.items() if section != TOPIC_GRANTS}
        return replace(difference, source={**rest, TOPIC_GRANTS: kept} if kept else rest)

    def _of_namespace(self, name: str, changes: list[Change]) -> Iterable[Change]:
        by_kind = {kind: [change for change in changes if change.resource is kind] for kind in Resource}
        policies = in_accepted_order(sorted(by_kind[Resource.POLICY], key=lambda change: _RANKS[change.field]))
        schemas = by_kind[Resource.SCHEMA]
        if not self._exact and any(versions_after(change) > 1 for change in schemas):
            policies, schemas = self._with_open_strategy(name, policies, schemas)
        document = self._source_documents.get(name, {})
        topic_policies = in_accepted_order(
            sorted(by_kind[Resource.TOPIC_POLICY], key=setting_rank), lambda _: document.get("retention_policies")
        )
        # The broker grants permissions only on existing topics.
        grants = [change for change in policies if change.field == "auth_policies"]
        return (
            *by_kind[Resource.NAMESPACE],
            *(change for change in policies if change not in grants),
            *sorted(by_kind[Resource.TOPIC], key=lambda change: bool(change.field)),
            *grants,
            *schemas,
            *topic_policies,
            *by_kind[Resource.SUBSCRIPTION],
        )

    def _with_open_strategy(
        self, name: str, policies: list[Change], schemas: list[Change]
    ) -> tuple[list[Change], list[Change]]:
        final = self._source_documents[name].get(STRATEGY)
        if final == OPEN_STRATEGY:
            return policies, schemas
        current = self._target_documents[name].get(STRATEGY) if name in self._target_documents else final
        opened, restored = strategy_changes(name, current, final)
        others = [change for change in policies if change.field != STRATEGY]
        return others, [*([] if current == OPEN_STRATEGY else [opened]), *schemas, restored]


def _namespace_documents(snapshot: Snapshot, own: str) -> dict[str, JsonObject]:
    return {state.name: comparable(state.policies, own) for state in snapshot.namespaces}


def _topic_documents(snapshot: Snapshot) -> dict[tuple[str, str], dict[str, Json]]:
    return {(row.topic, row.scope): topic_comparable(row.policies) for row in snapshot.topic_policies}
