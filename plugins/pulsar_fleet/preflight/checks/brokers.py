"""Versions, features and settings of the brokers of both clusters (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.lookup import CATALOGUE
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_CATALOGUE, topic_comparable
from pulsar_fleet.cluster.versions import version_numbers
from pulsar_fleet.preflight.context import Pair, blocker, setting, settings, warning
from pulsar_fleet.preflight.findings import Finding

OLDEST_SUPPORTED = "4.0"
_DEDUP_FIXED = "4.0.4"
"""Since #23697 a replicator's messages are told apart by position; before, deduplication could drop some."""


def brokers_run_supported_versions(pair: Pair) -> Iterator[Finding]:
    """What was measured holds from 4.0; a target older than its source lacks what the source may use."""
    for snapshot in (pair.source, pair.target):
        versions = sorted({broker.version for broker in snapshot.brokers}, key=version_numbers)
        if versions and version_numbers(versions[0]) < version_numbers(OLDEST_SUPPORTED):
            yield blocker(
                "version-unsupported",
                f"cluster {snapshot.cluster}",
                f"brokers run {', '.join(versions)}",
                "Policies of this version were never compared by us; some would be lost in silence.",
                f"upgrade the brokers to {OLDEST_SUPPORTED} or newer.",
            )
        if len(versions) > 1:
            yield warning(
                "versions-mixed",
                f"cluster {snapshot.cluster}",
                f"brokers run {', '.join(versions)}",
                "Which broker answers decides which policies exist.",
                "finish the rolling upgrade first.",
            )
    old, new = pair.target.oldest_version(), pair.source.oldest_version()
    if version_numbers(old)[:2] < version_numbers(new)[:2]:
        yield warning(
            "target-older",
            f"cluster {pair.target.cluster}",
            pair.values(new, old),
            "Policies that only the newer version knows are left out on the target.",
            "upgrade the target, or accept what the plan lists as left alone.",
            values=(new, old),
        )


def policies_are_known_to_the_target(pair: Pair) -> Iterator[Finding]:
    """A policy in use that the target's version does not have is left out, and the target behaves otherwise."""
    version = pair.target.oldest_version()
    if not version:
        return
    newer = {one.field: one.since for one in CATALOGUE if version_numbers(version) < version_numbers(one.since)}
    topic_newer = {one.field for one in TOPIC_CATALOGUE if version_numbers(version) < version_numbers(one.since)}
    used = [
        *(
            (one.name, field)
            for one in pair.wanted.namespaces
            for field in comparable(one.policies, pair.target.cluster)
        ),
        *((one.topic, field) for one in pair.wanted.topic_policies for field in topic_comparable(one.policies)),
    ]
    for name, field in used:
        if field in (topic_newer if "://" in name else newer):
            yield warning(
                "policy-unknown-to-target",
                name,
                f"{field} is set on {pair.source.cluster}, {pair.target.cluster} runs {version}",
                "The target's brokers do not know this policy, so they do not apply it.",
                f"upgrade {pair.target.cluster}, or unset it on {pair.source.cluster}.",
            )


def features_in_use_are_on(pair: Pair) -> Iterator[Finding]:
    """What the source's estate uses must be switched on at every broker of the target."""
    yield from _need(
        pair,
        bool(pair.source.topic_policies),
        ("topicLevelPoliciesEnabled", "systemTopicEnabled"),
        "topic-policies-off",
        "The target refuses every topic policy, and its topics go by their namespace alone.",
    )
    yield from _need(
        pair,
        any(one.replicated for one in pair.source.subscriptions),
        ("enableReplicatedSubscriptions",),
        "replicated-subscriptions-off",
        "Subscriptions are marked as replicated and never are.",
        stops=False,
    )
    yield from _need(
        pair,
        any((one.policies.get("delayed_delivery_policies") or {}).get("active") for one in pair.source.namespaces),
        ("delayedDeliveryEnabled",),
        "delayed-delivery-off",
        "Delayed messages are delivered at once on the target.",
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
                f"set {key}=true in broker.conf of these brokers and restart them: it is not dynamic.",
                values=(setting(pair.source, key), "false"),
            )


def deduplication_survives_replication(pair: Pair) -> Iterator[Finding]:
    """With deduplication on, replication into brokers before the fix can lose messages."""
    users = [one.name for one in pair.wanted.namespaces if one.policies.get("deduplicationEnabled")]
    on_by_default = "true" in settings(pair.target, "brokerDeduplicationEnabled").values()
    if not users and not on_by_default:
        return
    for snapshot in (pair.source, pair.target):
        version = snapshot.oldest_version()
        if version and version_numbers(version) < version_numbers(_DEDUP_FIXED):
            yield warning(
                "dedup-before-fix",
                f"cluster {snapshot.cluster}",
                f"runs {version}; deduplication is on " + (f"in {users[0]} and others" if users else "by default"),
                "A broker before 4.0.4 may take replicated messages for duplicates and drop them.",
                f"upgrade {snapshot.cluster} to {_DEDUP_FIXED} or newer before replicating these namespaces.",
            )


# Setting → (id, what goes differently). The broker's default counts where a namespace says nothing.
DEFAULTS_ALIKE: dict[str, tuple[str, str]] = {
    "brokerDeduplicationEnabled": (
        "dedup-default-differs",
        "Namespaces without a policy of their own drop duplicates on one cluster only.",
    ),
    "brokerDeleteInactiveTopicsEnabled": (
        "inactive-topics-default-differs",
        "Idle topics without subscriptions vanish on one cluster and stay on the other.",
    ),
    "defaultRetentionTimeInMinutes": (
        "retention-default-differs",
        "Namespaces without a policy of their own keep acknowledged messages for another time.",
    ),
    "defaultRetentionSizeInMB": (
        "retention-default-differs",
        "Namespaces without a policy of their own keep another amount of acknowledged messages.",
    ),
    "ttlDurationDefaultInSeconds": (
        "ttl-default-differs",
        "Messages in namespaces without a policy of their own expire at another time.",
    ),
}


def defaults_are_alike(pair: Pair) -> Iterator[Finding]:
    """Equal documents behave differently under different defaults of the brokers."""
    for key, (id_, consequence) in DEFAULTS_ALIKE.items():
        ours, theirs = (set(settings(snapshot, key).values()) for snapshot in (pair.source, pair.target))
        if ours and theirs and ours != theirs:
            yield warning(
                id_,
                f"cluster {pair.target.cluster}",
                f"{key}: {pair.values(_shown(ours), _shown(theirs))}",
                consequence,
                f"set {key}={_shown(ours)} in broker.conf of every broker of {pair.target.cluster}, or the policy on "
                "each namespace.",
                values=(_shown(ours), _shown(theirs)),
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


def brokers_of_a_cluster_agree(pair: Pair) -> Iterator[Finding]:
    """Where brokers of one cluster disagree, which one answers decides what happens."""
    for snapshot in (pair.source, pair.target):
        for key in _PER_BROKER:
            found = settings(snapshot, key)
            if len(set(found.values())) > 1:
                yield warning(
                    "brokers-disagree",
                    f"cluster {snapshot.cluster}",
                    f"{key}: " + ", ".join(f"{address} {value}" for address, value in sorted(found.items())),
                    "Which broker serves a topic decides how it behaves.",
                    f"set {key} alike in broker.conf of every broker and restart those that differ.",
                )


def _shown(values: set[str]) -> str:
    return " and ".join(sorted(values))
