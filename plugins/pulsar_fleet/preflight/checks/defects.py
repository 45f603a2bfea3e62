"""Known defects that the brokers of a cluster have and its estate can meet (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pulsar_fleet.cluster.defects.catalogue import DEFECTS
from pulsar_fleet.cluster.defects.model import BrokerDefect, Condition
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import SHADOW_SOURCE, TopicName
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.preflight.context import Pair, setting, settings, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import UNREAD_RANGES, NamespaceState, Snapshot

_BROKERS = "brokers: "
"""Begins what is set in the configuration of brokers: the name of a namespace has no space."""


def brokers_have_no_known_defect(pair: Pair) -> Iterator[Finding]:
    """A warning for each defect that brokers of a cluster are known to have and its estate can meet.

    The estate of the target includes what the plan copies to it.
    """
    planned = replace(
        pair.translated,
        brokers=pair.target.brokers,
        topics=tuple(topic for topic in pair.translated.topics if SHADOW_SOURCE not in topic.properties),
        subscriptions=tuple(replace(row, acknowledged_ranges=UNREAD_RANGES) for row in pair.translated.subscriptions),
        inventory=(),
    )
    yield from _of_cluster(pair.source)
    yield from _of_cluster(pair.target, planned)


def _of_cluster(snapshot: Snapshot, *planned: Snapshot) -> Iterator[Finding]:
    versions = sorted({broker.version for broker in snapshot.brokers})
    names: dict[Condition, list[str]] = {}
    for defect in DEFECTS:
        having = [version for version in versions if defect.has(version)]
        if having and defect.condition in MET_BY:
            if defect.condition not in names:
                met = (name for state in (snapshot, *planned) for name in MET_BY[defect.condition](state))
                names[defect.condition] = list(dict.fromkeys(met))
            if names[defect.condition]:
                yield _finding(snapshot.cluster, having, defect, names[defect.condition])


def _finding(cluster: str, versions: list[str], defect: BrokerDefect, names: list[str]) -> Finding:
    return warning(
        defect.id,
        f"cluster {cluster}",
        f"brokers run {', '.join(versions)}; {defect.condition}: {listed(names)}",
        f"{defect.symptom} {defect.reference}, {defect.evidence}.",
        defect.remedy,
    )


def _batch_acknowledgments(snapshot: Snapshot) -> Iterator[str]:
    if "true" in settings(snapshot, "acknowledgmentAtBatchIndexLevelEnabled").values():
        yield from (f"{row.name} of {row.partition}" for row in snapshot.subscriptions if row.acknowledged_ranges > 0)


def _shadow_topics(snapshot: Snapshot) -> Iterator[str]:
    yield from (topic.name for topic in snapshot.topics if SHADOW_SOURCE in topic.properties)
    for row in snapshot.topic_policies:
        yield from row.policies.get("shadowTopics") or ()


def _compaction(snapshot: Snapshot) -> Iterator[str]:
    settings_of_brokers = ("brokerServiceCompactionThresholdInBytes",)
    yield from _set_on(snapshot, "compaction_threshold", "compactionThreshold", settings_of_brokers)


def _readers_with_expiry(snapshot: Snapshot) -> Iterator[str]:
    limited = set(_set_on(snapshot, "message_ttl_in_seconds", "messageTTLInSeconds", ("ttlDurationDefaultInSeconds",)))
    by_default = any(name.startswith(_BROKERS) for name in limited)
    within = {str(TopicName.parse(name).namespace) for name in limited if "://" in name}
    for item in snapshot.inventory:
        if item.kind == "client" and item.detail.get("readers") and (by_default or item.namespace in limited | within):
            yield item.namespace


def _offload(snapshot: Snapshot) -> Iterator[str]:
    key = "managedLedgerOffloadDriver"
    yield from (f"{_BROKERS}{value}" for value in settings(snapshot, key).values() if _is_named(value))
    yield from (row.name for row in snapshot.namespaces if (row.policies.get("offload_policies") or {}).get(key))
    yield from (row.topic for row in snapshot.topic_policies if (row.policies.get("offloadPolicies") or {}).get(key))


def _topic_policies(snapshot: Snapshot) -> Iterator[str]:
    yield from (row.topic for row in snapshot.topic_policies if row.policies)


def _subscribe_rate(snapshot: Snapshot) -> Iterator[str]:
    yield from _set_on(snapshot, "clusterSubscribeRate", "subscribeRate", ("subscribeThrottlingRatePerConsumer",))


def _replication(snapshot: Snapshot) -> Iterator[str]:
    by_default = setting(snapshot, "brokerDeleteInactiveTopicsEnabled") == "true"
    for row in _replicated(snapshot):
        if (row.policies.get("inactive_topic_policies") or {}).get("deleteWhileInactive", by_default):
            yield row.name


def _replicator_rate(snapshot: Snapshot) -> Iterator[str]:
    names = {row.name for row in _replicated(snapshot)}
    keys = ("dispatchThrottlingRatePerReplicatorInMsg", "dispatchThrottlingRatePerReplicatorInByte")
    for name in _set_on(snapshot, "replicatorDispatchRate", "replicatorDispatchRate", keys):
        inside = str(TopicName.parse(name).namespace) if "://" in name else name
        if inside in names or (names and name.startswith(_BROKERS)):
            yield name


def _replicated_subscriptions(snapshot: Snapshot) -> Iterator[str]:
    yield from (f"{row.name} of {row.topic}" for row in snapshot.subscriptions if row.replicated)


def _dotted_name(snapshot: Snapshot) -> Iterator[str]:
    for row in _replicated(snapshot):
        yield from (name for name in row.policies["replication_clusters"] if "." in name and name != snapshot.cluster)


def _empty_list(snapshot: Snapshot) -> Iterator[str]:
    yield from (row.name for row in snapshot.namespaces if row.policies.get("replication_clusters") == [])


def _proxy(snapshot: Snapshot) -> Iterator[str]:
    yield from _named(snapshot, "proxyRoles")


def _interceptors(snapshot: Snapshot) -> Iterator[str]:
    yield from _named(snapshot, "brokerInterceptors")


def _listeners(snapshot: Snapshot) -> Iterator[str]:
    managers = settings(snapshot, "loadManagerClassName")
    for broker, value in settings(snapshot, "advertisedListeners").items():
        names = {listener.strip().partition(":")[0] for listener in value.split(",") if listener.strip()}
        if len(names) > 1 and "ModularLoadManager" in managers.get(broker, ""):
            yield f"{', '.join(sorted(names))} on {broker}"


def _metadata_events(snapshot: Snapshot) -> Iterator[str]:
    for key in ("metadataSyncEventTopic", "configurationMetadataSyncEventTopic"):
        yield from _named(snapshot, key)


MET_BY: Mapping[Condition, Callable[[Snapshot], Iterator[str]]] = {
    Condition.BATCH_ACKNOWLEDGMENTS: _batch_acknowledgments,
    Condition.SHADOW_TOPICS: _shadow_topics,
    Condition.COMPACTION: _compaction,
    Condition.READERS_WITH_EXPIRY: _readers_with_expiry,
    Condition.OFFLOAD: _offload,
    Condition.TOPIC_POLICIES: _topic_policies,
    Condition.SUBSCRIBE_RATE: _subscribe_rate,
    Condition.REPLICATION: _replication,
    Condition.REPLICATOR_RATE: _replicator_rate,
    Condition.REPLICATED_SUBSCRIPTIONS: _replicated_subscriptions,
    Condition.DOTTED_NAME: _dotted_name,
    Condition.EMPTY_LIST: _empty_list,
    Condition.PROXY: _proxy,
    Condition.INTERCEPTORS: _interceptors,
    Condition.LISTENERS: _listeners,
    Condition.METADATA_EVENTS: _metadata_events,
}
"""Condition → what in a snapshot meets it, by name; `SYMPTOM` is met by nothing that a snapshot has."""


def _replicated(snapshot: Snapshot) -> Iterator[NamespaceState]:
    """The namespaces that replicate to another cluster."""
    for row in snapshot.namespaces:
        if set(row.policies.get("replication_clusters") or ()) - {snapshot.cluster}:
            yield row


def _set_on(snapshot: Snapshot, field: str, topic_field: str, keys: tuple[str, ...]) -> Iterator[str]:
    """Where a limit is set: namespaces, topics, and `brokers: key = value` for each setting."""
    for key in keys:
        yield from (f"{_BROKERS}{key} = {value}" for value in settings(snapshot, key).values() if _is_limit(value))
    for row in snapshot.namespaces:
        value = row.policies.get(field)
        if _is_limit(value.get(snapshot.cluster) if isinstance(value, Mapping) else value):
            yield row.name
    yield from (row.topic for row in snapshot.topic_policies if _is_limit(row.policies.get(topic_field)))


def _is_limit(value: Json) -> bool:
    """Whether a number, or a rate with a number, is above 0: 0 and -1 mean no limit."""
    if isinstance(value, Mapping):
        return any(_is_limit(part) for key, part in value.items() if not str(key).startswith("ratePeriod"))
    try:
        return float(value) > 0
    except (TypeError, ValueError):
        return False


def _named(snapshot: Snapshot, key: str) -> Iterator[str]:
    """`key = value` of each value that names something."""
    yield from (f"{key} = {value}" for value in settings(snapshot, key).values() if _is_named(value))


def _is_named(value: str) -> bool:
    # Brokers report an empty list as `[]`, and what is not set as `null` or nothing.
    return value.strip("[] ") not in ("", "null", "None")
