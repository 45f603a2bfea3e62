"""The plan of a run that serves topics read-only, with its exact calls (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.admin.shadow_guard import INFINITE
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.changes.clusters import isolation_path
from pulsar_fleet.planning.changes.namespaces import OPEN_STRATEGY
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Hazard, Plan
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding, Planned, count_line
from pulsar_fleet.read_only.brokers import changes_policy, cost_lines
from pulsar_fleet.read_only.isolation import (
    BROKERS,
    brokers_of,
    destinations,
    is_among,
    isolation_document,
    policy_name,
    recorded_brokers,
)
from pulsar_fleet.read_only.pair import Pair, topic_creation
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.source_changes import (
    following_changes,
    grant_changes,
    grants_of,
    grows,
    narrowing_changes,
    rights_of_readers,
)
from pulsar_fleet.read_only.state import Observed, ShadowState, SourceState

AnyPlan = TypeVar("AnyPlan", bound="ReadOnlyPlan")
READ_ONLY = "pulsar-fleet.read-only"
"""The property of a namespace that this procedure created; its value says what it is for."""

_NEVER_DELETED: JsonObject = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 3600,
    "deleteWhileInactive": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnlyPlan(Document):
    """What a run changes on one cluster.

    :param pairs: all that it is for, also those that need no change.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "make the plan again"
    VERB: ClassVar[str]
    """What happens to its topics, in its headline."""

    cluster: str
    namespace: NamespaceName
    pairs: tuple[Pair, ...]

    def changes(self) -> tuple[str, ...]:
        """What changes, a line each."""
        raise NotImplementedError

    def calls(self) -> list[Call]:
        """Every call that changes or loads something, in the order in which they are sent."""
        raise NotImplementedError

    def call_lines(self) -> list[str]:
        """The same, as a person would send them."""
        return [call_text(self.cluster, call) for call in self.calls()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan(ReadOnlyPlan):
    """What a run makes to serve topics.

    :param contents: it creates the namespace and the shadow topics.
    :param brokers: those that serve the namespace and no other; empty: none of its own.
    :param moving: its bundles that other brokers own now → the broker that takes them.
    :param cost: what readers share, and which brokers send what; a sentence each.
    """

    VERB = "served"

    contents: Plan
    brokers: tuple[str, ...] = ()
    moving: Mapping[str, str] = field(default_factory=dict)
    cost: tuple[str, ...] = ()

    @property
    def linking(self) -> tuple[Pair, ...]:
        """The pairs that this run links."""
        return tuple(pair for pair in self.pairs if pair.links)

    def changes(self) -> tuple[str, ...]:
        """What changes, a line each."""
        return (
            *(change.label for change in self.contents.changes),
            *(f"move {self.namespace}/{bundle} to {broker}" for bundle, broker in self.moving.items()),
            *(f"link {pair.shadow} to {pair.source}" for pair in self.linking),
        )

    def calls(self) -> list[Call]:
        """Every call that changes or loads something, in the order in which they are sent."""
        creations = [call for change in self.contents.changes for call in change.calls]
        loads = [bare("GET", f"/{source.path}/stats") for pair in self.pairs if pair.links for source, _ in pair.stored]
        moves = [move_call(self.namespace, bundle, broker) for bundle, broker in self.moving.items()]
        return [*loads, *creations, *moves, *(pair.link_call() for pair in self.linking)]


def described(plan: AnyPlan, findings: Sequence[Finding], cost: Sequence[str] = ()) -> Planned[AnyPlan]:
    """A plan as the person reads it who approves it.

    :param cost: what readers share, a sentence each.
    """
    lines = plan.call_lines()
    headline = (
        f"{counted(len(plan.pairs), 'topic')} {plan.VERB} read-only in {plan.namespace} on {plan.cluster}: "
        f"{counted(len(plan.changes()), 'change')}, {counted(len(lines), 'call')}; {count_line(findings)}."
    )
    costs = ["\n".join(["**What it costs**", "", *(f"* {line}" for line in cost)])] if cost else []
    text = "\n\n".join([headline, *costs, "\n".join(["**The calls**, in their order:", "", "```", *lines, "```"])])
    return Planned(plan=plan, findings=tuple(findings), headline=headline, text=text)


def move_call(namespace: NamespaceName, bundle: str, broker: str) -> Call:
    """Unload a bundle to a broker of the namespace's isolation policy."""
    return bare("PUT", f"/namespaces/{namespace.path}/{bundle}/unload", destinationBroker=broker)


def plan_serving(observed: Observed, request: Request, *, revokes: bool = True) -> ServingPlan:
    """Plan what is missing; a second plan after a complete run is empty.

    :param revokes: also take rights on the whole namespace from roles that may not consume from all of its sources.
    """
    present = [source for source in observed.sources if source.can_be_served]
    changes = [*_isolation(observed, request, present), *_namespace(observed, request, present)]
    changes += narrowing_changes(observed, request) if revokes and present else ()
    served = [(source, observed.shadows[request.shadow(source.topic)]) for source in present]
    changes += [change for source, shadow in served for change in _shadow(source, shadow)]
    changes += [change for source, shadow in served for change in following_changes(source, shadow)]
    changes.sort(key=lambda change: list(Resource).index(change.resource))
    changes += grant_changes(observed, request, revokes=revokes) if present else ()
    return ServingPlan(
        cluster=observed.cluster,
        namespace=request.namespace,
        contents=Plan(source="the topics to serve", target=observed.cluster, changes=tuple(changes)),
        pairs=tuple(
            _pair(
                source,
                shadow.topic,
                source.partitions or 0,
                # Linked again, the replicators of new partitions start too (observed, 4.2.4).
                links=str(shadow.topic) not in source.linked or grows(source, shadow),
            )
            for source, shadow in served
        ),
        brokers=observed.brokers.wanted,
        moving=_moving(observed),
        cost=cost_lines(observed, request),
    )


def _isolation(observed: Observed, request: Request, sources: Sequence[SourceState]) -> Iterator[Change]:
    if not sources or not changes_policy(observed, request.namespace):
        return
    name, brokers = policy_name(request.namespace), observed.brokers
    document, before = isolation_document(request.namespace, brokers.wanted), brokers.policies.get(name)
    yield Change(
        resource=Resource.ISOLATION,
        name=name,
        field="",
        action=Action.CREATE if before is None else Action.SET,
        # The bundles that are elsewhere are unloaded afterwards, one after the other, and recorded.
        calls=(with_body("POST", isolation_path(observed.cluster, name), {**document, "unload_scope": "none"}),),
        before=before,
        after=document,
        hazard=Hazard.REVERSIBLE,
        reason=f"only {request.namespace} is served by {', '.join(brokers_of(brokers.wanted, brokers.live))}",
    )


def _moving(observed: Observed) -> dict[str, str]:
    brokers = observed.brokers
    elsewhere = [
        shadow.bundles[topic]
        for shadow in observed.shadows.values()
        for topic, owner in shadow.owners.items()
        if owner and not is_among(brokers.wanted, owner)
    ]
    return destinations(elsewhere, brokers_of(brokers.wanted, brokers.live))


def _pair(source: SourceState, shadow: TopicName, partitions: int, *, links: bool) -> Pair:
    others = tuple(name for name in source.linked if name != str(shadow))
    return Pair(source=source.topic, shadow=shadow, partitions=partitions, linked=others, links=links)


def _namespace(observed: Observed, request: Request, sources: Sequence[SourceState]) -> Iterator[Change]:
    if not sources:
        return
    if observed.document is not None:
        yield from _brokers_property(observed, request)
        return
    document = namespace_document(observed, request, sources)
    yield _creation(
        Resource.NAMESPACE,
        str(request.namespace),
        with_body("PUT", f"/namespaces/{request.namespace.path}", document),
        comparable(document, observed.cluster),
        "it keeps every ledger of its shadow topics, and nobody may produce there",
    )


def _brokers_property(observed: Observed, request: Request) -> Iterator[Change]:
    """Record on a namespace that exists which brokers it has for itself."""
    document, wanted = observed.document or {}, observed.brokers.wanted
    if wanted == recorded_brokers(document) or READ_ONLY not in (document.get("properties") or {}):
        return
    policy = BY_FIELD["properties"]
    before = comparable(document, observed.cluster)[policy.field]
    after = {**before, BROKERS: ",".join(wanted)}
    yield Change(
        resource=Resource.POLICY,
        name=str(request.namespace),
        field=policy.field,
        action=Action.SET,
        calls=policy_calls(policy, request.namespace, before, after),
        before=before,
        after=after,
        hazard=Hazard.REVERSIBLE,
        reason="it says which brokers the namespace has for itself",
    )


def namespace_document(observed: Observed, request: Request, sources: Sequence[SourceState]) -> JsonObject:
    """The policies of the read-only namespace: everything is kept, nothing is created or deleted by use.

    Roles that may consume from every source may consume; none may produce. Bundles are those of the first source's
    namespace. Schemas come from the sources alone: a reader registers none, and every version is accepted.
    """
    brokers = observed.brokers.wanted
    return {
        "replication_clusters": [observed.cluster],
        "retention_policies": dict(INFINITE),
        "inactive_topic_policies": _NEVER_DELETED,
        "autoTopicCreationOverride": {"allowAutoTopicCreation": False},
        "is_allow_auto_update_schema": False,
        "schema_compatibility_strategy": OPEN_STRATEGY,
        "auth_policies": grants_of(rights_of_readers(observed, request)),
        "bundles": sources[0].namespace["bundles"],
        "properties": {
            READ_ONLY: "shadow topics; without a retention of -1/-1 they delete data of their sources",
            **({BROKERS: ",".join(brokers)} if brokers else {}),
        },
    }


def _shadow(source: SourceState, shadow: ShadowState) -> Iterator[Change]:
    if shadow.partitions is not None:
        return
    partitions, properties = source.partitions or 0, {SHADOW_SOURCE: str(source.topic)}
    call = topic_creation(shadow.topic, partitions, properties)
    after: JsonObject = {"partitions": partitions, "properties": properties}
    yield _creation(Resource.TOPIC, str(shadow.topic), call, after, f"it serves {source.topic}")


def _creation(resource: Resource, name: str, call: Call, after: Json, reason: str) -> Change:
    return Change(
        resource=resource,
        name=name,
        field="",
        action=Action.CREATE,
        calls=(call,),
        before=None,
        after=after,
        hazard=Hazard.NONE,
        reason=reason,
    )
