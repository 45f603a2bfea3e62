"""Plan how one cluster becomes equal to another (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pulsar_fleet.change.diff import Difference, Resource, diff
from pulsar_fleet.change.hazards import Hazard, guard_cluster_lists, hazard_of_call, worst
from pulsar_fleet.change.namespace_changes import (
    OPEN_STRATEGY,
    STRATEGY,
    left_alone,
    namespace_change,
    policy_change,
    strategy_changes,
    tenant_change,
)
from pulsar_fleet.change.plan import Action, Change, LeftAlone, Plan
from pulsar_fleet.change.topic_changes import (
    schema_change,
    setting_rank,
    subscription_change,
    topic_change,
    topic_policy_change,
    versions_after,
)
from pulsar_fleet.change.translation import translate_snapshot
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies import setting_order
from pulsar_fleet.cluster.policy_documents import comparable
from pulsar_fleet.cluster.states import Snapshot


def plan_changes(source: Snapshot, target: Snapshot, *, subscriptions: bool = True) -> Plan:
    """What makes the target hold all that the source holds; empty when nothing differs.

    Nothing is ever deleted: what exists only on the target is named in `left_alone`.

    :param subscriptions: create missing subscriptions, at the earliest message.
    :raises Refused: an incomplete snapshot, or two whose secrets cannot be compared.
    """
    for snapshot in (source, target):
        _require_complete(snapshot)
    if source.key_id != target.key_id:
        raise Refused(
            f"The snapshots of {source.cluster} and {target.cluster} were taken under different fingerprint keys, so "
            "their secrets cannot be compared: set one PULSAR_FLEET_FINGERPRINT_KEY on every worker, take both again."
        )
    translated, unknown = translate_snapshot(source, target)
    planner = _Planner(translated, target)
    for difference in diff(translated, target):
        if subscriptions or difference.resource is not Resource.SUBSCRIPTION:
            planner.take(difference)
    return Plan(
        source=source.cluster,
        target=target.cluster,
        changes=planner.ordered(),
        left_alone=(*unknown, *planner.left),
    )


def _require_complete(snapshot: Snapshot) -> None:
    if snapshot.unreadable:
        first = snapshot.unreadable[0]
        raise Refused(
            f"The snapshot of {snapshot.cluster} is incomplete: {len(snapshot.unreadable)} resources could not be "
            f"read, first {first.resource}: {first.detail} Take the snapshot again; a plan from it would be wrong."
        )


TOPIC_GRANTS = "destination_auth"


class _Planner:
    """Turns differences into changes, one by one, and puts them in order."""

    def __init__(self, source: Snapshot, target: Snapshot) -> None:
        self._target = target
        self._version = target.oldest_version()
        self._held = {one.name: comparable(one.policies, target.cluster) for one in target.namespaces}
        self._wanted = {one.name: comparable(one.policies, target.cluster) for one in source.namespaces}
        self._topics = {one.name for one in source.topics}
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
            guard_cluster_lists(call, self._target.cluster)
        hazard = worst(decided.hazard, *(hazard_of_call(call) for call in decided.calls))
        self._changes.append(replace(decided, hazard=hazard))

    def ordered(self) -> tuple[Change, ...]:
        """Tenants, then namespace by namespace what it needs, each after what it depends on."""
        tenants = [change for change in self._changes if change.namespace is None]
        names = sorted({str(change.namespace) for change in self._changes if change.namespace})
        ordered = (*tenants, *(change for name in names for change in self._of_namespace(name)))
        created = {change.name for change in ordered if change.action is Action.CREATE and not change.field}
        return tuple(_harmless(change) if change.name in created else change for change in ordered)

    def _decide(self, found: Difference) -> Change | LeftAlone:
        match found.resource:
            case Resource.TENANT:
                return tenant_change(found)
            case Resource.NAMESPACE:
                return namespace_change(found, self._target.cluster)
            case Resource.POLICY:
                return policy_change(self._without_orphans(found), self._held[found.name], self._version)
            case Resource.TOPIC:
                return topic_change(found)
            case Resource.SCHEMA:
                return schema_change(found)
            case Resource.TOPIC_POLICY:
                return topic_policy_change(found, self._version)
            case Resource.SUBSCRIPTION:
                return subscription_change(found)

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

    def _of_namespace(self, name: str) -> Iterable[Change]:
        mine = [change for change in self._changes if str(change.namespace) == name]
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


def _harmless(change: Change) -> Change:
    """A change in something that the same plan creates: nothing is there yet that could be lost."""
    return replace(change, hazard=worst(Hazard.NONE, *(hazard_of_call(call) for call in change.calls)))


def _in_setting_order(changes: list[Change]) -> list[Change]:
    by_field = {change.field: change for change in changes}
    values: Mapping[str, tuple[Json, Json]] = {one.field: (one.before, one.after) for one in changes}
    return [by_field[field] for field in setting_order(values)]
