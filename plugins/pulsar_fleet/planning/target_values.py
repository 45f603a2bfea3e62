"""Read which values are effective on a cluster before a plan without snapshots, such as that of an undo, is applied."""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.model import TopicPolicyField
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards import UNKNOWN_SETTINGS, EffectiveValues, configurations
from pulsar_fleet.planning.plan import Change, Plan
from pulsar_fleet.snapshot.cluster_reader import read_brokers
from pulsar_fleet.snapshot.resources import read_namespace
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

TopicDocuments = dict[tuple[str, str], JsonObject]


async def read_target_values(plan: Plan, admin: AdminClient, redactor: Redactor) -> EffectiveValues:
    """What topics, namespaces and brokers of the plan's target set now, and what they set after the plan.

    One call for each broker and namespace, and one pass over the policies of topics where the plan changes one.
    `UNKNOWN_SETTINGS` where our role may not read the configuration of every broker.
    """
    reads = PartialReads()
    brokers = await read_brokers(admin, redactor, reads)
    if reads.take_notes():
        return UNKNOWN_SETTINGS
    namespaces: dict[str, JsonObject] = {}
    topics: TopicDocuments = {}
    with_topics = {str(change.namespace) for change in plan.changes if change.resource is Resource.TOPIC_POLICY}
    async with TopicPolicyReader(admin, redactor) as reader:
        for text in plan.namespaces():
            name = NamespaceName.parse(text)
            namespaces[text] = comparable(await read_namespace(admin, name, redactor, local=False) or {}, plan.target)
            rows = await reader.read(name) if text in with_topics else ()
            topics |= {(row.topic, row.scope): topic_comparable(row.policies) for row in rows}
    return EffectiveValues(
        brokers=configurations(brokers),
        namespaces=namespaces,
        topics=topics,
        namespaces_after=_namespaces_after(namespaces, plan.changes),
        topics_after=_topics_after(topics, plan.changes),
    )


def _namespaces_after(namespaces: dict[str, JsonObject], changes: Iterable[Change]) -> dict[str, JsonObject]:
    after = dict(namespaces)
    for change in changes:
        if change.resource is Resource.POLICY:
            after[change.name] = _with_value(after[change.name], change.field, change.after)
    return after


def _topics_after(topics: TopicDocuments, changes: Iterable[Change]) -> TopicDocuments:
    after = dict(topics)
    for change in changes:
        if change.resource is Resource.TOPIC_POLICY:
            path = TopicPolicyField.parse(change.field)
            key = (change.name, path.scope.value)
            after[key] = _with_value(after.get(key, {}), path.policy, change.after)
    return after


def _with_value(document: JsonObject, field: str, value: Json) -> JsonObject:
    others = {name: old for name, old in document.items() if name != field}
    return others if value is None else {**others, field: value}
