"""From a difference in a topic to the change that removes it, or the reason not to (pure)."""

from __future__ import annotations

from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.data_loss import lowered
from pulsar_fleet.cluster.policies.lookup import known_at
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Form, Scope, TopicPolicy, topic_policy_calls
from pulsar_fleet.planning.changes.namespaces import ONLY_ON_TARGET, left_alone
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, same
from pulsar_fleet.planning.hazards.model import Hazard
from pulsar_fleet.planning.plan import Action, Change, LeftAlone

PARTITIONED_WITH_PROPERTIES = "application/vnd.partitioned-topic-metadata+json"
SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"


def reason_not_to_create(name: str, value: JsonObject) -> str:
    """Why a topic of the source is not created on the target; empty when it is."""
    if SHADOW_SOURCE in value["properties"]:
        return "a shadow topic: shadow topics are made by serving a namespace read-only, never by copying"
    if TopicName.parse(name).partition_index is not None and not value["partitions"]:
        return "a single topic named like a partition, which brokers from 4.1 refuse to create"
    return ""


def topic_change(found: Difference) -> Change | LeftAlone:
    """Create the topic on the target alone, add properties, or add partitions; nothing is deleted."""
    if found.side is Side.EXTRA and not found.field:
        return left_alone(found, ONLY_ON_TARGET)
    if not found.field:
        reason = reason_not_to_create(found.name, found.source)
        return left_alone(found, reason) if reason else _creation(found)
    if found.field == "partitions":
        return _growth(found)
    return _properties(found)


def schema_change(found: Difference) -> Change | LeftAlone:
    """Post the versions that the target lacks, in order; a history that is another one is left alone."""
    if found.side is Side.EXTRA:
        return left_alone(found, ONLY_ON_TARGET)
    held: list[JsonObject] = found.target or []
    if not same(found.source[: len(held)], held):
        return left_alone(found, "the target has another schema history, which cannot be rewritten")
    topic = TopicName.parse(found.name)
    path = f"/schemas/{topic.namespace.path}/{quote(topic.local, safe='')}/schema"
    return Change(
        resource=Resource.SCHEMA,
        name=found.name,
        field="",
        action=Action.SET if held else Action.CREATE,
        calls=tuple(with_body("POST", path, version) for version in found.source[len(held) :]),
        before=found.target,
        after=found.source,
        hazard=Hazard.NONE,
        reason=f"{len(found.source) - len(held)} of {len(found.source)} versions are missing",
    )


def topic_policy_change(found: Difference, version: str) -> Change | LeftAlone:
    """Set or unset one policy of a topic in one scope."""
    scope, _, field = found.field.partition("/")
    policy = TOPIC_BY_FIELD.get(field)
    reason = _reason_to_leave(policy, found, Scope(scope), version)
    if policy is None or reason:
        return left_alone(found, reason)
    after = False if found.source is None and not policy.can_unset else found.source
    return Change(
        resource=Resource.TOPIC_POLICY,
        name=found.name,
        field=found.field,
        action=Action.UNSET if found.source is None else Action.SET,
        calls=topic_policy_calls(policy, TopicName.parse(found.name), Scope(scope), found.target, after),
        before=found.target,
        after=after,
        hazard=Hazard.REVERSIBLE,
        reason="not set on the source" if found.source is None else "differs from the source",
    )


def _creation(found: Difference) -> Change:
    topic, value = TopicName.parse(found.name), found.source
    call = with_body("PUT", f"/{topic.path}", value["properties"])
    if value["partitions"]:
        # Without createLocalTopicOnly the broker makes the topic on every cluster of its namespace.
        call = Call(
            "PUT",
            f"/{topic.path}/partitions",
            (("createLocalTopicOnly", "true"),),
            value,
            has_body=True,
            content_type=PARTITIONED_WITH_PROPERTIES,
        )
    return Change(
        resource=Resource.TOPIC,
        name=found.name,
        field="",
        action=Action.CREATE,
        calls=(call,),
        before=None,
        after=value,
        hazard=Hazard.NONE,
        reason="the target lacks this topic",
    )


def _growth(found: Difference) -> Change | LeftAlone:
    if 0 in (found.source, found.target):
        return left_alone(found, "partitioned on one side only")
    if found.source < found.target:
        return left_alone(found, f"the target has {found.target} partitions, the source {found.source}: none can go")
    topic = TopicName.parse(found.name)
    return Change(
        resource=Resource.TOPIC,
        name=found.name,
        field="partitions",
        action=Action.GROW,
        calls=(with_body("POST", f"/{topic.path}/partitions", found.source, updateLocalTopicOnly="true"),),
        before=found.target,
        after=found.source,
        hazard=Hazard.IRREVERSIBLE,
        reason="the source has more partitions",
    )


def _properties(found: Difference) -> Change | LeftAlone:
    after = {**(found.target or {}), **(found.source or {})}
    if same(after, found.target) or SHADOW_SOURCE in after:
        return left_alone(found, "the target has more properties, and nothing is taken away")
    path = f"/{TopicName.parse(found.name).path}/properties"
    return Change(
        resource=Resource.TOPIC,
        name=found.name,
        field="properties",
        action=Action.SET,
        calls=(with_body("PUT", path, after),),
        before=found.target,
        after=after,
        hazard=Hazard.REVERSIBLE,
        reason="properties are added or differ",
    )


def _reason_to_leave(policy: TopicPolicy | None, found: Difference, scope: Scope, version: str) -> str:
    if policy is None:
        return "this release does not know the field"
    if not known_at(policy.since, version):
        return f"needs Pulsar {policy.since} on the target, which runs {version}"
    if scope is Scope.GLOBAL and policy.local_only:
        return "the broker keeps it for one cluster only"
    if policy.form is Form.CLUSTER_LIST and (scope is Scope.GLOBAL or found.source is None):
        return "a topic's cluster list can delete the topic on clusters that it leaves out"
    if found.source is None and found.target is False and not policy.can_unset:
        return "it cannot be unset, and false stands for that"
    return ""


def setting_rank(change: Change) -> tuple[str, int]:
    """Sort key of topic policies: by topic, and in the order that the broker's own checks allow."""
    fields: list[str] = list(TOPIC_BY_FIELD)
    field = change.field.partition("/")[2]
    rank = fields.index(field)
    if field == "retentionPolicies" and _keeps_less(change.before, change.after):
        # A retention that becomes smaller is only taken after the backlog quota did.
        rank = fields.index("backLogQuotaMap") + 1
    return change.name, 2 * rank if field != "backLogQuotaMap" else 2 * rank + 1


_keeps_less = lowered("retentionTimeInMinutes", "retentionSizeInMB")


def versions_after(change: Change) -> int:
    """Schema versions that the topic has after the change."""
    found: Json = change.after
    return len(found)
