"""Policies that the target would store and fail on later, and those that delete messages too early (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.admin.partial_reads import DELETE_AGAIN
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable, problems
from pulsar_fleet.cluster.policies.effective import is_set, parsed_setting
from pulsar_fleet.cluster.policies.model import TopicPolicy
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE, Kind, Policy
from pulsar_fleet.cluster.policies.topic_catalogue import TOPIC_CATALOGUE
from pulsar_fleet.cluster.runs.overrides import overrides_in
from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.planning.changes.clusters import cluster_path
from pulsar_fleet.preflight.checks.brokers import COMPARED_DEFAULTS
from pulsar_fleet.preflight.context import NO_RESTART, Pair, blocker, call_text, keeping_calls, number, setting, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import BrokerState, NamespaceState, Snapshot

TOPIC_POLICY_SWITCHES = ("topicLevelPoliciesEnabled", "systemTopicEnabled")
_FLAGS = tuple(policy.field for policy in CATALOGUE if policy.kind is Kind.FLAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveDifference:
    """A policy that is identical on both clusters and has different effects there.

    :param namespaces: the affected namespaces, in order.
    :param source: each differing broker setting, with every value that the source's brokers report.
    :param target: the same for the target's brokers.
    :param switches: the settings switch the policy off, or apply to topics: no policy of a namespace replaces them.
    """

    field: str
    namespaces: tuple[str, ...]
    source: Mapping[str, tuple[Json, ...]]
    target: Mapping[str, tuple[Json, ...]]
    switches: bool = False


def effective_differences(source: Snapshot, target: Snapshot) -> tuple[EffectiveDifference, ...]:
    """Policies of common namespaces, identical or unset on both clusters, for which the brokers' settings differ.

    A setting that one side's brokers lack or do not report (reading it needs a superuser) is not compared.
    """
    pairs = _pairs(source, target)
    candidates: list[tuple[str, Iterable[str], Iterable[str], bool]] = []
    for policy in CATALOGUE:
        values = {name: [_policy_value(policy, document) for document in pair] for name, pair in pairs.items()}
        unset = [name for name, both in values.items() if any(_unset_parts(policy, both))]
        equal = [name for name, (ours, theirs) in values.items() if ours is not None and ours == theirs]
        candidates += [(policy.field, _keys(policy), unset, False), (policy.field, policy.needs, equal, True)]
    candidates += [(policy.field, _keys(policy), pairs, True) for policy in TOPIC_CATALOGUE]
    with_topic_policies = {str(TopicName.parse(state.topic).namespace) for state in source.topic_policies}
    candidates.append(("topic policies", TOPIC_POLICY_SWITCHES, with_topic_policies & set(pairs), True))
    differences = (_compared(*candidate, source, target) for candidate in candidates)
    return tuple(difference for difference in differences if difference is not None)


def _compared(
    field: str, keys: Iterable[str], namespaces: Iterable[str], switches: bool, source: Snapshot, target: Snapshot
) -> EffectiveDifference | None:
    """The settings of `keys` that differ, for the namespaces that they affect."""
    where = tuple(sorted(namespaces))
    ours, theirs = ({key: _answers(snapshot.brokers, key) for key in keys} for snapshot in (source, target))
    different = [key for key in ours if ours[key] and theirs[key] and ours[key] != theirs[key]]
    if not where or not different:
        return None
    return EffectiveDifference(
        field=field,
        namespaces=where,
        source={key: ours[key] for key in different},
        target={key: theirs[key] for key in different},
        switches=switches,
    )


def _pairs(source: Snapshot, target: Snapshot) -> dict[str, tuple[JsonObject, JsonObject]]:
    """The comparable documents of the common namespaces; a flag with the value false counts as set."""
    ours, theirs = (
        {
            namespace.name: {
                **{flag: False for flag in _FLAGS if namespace.policies.get(flag) is False},
                **comparable(namespace.policies, snapshot.cluster),
            }
            for namespace in snapshot.namespaces
        }
        for snapshot in (source, target)
    )
    return {name: (ours[name], theirs[name]) for name in ours if name in theirs}


def _policy_value(policy: Policy, document: JsonObject) -> Json:
    value = document.get(policy.field)
    return value if is_set(value) else None


def _unset_parts(policy: Policy, values: list[Json]) -> Iterator[bool]:
    """For the whole policy, or for each part that is set separately: whether both sides leave it unset."""
    if policy.kind is Kind.QUOTAS:
        yield from (not any(section in (value or ()) for value in values) for section in policy.sections)
    else:
        yield all(value is None for value in values)


def _keys(policy: Policy | TopicPolicy) -> tuple[str, ...]:
    if isinstance(policy.broker_default, str):
        return (policy.broker_default,) if policy.broker_default else ()
    return tuple(key for _, key in policy.broker_default)


def _answers(brokers: Iterable[BrokerState], key: str) -> tuple[Json, ...]:
    """The distinct values that the brokers report, in order; empty when one of them lacks the setting."""
    texts = [broker.configuration.get(key) for broker in brokers]
    values = [] if None in texts else [parsed_setting(text) for text in texts]
    return tuple(sorted((value for at, value in enumerate(values) if value not in values[:at]), key=repr))


_DRIVER = "managedLedgerOffloadDriver"


def policies_can_be_created(pair: Pair) -> Iterator[Finding]:
    """The broker validates little on creation, so policies that fail later are detected here."""
    existing = pair.target_namespaces()
    for namespace in pair.translated.namespaces:
        if namespace.name in existing:
            continue
        for problem in problems(namespace.policies, pair.target.cluster):
            yield blocker(
                "policies-invalid",
                namespace.name,
                problem,
                f"{pair.target.cluster} would store it and fail later, so the namespace is not created.",
                f"correct the policy on {pair.source.cluster} and take the snapshot again.",
            )


def namespaces_are_active(pair: Pair) -> Iterator[Finding]:
    """A namespace that is being deleted or is flagged as migrated accepts no topics."""
    names = {state.name for state in pair.translated.namespaces}
    for own, _, _ in pair.sides():
        for namespace in own.namespaces:
            if namespace.name in names and namespace.policies.get("deleted"):
                yield blocker(
                    "namespace-deleted",
                    namespace.name,
                    f"deleted = true on {own.cluster}",
                    "Its topics cannot be loaded, and nothing can be created in it.",
                    f"{DELETE_AGAIN}.",
                )
            if namespace.name in names and namespace.policies.get("migrated"):
                yield blocker(
                    "namespace-migrated",
                    namespace.name,
                    f"migrated = true on {own.cluster}",
                    "Its topics do not load, and brokers redirect clients as soon as a redirect is stored.",
                    f"leave the flag and take the namespace out of the selection: its topics on {own.cluster} are "
                    "terminated, "
                    "so its clients are on another cluster. fail_back_namespaces leads back."
                    if has_terminated(own, namespace.name)
                    else f"if {own.cluster} has no redirect (404), the flag has no effect and may be cleared. With "
                    "one, its "
                    "clients may be on another cluster: leave the flag and take the namespace out of the selection.",
                    call=call_text(own.cluster, bare("GET", f"{cluster_path(own.cluster)}/migrate")),
                )


def unfinished_run(cluster: str, name: str, document: JsonObject) -> Iterator[Finding]:
    """A run that has not restored the policies of a namespace, whose document this is: nothing may be written to them.

    Where a migration has flagged the namespace or terminated its topics, that is what counts: the record stays there.
    """
    if (record := overrides_in(document)) and not document.get("migrated"):
        yield blocker(
            "run-not-ended",
            f"{name} on {cluster}",
            f"the run {record.run} overrides policies of its namespace since {record.since}",
            "It restores them when it ends, and takes from their lists of clusters what was written in between.",
            f"let it end, or continue it {_continued(record.run)}. Where it is given up, `pulsar-fleet restore` with "
            f"the connection of {cluster} and --end-replication restores what it left; it touches no live run.",
        )


def _continued(run: str) -> str:
    return f"by {resumption(run)}" if run.startswith("cli/") else "by clearing the task at which it stopped"


def resumption(run: str) -> str:
    """The command that continues a migration or failback which a command began."""
    return command_line("fail-back" if run.startswith("cli/fail-back") else "migrate", "--resume", run)


def has_terminated(snapshot: Snapshot, namespace: str) -> bool:
    """Whether a topic of the namespace is terminated there."""
    return any(topic.terminated and f"://{namespace}/" in topic.name for topic in snapshot.topics)


def offloaders_are_installed(pair: Pair) -> Iterator[Finding]:
    """Brokers without the offload driver cannot load the topics."""
    existing = pair.target_namespaces()
    in_use = {_driver(state.policies) for state in existing.values()} | {setting(pair.target, _DRIVER)}
    for namespace in pair.translated.namespaces:
        driver = _driver(namespace.policies)
        if driver and driver not in in_use:
            yield warning(
                "offload-driver",
                namespace.name,
                f"{_DRIVER} {driver!r}",
                f"Brokers of {pair.target.cluster} without this offloader cannot load any topic of the namespace.",
                f"install the offloader on every broker of {pair.target.cluster} and restart them. {NO_RESTART}",
            )


def entry_filters_are_installed(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (400) a filter that is not installed."""
    if setting(pair.target, "entryFiltersDirectory") != "":
        return
    namespaces = [(state.name, state.policies) for state in pair.translated.namespaces]
    topics = [(state.topic, state.policies) for state in pair.translated.topic_policies]
    for name, policies in (*namespaces, *topics):
        names = (policies.get("entryFilters") or {}).get("entryFilterNames")
        if names:
            yield blocker(
                "entry-filter-missing",
                name,
                f"entry filters {names!r}, and {pair.target.cluster} has no entryFiltersDirectory",
                "The brokers refuse the filter, and consumers get messages that it would have rejected.",
                f"install the filter on every broker of {pair.target.cluster}, set entryFiltersDirectory in their "
                f"broker.conf and restart them. {NO_RESTART}",
            )


def messages_outlive_the_lag(pair: Pair) -> Iterator[Finding]:
    """Messages that the source discards before they are replicated never reach the target, without an error."""
    for namespace in pair.source.namespaces if pair.probes.lag_seconds else ():
        yield from _expiry(pair, namespace)
        yield from _deletion(pair, namespace)
        yield from _eviction(pair, namespace)


def _expiry(pair: Pair, namespace: NamespaceState) -> Iterator[Finding]:
    lag, own = pair.probes.lag_seconds, namespace.policies.get("message_ttl_in_seconds")
    ttl = int(own) if own is not None else number(pair.source, "ttlDurationDefaultInSeconds")
    if 0 < ttl < lag:
        yield warning(
            "ttl-shorter-than-lag",
            namespace.name,
            f"messages expire after {ttl} s, expected lag {lag} s",
            "Messages that wait longer are skipped: the replicator's backlog expires too.",
            f"raise the time to live on {pair.source.cluster} until all messages are copied.",
            call=_setter(pair, namespace, "messageTTL", lag),
            values=(ttl, lag),
        )


def _deletion(pair: Pair, namespace: NamespaceState) -> Iterator[Finding]:
    lag = pair.probes.lag_seconds
    kept, size = _retention(pair, namespace.policies)
    if size != 0 and 0 < kept * 60 < lag:
        minutes = {"retentionTimeInMinutes": -(-lag // 60), "retentionSizeInMB": size}
        yield warning(
            "retention-shorter-than-lag",
            namespace.name,
            f"acknowledged messages are kept for {kept} min, expected lag {lag} s",
            "Older acknowledged messages are deleted before they are copied or compared.",
            f"raise the retention on {pair.source.cluster} until all messages are copied.",
            call=_setter(pair, namespace, "retention", minutes),
            values=(kept * 60, lag),
        )


def _eviction(pair: Pair, namespace: NamespaceState) -> Iterator[Finding]:
    lag = pair.probes.lag_seconds
    quota: JsonObject = (namespace.policies.get("backlog_quota_map") or {}).get("message_age") or {}
    if quota.get("policy") == "consumer_backlog_eviction" and 0 < int(quota.get("limitTime") or 0) < lag:
        yield warning(
            "quota-shorter-than-lag",
            namespace.name,
            f"backlog older than {quota['limitTime']} s is evicted, expected lag {lag} s",
            "The replicator's backlog is evicted too, and these messages never arrive.",
            f"raise the quota on {pair.source.cluster} until all messages are copied.",
            call=_setter(pair, namespace, "backlogQuota", {**quota, "limitTime": lag}, backlogQuotaType="message_age"),
            values=(int(quota["limitTime"]), lag),
        )


def _setter(pair: Pair, namespace: NamespaceState, path: str, body: Json, **params: str) -> str:
    name = NamespaceName.parse(namespace.name)
    return call_text(pair.source.cluster, with_body("POST", f"/namespaces/{name.path}/{path}", body, **params))


def _retention(pair: Pair, policies: JsonObject) -> tuple[int, int]:
    """For how many minutes, and how many MB, acknowledged messages are kept."""
    own = policies.get("retention_policies")
    if own:
        return int(own.get("retentionTimeInMinutes") or 0), int(own.get("retentionSizeInMB") or 0)
    return number(pair.source, "defaultRetentionTimeInMinutes"), number(pair.source, "defaultRetentionSizeInMB")


def _driver(policies: JsonObject) -> str:
    return str((policies.get("offload_policies") or {}).get(_DRIVER) or "")


_IN_OTHER_CHECKS = frozenset(
    {
        *COMPARED_DEFAULTS,
        "allowAutoSubscriptionCreation",
        "allowAutoTopicCreation",
        "allowAutoTopicCreationType",
        "authorizationEnabled",
        "defaultNumPartitions",
        "isAllowAutoUpdateSchemaEnabled",
        "maxMessageSize",
        "maxSubscriptionsPerTopic",
        "maxTopicsPerNamespace",
        "schemaCompatibilityStrategy",
        "topicLevelPoliciesEnabled",
    }
)


def effective_policies_match(pair: Pair) -> Iterator[Finding]:
    """Where the policies will be identical, different defaults of the brokers still change their effect."""
    copied = replace(
        pair.target,
        namespaces=pair.translated.namespaces,
        topics=pair.translated.topics,
        topic_policies=pair.translated.topic_policies,
    )
    for difference in effective_differences(pair.translated, copied):
        keys = sorted(set(difference.source) - _IN_OTHER_CHECKS)
        first, *others = difference.namespaces
        if keys:
            ours, theirs = ({key: settings[key] for key in keys} for settings in (difference.source, difference.target))
            call = "" if difference.switches else keeping_calls(pair, difference.field, difference.namespaces)
            yield warning(
                "behaves-differently",
                f"{first}{f' and {len(others)} more' if others else ''}",
                f"{difference.field} under {pair.values(ours, theirs)}",
                f"The policy is identical on both clusters, and has another effect on {pair.target.cluster}.",
                f"set {difference.field} on these namespaces on {pair.source.cluster} to what its brokers apply: "
                "nothing changes there, and the plan copies it."
                if call
                else f"accept the difference, or give the brokers of both the same settings. {NO_RESTART}",
                call=call,
                values=(ours, theirs),
            )
