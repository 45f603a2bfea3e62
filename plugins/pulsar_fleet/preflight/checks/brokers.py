"""Versions, features and settings of the brokers of both clusters (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE, topic_comparable
from pulsar_fleet.cluster.redaction import fingerprints
from pulsar_fleet.cluster.versions import REPLICATES_WITH_DEDUPLICATION, version_numbers
from pulsar_fleet.preflight.context import (
    Pair,
    blocker,
    call_text,
    in_broker_conf,
    keeping_calls,
    setting,
    settings,
    warning,
)
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import DYNAMIC_SETTING, Snapshot

_INACTIVE = "inactive_topic_policies"


def policies_are_known_to_the_target(pair: Pair) -> Iterator[Finding]:
    """A policy in use that the target's version lacks is left out, and the target behaves differently."""
    version = pair.target.oldest_version()
    if not version:
        return
    newer = {row.field for row in CATALOGUE if version_numbers(version) < version_numbers(row.since)}
    topic_newer = {row.field for row in TOPIC_CATALOGUE if version_numbers(version) < version_numbers(row.since)}
    used = [
        *(
            (namespace.name, field)
            for namespace in pair.translated.namespaces
            for field in comparable(namespace.policies, pair.target.cluster)
        ),
        *((row.topic, field) for row in pair.translated.topic_policies for field in topic_comparable(row.policies)),
    ]
    for name, field in used:
        if field in (topic_newer if "://" in name else newer):
            yield warning(
                "policy-unknown-to-target",
                name,
                f"{field} is set on {pair.source.cluster}, {pair.target.cluster} runs {version}",
                "The target's brokers lack this policy, so they do not apply it.",
                f"upgrade {pair.target.cluster}, or accept that the policy has no effect there.",
            )


def features_in_use_are_enabled(pair: Pair) -> Iterator[Finding]:
    """Features that the source uses must be enabled on every broker of the target."""
    yield from _need(
        pair,
        bool(pair.source.topic_policies),
        ("topicLevelPoliciesEnabled", "systemTopicEnabled"),
        "topic-policies-off",
        "The target refuses every topic policy, so only the namespace's policies apply to its topics.",
    )
    yield from _need(
        pair,
        any(subscription.replicated for subscription in pair.source.subscriptions),
        ("enableReplicatedSubscriptions",),
        "replicated-subscriptions-off",
        "Subscriptions have the replicated flag, but their cursors are never replicated.",
        stops=False,
    )
    yield from _need(
        pair,
        any((row.policies.get("delayed_delivery_policies") or {}).get("active") for row in pair.source.namespaces),
        ("delayedDeliveryEnabled",),
        "delayed-delivery-off",
        "Delayed messages are delivered immediately on the target.",
        stops=False,
    )
    yield from _need(
        pair,
        setting(pair.source, "transactionCoordinatorEnabled") == "true",
        ("transactionCoordinatorEnabled",),
        "transactions-off",
        "Clients that open transactions fail on the target.",
        stops=False,
    )


def _need(
    pair: Pair, used: bool, keys: tuple[str, ...], id_: str, consequence: str, *, stops: bool = True
) -> Iterator[Finding]:
    for key in keys if used else ():
        off = sorted(address for address, value in settings(pair.target, key).items() if value == "false")
        if off:
            yield (blocker if stops else warning)(
                id_,
                f"cluster {pair.target.cluster}",
                f"{key} = false on {', '.join(off)}",
                consequence,
                in_broker_conf(f"{key}=true", "these brokers"),
                values=(setting(pair.source, key), "false"),
            )


def deduplication_survives_replication(pair: Pair) -> Iterator[Finding]:
    """With deduplication, replication to brokers before the fix can lose messages."""
    users = [row.name for row in pair.translated.namespaces if row.policies.get("deduplicationEnabled")]
    on_by_default = "true" in settings(pair.target, "brokerDeduplicationEnabled").values()
    if not users and not on_by_default:
        return
    fixed = REPLICATES_WITH_DEDUPLICATION
    for snapshot in (pair.source, pair.target):
        version = snapshot.oldest_version()
        if version and not fixed.holds(version):
            yield warning(
                "dedup-before-fix",
                f"cluster {snapshot.cluster}",
                f"runs {version}; deduplication is on " + (f"in {users[0]} and others" if users else "by default"),
                fixed.before,
                f"upgrade {snapshot.cluster} to {fixed.since[-1]} or newer before replicating these namespaces.",
            )


# Setting → (id, consequence, policy). The broker's default is effective where a namespace has no policy.
COMPARED_DEFAULTS: dict[str, tuple[str, str, str]] = {
    "brokerDeduplicationEnabled": (
        "dedup-default-differs",
        "Namespaces without a policy of their own drop duplicates on one cluster only.",
        "deduplicationEnabled",
    ),
    "brokerDeleteInactiveTopicsEnabled": (
        "inactive-topics-default-differs",
        "Inactive topics without subscriptions are deleted on one cluster and kept on the other.",
        _INACTIVE,
    ),
    "defaultRetentionTimeInMinutes": (
        "retention-default-differs",
        "Namespaces without a policy of their own keep acknowledged messages for different times.",
        "retention_policies",
    ),
    "defaultRetentionSizeInMB": (
        "retention-default-differs",
        "Namespaces without a policy of their own keep different amounts of acknowledged messages.",
        "retention_policies",
    ),
    "ttlDurationDefaultInSeconds": (
        "ttl-default-differs",
        "Messages in namespaces without a policy of their own expire after different times.",
        "message_ttl_in_seconds",
    ),
}


def defaults_match(pair: Pair) -> Iterator[Finding]:
    """Identical policies have different effects when the brokers' defaults differ.

    A default of the target applies to all its namespaces, so only policies are advised.
    """
    for key, *lists in pair.differing_settings(COMPARED_DEFAULTS):
        ours, theirs = (" and ".join(values) for values in lists)
        id_, consequence, field = COMPARED_DEFAULTS[key]
        relying = [state.name for state in pair.translated.namespaces if state.policies.get(field) is None]
        if relying:
            remedy, call = _kept_default(pair, field, relying)
            yield warning(
                id_,
                f"cluster {pair.target.cluster}",
                f"{key}: {pair.values(ours, theirs)}; {len(relying)} namespaces have no policy of their own",
                consequence,
                remedy,
                call=call,
                values=(ours, theirs),
            )


def _kept_default(pair: Pair, field: str, relying: Sequence[str]) -> tuple[str, str]:
    if field == _INACTIVE:
        return (
            "nothing if a dynamic setting is the cause: a migration turns the deletion off on the cluster that its "
            "clients "
            "leave. Otherwise set the policy on each of these namespaces.",
            call_text(pair.source.cluster, bare("GET", "/brokers/configuration/values")),
        )
    return (
        f"set {field} on each of these namespaces on {pair.source.cluster} to what its brokers apply: nothing "
        "changes there, "
        "and the plan copies it.",
        keeping_calls(pair, field, relying),
    )


_PER_BROKER = (
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "defaultNumPartitions",
    "allowAutoSubscriptionCreation",
    "schemaCompatibilityStrategy",
    "isAllowAutoUpdateSchemaEnabled",
    "createTopicToRemoteClusterForReplication",
    "brokerDeduplicationEnabled",
    "topicLevelPoliciesEnabled",
    "authorizationEnabled",
    "maxTopicsPerNamespace",
)


def dynamic_settings_match(pair: Pair) -> Iterator[Finding]:
    """Dynamic settings of the source are not copied, since some belong to one cluster only: they are named."""
    missing = {
        state.name: str(state.detail["value"])
        for state in pair.source.inventory
        if state.kind == DYNAMIC_SETTING and {state.detail["value"]} != _values_of(pair.target, state.name)
    }
    if missing:
        values = {key: "(secret)" if fingerprints({key: value}) else value for key, value in missing.items()}
        yield warning(
            "dynamic-settings-differ",
            f"cluster {pair.target.cluster}",
            f"set on {pair.source.cluster}, without effect or different on {pair.target.cluster}: "
            + ", ".join(f"{key} = {value}" for key, value in values.items()),
            "The brokers of the two behave differently; dynamic settings are not copied.",
            f"set those that {pair.target.cluster} should have too; some may belong to one cluster only.",
            call=call_text(pair.source.cluster, bare("GET", "/brokers/configuration/values")),
            values=(values, None),
        )


def _values_of(snapshot: Snapshot, key: str) -> set[str]:
    """The values of a dynamic setting on a cluster: of its override, or else of each broker's configuration."""
    overrides = {
        str(state.detail["value"]) for state in snapshot.inventory if (state.kind, state.name) == (DYNAMIC_SETTING, key)
    }
    return overrides or set(settings(snapshot, key).values())


def brokers_have_equal_settings(pair: Pair) -> Iterator[Finding]:
    """Where settings differ within a cluster, the behaviour depends on the broker."""
    for snapshot in (pair.source, pair.target):
        for key in _PER_BROKER:
            by_broker = settings(snapshot, key)
            if len(set(by_broker.values())) > 1:
                yield warning(
                    "brokers-disagree",
                    f"cluster {snapshot.cluster}",
                    f"{key}: " + ", ".join(f"{address} {value}" for address, value in sorted(by_broker.items())),
                    "The behaviour of a topic depends on the broker that serves it.",
                    f"set the same {key} in broker.conf of every broker and restart the changed brokers, while no "
                    "migration "
                    "drains there: topics of a flagged namespace are not loaded again.",
                )
