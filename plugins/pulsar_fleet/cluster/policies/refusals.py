"""The values of policies that brokers refuse, each with the broker's sentence and a value of the same effect (pure).

One row per rule, for namespaces and topics alike, so that a value is checked before any call. Each value was sent to
the setters of a namespace and of a topic, and to the creation of a namespace, with 3.0.7, 4.0.7 and 4.2.4. That a
retention has the same effect was measured by what a broker deletes; a negative limit counts as not set in 4.2.4's
`AbstractTopic`.

Measured with 4.2.4: a quota must be below the retention in size and in time, in the dimensions that the retention
limits. The setters of a namespace compare its quota `destination_storage` only, those of a topic both types; a topic
without a value of its own is compared with its namespace's. Unsetting a retention is never refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.versions import version_numbers

MEGABYTE = 1 << 20
MINUTES, MEGABYTES = "retentionTimeInMinutes", "retentionSizeInMB"


def exceeds_retention(quota: Json, retention: Json) -> bool:
    """Whether brokers refuse a backlog quota beside a retention; a negative limit of either, or unset, is none."""
    size, minutes = ((retention or {}).get(key, 0) for key in (MEGABYTES, MINUTES))
    bytes_, seconds = ((quota or {}).get(key, -1) for key in ("limitSize", "limitTime"))
    return bool((size > 0 and bytes_ >= size * MEGABYTE) or (minutes > 0 and seconds >= minutes * 60))


def limits_quota(retention: Json) -> bool:
    """Whether brokers compare a backlog quota with this retention in any dimension."""
    return any((retention or {}).get(key, 0) > 0 for key in (MINUTES, MEGABYTES))


def longer_retention(first: JsonObject, second: JsonObject) -> JsonObject:
    """A retention beside which brokers accept each quota that they accept beside one of the two."""
    return {key: _larger(first.get(key, 0), second.get(key, 0)) for key in (MINUTES, MEGABYTES)}


def _larger(first: int, second: int) -> int:
    return max(first, second) if min(first, second) > 0 else -1


_TIME, _SIZE = MINUTES, MEGABYTES
_QUORUMS = ("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum")
_PARTITIONS, _TYPE = "defaultNumPartitions", "topicType"
_DRIVER = "managedLedgerOffloadDriver"
_S3, _GCS = frozenset({"s3", "aws-s3"}), frozenset({"google-cloud-storage"})
_DRIVERS = _S3 | _GCS | {"filesystem", "azureblob", "aliyun-oss"}


class Level(StrEnum):
    """What has the policy."""

    NAMESPACE = "namespace"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value that is about to be set, with what the broker compares it with.

    :param value: comparable value of the policy.
    :param inherited: the value in effect without it: of the namespace or of the brokers; None where none is known.
    :param effective: field of a namespace policy → what the namespace, or the topic over it, has beside the value.
    """

    level: Level
    value: Json
    inherited: Json = None
    effective: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A value that has the same effect; None: the policy is not set."""

    value: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A rule of the brokers for the values of one policy.

    :param field: of the namespace policy, or of a topic policy that no namespace has.
    :param says: the broker's sentence.
    :param equivalent: a value with the same effect that the broker accepts; None if there is none.
    :param offer: the equivalent in words, for the documentation.
    :param compared: the field of another policy with which the broker compares the value.
    :param created: whether it also refuses to create a namespace with the value; else it stores it unchecked.
    :param levels: where the policy is checked.
    :param topics_since: first Pulsar version that checks it for topics.
    """

    field: str
    says: str
    refuses: Callable[[Setting], bool]
    equivalent: Callable[[Setting], Equivalent | None] = lambda _: None
    offer: str = ""
    compared: str = ""
    created: bool = False
    levels: frozenset[Level] = frozenset(Level)
    topics_since: str = ""

    def applies(self, level: Level, version: str) -> bool:
        """Whether brokers of `version` check the policy at this level."""
        if level not in self.levels:
            return False
        since = self.topics_since if level is Level.TOPIC else ""
        return not since or version_numbers(version) >= version_numbers(since)


def exceeding_quota(retention: Json, quotas: Mapping[str, Json], level: Level) -> str:
    """The type of backlog quota that is not below the retention; empty if there is none.

    For a namespace brokers compare only `destination_storage`, with both of its limits; for a topic both types.
    """
    kept = all((retention or {}).get(part) for part in (_TIME, _SIZE))
    kinds = ("destination_storage", "message_age") if level is Level.TOPIC else ("destination_storage",)
    return next((kind for kind in kinds if kept and exceeds_retention(quotas.get(kind), retention)), "")


def _retention(setting: Setting) -> JsonObject:
    return {part: int((setting.value or {}).get(part) or 0) for part in (_TIME, _SIZE)}


def _one_limit_is_zero(setting: Setting) -> bool:
    zero = [limit == 0 for limit in _retention(setting).values()]
    return any(zero) and not all(zero)


def _limit_below_minus_one(setting: Setting) -> bool:
    return min(_retention(setting).values()) < -1 and not _one_limit_is_zero(setting)


def _endless(setting: Setting) -> Equivalent:
    return Equivalent({part: max(-1, limit) for part, limit in _retention(setting).items()})


def _exceeds(setting: Setting) -> bool:
    retention, quotas = (setting.effective.get(name) for name in ("retention_policies", "backlog_quota_map"))
    return bool(exceeding_quota(retention, quotas or {}, setting.level))


def _copies(setting: Setting) -> tuple[int, ...]:
    return tuple(int((setting.value or {}).get(part) or 0) for part in _QUORUMS)


def _descending(setting: Setting) -> list[int]:
    return sorted(_copies(setting), reverse=True)


def _is_negative(setting: Setting) -> bool:
    return isinstance(setting.value, int) and setting.value < 0


def _creates(setting: Setting, kind: str) -> bool:
    return bool((setting.value or {}).get("allowAutoTopicCreation")) and setting.value.get(_TYPE) == kind


def _without_number(setting: Setting) -> Equivalent:
    return Equivalent({part: value for part, value in setting.value.items() if part != _PARTITIONS})


def _driver(document: Json) -> str:
    return str((document or {}).get(_DRIVER) or "").lower()


def _lacks_bucket(setting: Setting) -> bool:
    driver, value = _driver(setting.value), setting.value or {}
    own = "s3" if driver in _S3 else "gcs" if driver in _GCS else ""
    buckets = ("managedLedgerOffloadBucket", f"{own}ManagedLedgerOffloadBucket" if own else "")
    return driver in _DRIVERS - {"filesystem"} and not any(value.get(key) for key in buckets)


def _no_offload(setting: Setting) -> Equivalent | None:
    """Without a driver on any layer nothing is offloaded, with or without the policy of the topic."""
    return None if _driver(setting.inherited) else Equivalent(None)


def _too_long(setting: Setting) -> bool:
    return setting.inherited is not None and int(setting.value) > int(setting.inherited)


def _unset(_: Setting) -> Equivalent:
    return Equivalent(None)


_AT_NAMESPACES, _AT_TOPICS = frozenset({Level.NAMESPACE}), frozenset({Level.TOPIC})
_LIMITS = (
    "max_producers_per_topic",
    "max_consumers_per_topic",
    "max_consumers_per_subscription",
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
    "max_subscriptions_per_topic",
    "max_topics_per_namespace",
    "compaction_threshold",
)
_UNKNOWN_DRIVER = (
    "The driver is not supported, support value: S3,aws-s3,google-cloud-storage,filesystem,azureblob,aliyun-oss"
)
REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        field="retention_policies",
        says="Setting a single time or size limit to 0 is invalid when one of the limits has a non-zero value.",
        refuses=_one_limit_is_zero,
        equivalent=lambda _: Equivalent({_TIME: 0, _SIZE: 0}),
        offer="0 min and 0 MB: a single 0 keeps nothing either",
        created=True,
        topics_since="4.0",
    ),
    Refusal(
        field="retention_policies",
        says="Invalid retention policy: time limit and size limit must be >= -1",
        refuses=_limit_below_minus_one,
        equivalent=_endless,
        offer="-1, which is no limit, in its place",
        created=True,
        topics_since="4.0",
    ),
    Refusal(
        field="retention_policies",
        says="Retention Quota must exceed configured backlog quota.",
        refuses=_exceeds,
        compared="backlog_quota_map",
    ),
    Refusal(
        field="backlog_quota_map",
        says="Backlog Quota exceeds configured retention quota.",
        refuses=_exceeds,
        compared="retention_policies",
    ),
    Refusal(
        field="persistence",
        says="Bookkeeper-Ensemble, Bookkeeper-WriteQuorum and Bookkeeper-AckQuorum must be > 0.",
        refuses=lambda setting: min(_copies(setting)) <= 0,
        created=True,
    ),
    Refusal(
        field="persistence",
        says="Bookkeeper Ensemble >= WriteQuorum >= AckQuorum",
        refuses=lambda setting: min(_copies(setting)) > 0 and list(_copies(setting)) != _descending(setting),
        created=True,
    ),
    Refusal(
        field="message_ttl_in_seconds",
        says="Invalid value for message TTL, message TTL must >= 0",
        refuses=_is_negative,
        equivalent=_unset,
        offer="not set",
        created=True,
    ),
    Refusal(
        field="subscription_expiration_time_minutes",
        says="Invalid value for subscription expiration time",
        refuses=_is_negative,
    ),
    Refusal(
        field="deduplicationSnapshotIntervalSeconds",
        says="interval must be greater than or equal to 0",
        refuses=_is_negative,
    ),
    *(
        Refusal(field=name, says=f"{name} must be 0 or more", refuses=_is_negative, equivalent=_unset, offer="not set")
        for name in _LIMITS
    ),
    Refusal(
        field="maxMessageSize",
        says="topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the "
        "broker-level",
        refuses=lambda setting: _is_negative(setting) or _too_long(setting),
        levels=_AT_TOPICS,
    ),
    Refusal(
        field="autoTopicCreationOverride",
        says="[defaultNumPartitions] cannot be less than 1 for partition type.",
        refuses=lambda setting: _creates(setting, "partitioned") and int(setting.value.get(_PARTITIONS) or 0) < 1,
        levels=_AT_NAMESPACES,
    ),
    Refusal(
        field="autoTopicCreationOverride",
        says="[defaultNumPartitions] is not allowed to be set when the type is non-partition.",
        refuses=lambda setting: _creates(setting, "non-partitioned") and _PARTITIONS in setting.value,
        equivalent=_without_number,
        offer="the same without the number",
        levels=_AT_NAMESPACES,
    ),
    Refusal(
        field="offload_policies",
        says=_UNKNOWN_DRIVER,
        refuses=lambda setting: not _driver(setting.value),
        equivalent=_no_offload,
        offer="not set, where the namespace and the brokers have no driver either",
        levels=_AT_TOPICS,
        topics_since="4.0",
    ),
    Refusal(
        field="offload_policies",
        says=_UNKNOWN_DRIVER,
        refuses=lambda setting: bool(_driver(setting.value)) and _driver(setting.value) not in _DRIVERS,
        topics_since="4.0",
    ),
    Refusal(
        field="offload_policies",
        says="The bucket must be specified for namespace offload.",
        refuses=_lacks_bucket,
        topics_since="4.0",
    ),
    Refusal(
        field="entryFilters",
        says="entryFilterNames can't be empty. To remove entry filters use the remove method.",
        refuses=lambda setting: not (setting.value or {}).get("entryFilterNames"),
        equivalent=_unset,
        offer="not set",
    ),
)
"""Every measured rule. A rule that depends on another policy has a row for each of the two."""
