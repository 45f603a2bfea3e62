"""Policies that the target would store and then break on, and those that let messages go too early (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pulsar_fleet.cluster.admin.call import bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import problems
from pulsar_fleet.preflight.broker_settings import behaving_differently
from pulsar_fleet.preflight.checks.brokers import DEFAULTS_ALIKE
from pulsar_fleet.preflight.context import Pair, blocker, call_text, number, setting, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import NamespaceState

_DRIVER = "managedLedgerOffloadDriver"


def policies_can_be_created(pair: Pair) -> Iterator[Finding]:
    """The broker's creating call checks little, so what it would take and then break on is found here."""
    held = pair.held()
    for namespace in pair.wanted.namespaces:
        if namespace.name in held:
            continue
        for problem in problems(namespace.policies, pair.target.cluster):
            yield blocker(
                "policies-invalid",
                namespace.name,
                problem,
                f"{pair.target.cluster} would store it and fail later; the namespace is not created.",
                f"correct the policy on {pair.source.cluster} and take the snapshot again.",
            )


def namespaces_are_alive(pair: Pair) -> Iterator[Finding]:
    """A namespace that is being deleted or was migrated away takes no topics."""
    names = {one.name for one in pair.wanted.namespaces}
    for own, _, _ in pair.sides():
        for namespace in own.namespaces:
            path = f"/namespaces/{NamespaceName.parse(namespace.name).path}"
            if namespace.name in names and namespace.policies.get("deleted"):
                yield blocker(
                    "namespace-deleted",
                    namespace.name,
                    f"deleted = true on {own.cluster}",
                    "It is marked as deleted: its topics cannot be loaded, nothing can be created in it.",
                    f"finish its deletion on {own.cluster} and take the snapshot again.",
                    call=call_text(own.cluster, bare("DELETE", path)),
                )
            if namespace.name in names and namespace.policies.get("migrated"):
                yield blocker(
                    "namespace-migrated",
                    namespace.name,
                    f"migrated = true on {own.cluster}",
                    "Its topics do not load, and clients are sent away as soon as a redirect is stored.",
                    f"clear the flag on {own.cluster}, unless a migration runs.",
                    call=call_text(own.cluster, with_body("POST", f"{path}/migration", False)),
                )


def offloaders_are_there(pair: Pair) -> Iterator[Finding]:
    """A driver that the brokers do not have keeps topics from being loaded at all."""
    held = pair.held()
    in_use = {_driver(one.policies) for one in held.values()} | {setting(pair.target, _DRIVER)}
    for namespace in pair.wanted.namespaces:
        driver = _driver(namespace.policies)
        if driver and driver not in in_use:
            yield warning(
                "offload-driver",
                namespace.name,
                f"{_DRIVER} {driver!r}",
                f"Brokers of {pair.target.cluster} without this offloader cannot load any topic of the namespace.",
                f"make sure that every broker of {pair.target.cluster} has the offloader installed.",
            )


def entry_filters_are_there(pair: Pair) -> Iterator[Finding]:
    """The broker refuses (400) a filter that is not installed."""
    if setting(pair.target, "entryFiltersDirectory") != "":
        return
    for namespace in pair.wanted.namespaces:
        names = (namespace.policies.get("entryFilters") or {}).get("entryFilterNames")
        if names:
            yield blocker(
                "entry-filter-missing",
                namespace.name,
                f"entry filters {names!r}, and {pair.target.cluster} has no entryFiltersDirectory",
                "The brokers refuse the filter, and consumers get messages that it would have held back.",
                f"install the filter on every broker of {pair.target.cluster} and set entryFiltersDirectory.",
            )


def messages_outlive_the_lag(pair: Pair) -> Iterator[Finding]:
    """What the source discards before it was carried never reaches the target, and nothing says so."""
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
            f"messages expire after {ttl} s, {lag} s of lag are expected",
            "Messages that wait longer than that are skipped: the replicator's backlog expires too.",
            f"lengthen the time to live on {pair.source.cluster} until all is carried.",
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
            f"acknowledged messages are kept for {kept} min, {lag} s of lag are expected",
            "What is acknowledged and older is deleted before it was copied or compared.",
            f"lengthen retention on {pair.source.cluster} until all is carried.",
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
            f"backlog older than {quota['limitTime']} s is evicted, {lag} s of lag are expected",
            "The replicator's backlog is evicted like any other, and these messages never arrive.",
            f"lengthen the quota on {pair.source.cluster} until all is carried.",
            call=_setter(pair, namespace, "backlogQuota", {**quota, "limitTime": lag}, backlogQuotaType="message_age"),
            values=(int(quota["limitTime"]), lag),
        )


def _setter(pair: Pair, namespace: NamespaceState, path: str, body: Json, **params: str) -> str:
    name = NamespaceName.parse(namespace.name)
    return call_text(pair.source.cluster, with_body("POST", f"/namespaces/{name.path}/{path}", body, **params))


def _retention(pair: Pair, policies: JsonObject) -> tuple[int, int]:
    """Minutes and MB that acknowledged messages are kept."""
    own = policies.get("retention_policies")
    if own:
        return int(own.get("retentionTimeInMinutes") or 0), int(own.get("retentionSizeInMB") or 0)
    return number(pair.source, "defaultRetentionTimeInMinutes"), number(pair.source, "defaultRetentionSizeInMB")


def _driver(policies: JsonObject) -> str:
    return str((policies.get("offload_policies") or {}).get(_DRIVER) or "")


_TOLD_BY_OTHER_CHECKS = frozenset(
    {
        *DEFAULTS_ALIKE,
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


def policies_behave_alike(pair: Pair) -> Iterator[Finding]:
    """Where the documents will be equal, what counts still differs with the defaults of the brokers."""
    copied = replace(
        pair.target,
        namespaces=pair.wanted.namespaces,
        topics=pair.wanted.topics,
        topic_policies=pair.wanted.topic_policies,
    )
    for one in behaving_differently(pair.wanted, copied):
        keys = sorted(set(one.source) - _TOLD_BY_OTHER_CHECKS)
        if keys:
            ours, theirs = ({key: found[key] for key in keys} for found in (one.source, one.target))
            yield warning(
                "behaves-differently",
                f"{one.namespaces[0]}{f' and {len(one.namespaces) - 1} more' if one.namespaces[1:] else ''}",
                f"{one.field} under {pair.values(ours, theirs)}",
                f"The policy is said alike on both clusters, and works differently on {pair.target.cluster}.",
                f"set {', '.join(keys)} alike on every broker, or set {one.field} on these namespaces.",
                values=(ours, theirs),
            )
