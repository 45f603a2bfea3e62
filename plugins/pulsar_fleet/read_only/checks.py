"""What prevents serving a topic read-only, or loses messages of its source or its readers by it (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.cluster.admin.call import with_body
from pulsar_fleet.cluster.admin.shadow_guard import is_infinite
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import is_set
from pulsar_fleet.cluster.policies.topic_catalogue import TOPIC_CATALOGUE
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.preflight.checks.limits import topics_fit
from pulsar_fleet.preflight.checks.policies import unfinished_run
from pulsar_fleet.preflight.context import Pair, blocker, call_text, warning
from pulsar_fleet.preflight.findings import Finding, blockers_first
from pulsar_fleet.preflight.target_limits import ENCRYPTION, Effective
from pulsar_fleet.read_only.brokers import check_brokers
from pulsar_fleet.read_only.plan import READ_ONLY
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.source_changes import follows_schemas, grows
from pulsar_fleet.read_only.state import Observed, ShadowState, SourceState, retained_minutes_and_megabytes
from pulsar_fleet.snapshot.model import BrokerState, NamespaceState, Snapshot, TopicState

_SUBSCRIPTION_ROLES = "subscription_auth_roles"
_LIMITS = (
    "subscription_auth_mode",
    "subscription_types_enabled",
    "subscription_expiration_time_minutes",
    "message_ttl_in_seconds",
    "max_consumers_per_topic",
    "max_consumers_per_subscription",
    "max_subscriptions_per_topic",
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
    "topicDispatchRate",
    "subscriptionDispatchRate",
    "clusterSubscribeRate",
    "entryFilters",
)
"""Policies of a namespace that bind its consumers, and that the namespace for readers does not take over."""
_OWN_LIMITS = frozenset(policy.field for policy in TOPIC_CATALOGUE if policy.namespace_field in _LIMITS)
"""The same of a topic itself."""


def check_serving(observed: Observed, request: Request) -> tuple[Finding, ...]:
    """Every finding, blockers first."""
    findings = [*_of_namespace(observed, request), *_of_brokers(observed, request), *check_brokers(observed, request)]
    findings += _of_limits(observed, request)
    for source in observed.sources:
        findings += _of_source(source, request)
        findings += _of_other_shadows(observed, source, request)
        findings += _not_followed(observed, source, request)
        if source.partitions is not None:
            findings += _of_shadow(source, observed.shadows[request.shadow(source.topic)])
    return blockers_first(findings)


def check_setup(observed: Observed, request: Request) -> tuple[Finding, ...]:
    """As `check_serving`, and what only prevents serving from being set up: topics that are served stay served."""
    found = [*check_serving(observed, request)]
    for source in observed.sources:
        if not (source.migration or source.terminated):
            found += unfinished_run(observed.cluster, str(source.topic), source.namespace)
    return blockers_first(found)


def _of_namespace(observed: Observed, request: Request) -> Iterator[Finding]:
    name, document = str(request.namespace), observed.document
    if not observed.tenant_exists:
        yield blocker(
            "tenant-missing",
            request.namespace.tenant,
            f"{observed.cluster} has no such tenant",
            "The read-only namespace cannot be created.",
            "create the tenant with the roles that may administer it, or name a namespace of another tenant.",
        )
    if document is None:
        return
    if READ_ONLY not in (document.get("properties") or {}):
        yield blocker(
            "namespace-of-other-use",
            name,
            f"exists without the property {READ_ONLY}",
            "Applications may use it: serving read-only would change their retention and permissions.",
            "name a namespace that does not exist yet; this run creates it.",
        )
        return
    if not is_infinite(document.get("retention_policies")):
        yield blocker(
            "retention-not-infinite",
            name,
            f"retention {document.get('retention_policies')}",
            f"Data of {listed(map(str, request.topics))} will be deleted by the shadow topics there.",
            "set its retention to -1 minutes and -1 MB at once, and read the sources: what was deleted is lost.",
        )
    if roles := sorted(_producing(document)):
        yield blocker(
            "producing-allowed",
            name,
            f"{roles[0]} may produce",
            "A producer of a shadow topic connects, and none of its messages is ever stored.",
            f"take the permission to produce from {', '.join(roles)} in {name}.",
        )
    others = sorted({*(document.get("replication_clusters") or ())} - {observed.cluster})
    if others:
        yield blocker(
            "namespace-is-replicated",
            name,
            f"replicates to {', '.join(others)}",
            "A shadow topic would be sent to another cluster a second time.",
            f"set its replication clusters to {observed.cluster} alone.",
        )


def _of_limits(observed: Observed, request: Request) -> Iterator[Finding]:
    """What the table of limits says of the namespace for readers; limits for messages hold for no shadow (observed)."""
    name, document, own = str(request.namespace), observed.document or {}, observed.cluster
    after = Effective(cluster=own, namespace=comparable(document, own), configuration=observed.configuration)
    if limit := ENCRYPTION.exceeded(after, after):
        by_policy = bool(document.get("encryption_required"))
        setter = with_body("POST", f"/namespaces/{request.namespace.path}/encryptionRequired", False)
        yield blocker(
            ENCRYPTION.ids[0],
            name,
            limit.evidence,
            "The replicator of a shadow topic never connects, and its readers get nothing (observed, 4.2.4).",
            "do not require encryption in this namespace, in which nobody may produce: what is encrypted stays so."
            if by_policy
            else "serve a copy on another cluster whose brokers do not require encryption.",
            call=call_text(own, setter) if by_policy else "",
        )
    for finding in topics_fit(_topics_to_come(observed, request)):
        missing = observed.document is None
        remedy = "name fewer topics, or raise maxTopicsPerNamespace of the brokers." if missing else finding.remedy
        yield replace(finding, remedy=remedy, call="" if missing else finding.call)


def _topics_to_come(observed: Observed, request: Request) -> Pair:
    """The namespace for readers before and after this run."""
    name = str(request.namespace)
    shadows = {request.shadow(source.topic): source.partitions for source in observed.sources}
    before, after = (
        tuple(TopicState(str(topic), count, {}) for topic, count in topics.items() if count is not None)
        for topics in (observed.existing, {**observed.existing, **shadows})
    )
    snapshot = Snapshot(
        cluster=observed.cluster,
        began="",
        ended="",
        key_id="",
        namespaces=(NamespaceState(name, observed.document or {}),),
        topics=before,
        brokers=(BrokerState("", "", observed.configuration),),
    )
    return Pair(snapshot, snapshot, replace(snapshot, topics=after), kept=frozenset({name}))


def _of_other_shadows(observed: Observed, source: SourceState, request: Request) -> Iterator[Finding]:
    """A broker tells only the shadow topic that it loaded last of the source's new ledgers (observed, 4.2.4)."""
    others = [name for name in source.linked if name != str(request.shadow(source.topic))]
    if others and not observed.brokers.wanted:
        yield warning(
            "shadow-may-share-broker",
            str(source.topic),
            f"has the shadow topic {others[0]} too, and {request.namespace} has no brokers of its own",
            "Of two shadow topics of one source on one broker, only the one that was loaded last gets what the source "
            "stores in new ledgers; readers of the other get nothing new, without an error.",
            "name 'brokers' for each of these namespaces, others for each.",
        )


def _not_followed(observed: Observed, source: SourceState, request: Request) -> Iterator[Finding]:
    policies = comparable(source.namespace, observed.cluster)
    present = [field for field in _LIMITS if is_set(policies.get(field))]
    present += [_SUBSCRIPTION_ROLES] if (policies.get("auth_policies") or {}).get(_SUBSCRIPTION_ROLES) else []
    own = sorted(_OWN_LIMITS & set(source.own_policies))
    evidence = [f"{source.topic.namespace} has {', '.join(present)}"] if present else []
    evidence += [f"the topic itself has {', '.join(own)}"] if own else []
    evidence += [f"its own policies cannot be read: {source.policies_unread}"] if source.policies_unread else []
    if evidence:
        yield warning(
            "policies-not-followed",
            str(source.topic),
            "; ".join(evidence),
            f"Policies that bind consumers are not taken over: readers in {request.namespace} are not bound by them.",
            f"where readers must be bound by them, set them on {request.namespace}, and those of the topic itself on "
            f"{request.shadow(source.topic)}.",
        )


def _producing(document: JsonObject) -> Iterator[str]:
    grants = (document.get("auth_policies") or {}).get("namespace_auth") or {}
    return (role for role, actions in grants.items() if "produce" in actions)


def _of_brokers(observed: Observed, request: Request) -> Iterator[Finding]:
    for broker in observed.without_explicit_lac:
        yield warning(
            "explicit-lac-off",
            broker,
            "bookkeeperExplicitLacIntervalInMills is 0",
            "A reader of a shadow topic gets the last message only when the next one is published.",
            "set it to 500 in broker.conf of every broker and restart them one after another, if readers need the last "
            "message at once.",
        )
    if observed.peers:
        yield warning(
            "cluster-has-peers",
            observed.cluster,
            f"topics may be replicated to {', '.join(observed.peers)}",
            "A broker that replicates topics with schemas to another cluster may stop the link of a shadow topic: its "
            "readers get no new messages.",
            f"unpause watch_read_only for {request.namespace}: it starts such a link again within two minutes, by "
            "unloading the source.",
        )


def _of_source(source: SourceState, request: Request) -> Iterator[Finding]:
    name = str(source.topic)
    if source.partitions is None:
        yield blocker(
            "source-missing",
            name,
            "does not exist",
            "A shadow topic without a source cannot be loaded.",
            "correct the name, or create the topic first.",
        )
        return
    if source.shadow_of:
        yield blocker(
            "source-is-shadow",
            name,
            f"shadow topic of {source.shadow_of}",
            "A shadow topic of a shadow topic would get no messages.",
            f"serve {source.shadow_of} instead.",
        )
    if source.migration:
        yield blocker(
            "source-migrated",
            name,
            source.migration,
            "It accepts no more messages here and does not load: a shadow topic would get nothing.",
            "serve the topic on the cluster to which it was migrated, or finish or abort that migration first.",
        )
        return
    if source.terminated:
        yield blocker(
            "source-terminated",
            name,
            "it accepts no more messages",
            "Nothing new is ever served, and the shadow topic would keep ledgers that nobody else needs.",
            "let readers read the topic itself.",
        )
    if source.compacted or source.compaction_bytes:
        threshold = f"its compaction threshold is {source.compaction_bytes:,} bytes"
        yield warning(
            "source-compacted",
            name,
            # Brokers make the cursor of compaction as soon as a threshold is set (observed, 4.2.4).
            threshold if source.compaction_bytes else "it is compacted",
            "A shadow topic has no compacted messages: readers with readCompacted and table views get what the log of "
            "the source still has, older values of a key too, and no key whose messages were trimmed.",
            "let readers with readCompacted and table views read the topic itself.",
        )
    minutes, megabytes = retained_minutes_and_megabytes(source.retention)
    forecast = _forecast_minutes(minutes, megabytes, source.bytes_per_second)
    if forecast < request.lag_minutes:
        yield warning(
            "source-retention-short",
            name,
            f"retention {_limit(minutes)} min and {_limit(megabytes)} MB, at {source.bytes_per_second:,.0f} bytes/s "
            f"about {forecast:,.0f} min",
            f"A reader that is further behind loses messages without an error; {request.lag_minutes} min are allowed.",
            f"raise the retention of {source.topic.namespace} to at least {request.lag_minutes} min and the size of "
            "what is published in that time.",
        )


def forecast_minutes(source: SourceState) -> float:
    """For how long what every subscription of a source has acknowledged is stored, at the present rate."""
    return _forecast_minutes(*retained_minutes_and_megabytes(source.retention), source.bytes_per_second)


def _forecast_minutes(minutes: float, megabytes: float, bytes_per_second: float) -> float:
    """For how long what every subscription of the source has acknowledged is stored; 0 without a retention."""
    if not minutes or not megabytes:
        return 0.0
    by_size = megabytes * (1 << 20) / bytes_per_second / 60 if bytes_per_second else math.inf
    return min(minutes, by_size)


def _limit(value: float) -> str:
    return "unlimited" if math.isinf(value) else f"{value:,.0f}"


def _of_shadow(source: SourceState, shadow: ShadowState) -> Iterator[Finding]:
    name = str(shadow.topic)
    if shadow.partitions is None:
        return
    if not shadow.source:
        yield blocker(
            "shadow-is-ordinary-topic",
            name,
            "exists, and is not a shadow topic",
            "Linked to the source it would get no messages.",
            "name another namespace; if the topic is a remainder and empty, delete it.",
        )
        return
    if shadow.source != str(source.topic):
        yield blocker(
            "shadow-of-other-source",
            name,
            f"shadow topic of {shadow.source}",
            "Its readers would get the messages of another topic.",
            f"name another namespace, or stop serving {shadow.source} first.",
        )
    elif shadow.retiring:
        yield blocker(
            "shadow-is-being-removed",
            name,
            "a run has begun to take it away",
            "It follows its source no more.",
            "finish that with *remove*, then serve the topic again.",
        )
    elif shadow.partitions != source.partitions and not grows(source, shadow):
        yield blocker(
            "partitions-differ",
            name,
            f"{source.partitions} partitions of the source, {shadow.partitions} of the shadow topic",
            "The messages of the other partitions are never served.",
            "stop serving this topic with *remove*, then serve it again.",
            values=(source.partitions, shadow.partitions),
        )
    if not source.migration and not follows_schemas(source, shadow):
        yield warning(
            "schemas-differ",
            name,
            f"{counted(len(shadow.schemas), 'schema version')}, which {'are' if len(shadow.schemas) > 1 else 'is'} not "
            f"the first of the {len(source.schemas)} of the source"
            if source.schemas_are_numbered
            else "the numbers of the source's schema versions have gaps",
            "Messages name their schema by its number: readers that decode them get another schema, or none.",
            "let readers that decode messages read the source, or stop serving this topic with *remove* and serve it "
            "again, if the source's numbers have no gaps.",
        )
    for scope, retention in shadow.retentions.items():
        if not is_infinite(retention):
            yield blocker(
                "topic-retention-not-infinite",
                name,
                f"{scope} retention {retention}",
                f"Data of {source.topic} will be deleted.",
                "remove this policy of the topic at once, and read the source: what was deleted is lost.",
            )
