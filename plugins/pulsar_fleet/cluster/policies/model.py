"""The rows of the catalogues of policies, and the changes after which a broker discards data (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.json import Json


class Kind(StrEnum):
    """How a field of a namespace is read, compared and written."""

    VALUE = "value"
    NAMES = "names"
    """A list whose order has no meaning."""
    FLAG = "flag"
    """Set by a call without a body; `false` and absent mean the same."""
    OFFLOAD = "offload"
    """The broker adds defaults and read-only fields to what was set."""
    DELAYED = "delayed delivery"
    """The broker adds a limit of 0, which is none; before 4.0 there is no limit."""
    QUOTAS = "quotas"
    """A map by quota type, one call per type."""
    GRANTS = "grants"
    """Rights of roles, one call per role."""
    PROPERTIES = "properties"
    """A map into which the setter merges; each removed key needs a call of its own."""
    CLUSTER_LIST = "cluster list"
    """A list without the serving cluster's own name deletes that cluster's topics."""
    CLUSTER_MAP = "cluster map"
    """Keyed by cluster name; a setter writes the entry of the cluster that serves the call."""
    LOCAL = "local"
    """Stored by this cluster outside of the document, with a path of its own."""
    AT_CREATION = "at creation"
    """Can be set only when the namespace is created."""
    MIRROR = "mirror"
    """Written by the broker together with another field."""
    INTERNAL = "internal"
    """The broker's own state; never copied, never compared."""


class Unset(StrEnum):
    """How a field returns to "not set"."""

    DELETE = "delete"
    EMPTY_POST = "post without a body"
    NULL = "set to null"
    DEFAULT = "set to the default"
    IMPOSSIBLE = "cannot be unset"


LosesData = Callable[[Json, Json], bool]
Parts = tuple[tuple[str, str], ...]
"""Pairs: a part of the value, and its configuration key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one field of the policies document is set, unset and compared, and whether a change loses data.

    :param path: below `/namespaces/{tenant}/{namespace}/`; empty if no setter exists.
    :param method: of the setter.
    :param in_path: the value is in the path instead of the body.
    :param in_query: the value is in this parameter of the setter of another policy, whose value must be `false` too.
    :param unset_path: path to unset it, if different.
    :param default: value in the document while the field is not set (absent, empty and null always mean not set).
    :param after: fields that must be set before it, else the broker refuses it.
    :param loses: whether going from one value to another makes the broker discard stored messages or topics.
    :param sections: parts of the value that are set by separate calls.
    :param secrets: parts of the value that are secrets.
    :param broker_default: configuration key, or the key of each part, in effect while the field is not set.
    :param needs: broker settings that can disable the policy.
    :param own: each cluster stores its own value, even where clusters share a configuration store.
    :param since: first Pulsar version that has it.
    """

    field: str
    path: str = ""
    method: str = "POST"
    unset: Unset = Unset.DELETE
    unset_path: str = ""
    kind: Kind = Kind.VALUE
    in_path: bool = False
    in_query: str = ""
    default: Json = None
    after: tuple[str, ...] = ()
    loses_data: LosesData | None = None
    sections: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    broker_default: str | Parts = ""
    needs: tuple[str, ...] = ()
    own: bool = False
    since: str = ""

    @property
    def comparable(self) -> bool:
        """Whether two clusters should agree on it."""
        return self.kind not in (Kind.INTERNAL, Kind.MIRROR)

    @property
    def keyed_by_cluster(self) -> bool:
        """Whether its keys are names of clusters, which must be renamed for another cluster."""
        return self.kind is Kind.CLUSTER_MAP or self.field in ("clusterDispatchRate", "latency_stats_sample_rate")


class Scope(StrEnum):
    """A topic has two documents: for this cluster, and for all clusters of its namespace."""

    LOCAL = "local"
    GLOBAL = "global"


@dataclass(frozen=True, slots=True)
class TopicPolicyField:
    """A policy in one of a topic's two documents, written as `local/maxProducerPerTopic`."""

    scope: Scope
    policy: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        scope, _, policy = text.partition("/")
        return cls(Scope(scope), policy)

    def __str__(self) -> str:
        return f"{self.scope}/{self.policy}"


TOPIC_CLUSTERS = "replicationClusters"
"""The topic policy with the list of clusters, in its own document and in the global one."""
OWN_LIST = str(TopicPolicyField(Scope.LOCAL, TOPIC_CLUSTERS))
"""The field of a change of a topic's own list: a list without the serving cluster's own name deletes the topic."""


class Form(StrEnum):
    """How a topic policy is read and written."""

    VALUE = "value"
    NAMES = "names"
    FLAG = "flag"
    QUOTAS = "quotas"
    OFFLOAD = "offload"
    DELAYED = "delayed delivery"
    """Three fields of the document, set together."""
    PER_SUBSCRIPTION = "per subscription"
    CLUSTER_LIST = "cluster list"
    """A list without a cluster deletes the topic there, so only the local document is ever written."""
    IN_QUERY = "in query"
    NOT_COPIED = "not copied"
    """Owned by another procedure, or the document's own state; never copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """How one topic policy is set, unset and compared.

    :param path: below the topic; `isGlobal` in the query chooses the document.
    :param fields: of the document, where the policy has several.
    :param can_unset: a call to unset it exists; else it is set to `false`.
    :param local_only: the broker ignores `isGlobal` for it and writes the local document.
    :param namespace_field: namespace policy in effect while neither document of the topic sets it.
    :param broker_default: configuration key in effect then, if there is no such namespace policy.

    The other fields are those of `Policy`.
    """

    field: str
    path: str = ""
    method: str = "POST"
    form: Form = Form.VALUE
    fields: tuple[str, ...] = ()
    local_only: bool = False
    can_unset: bool = True
    after: tuple[str, ...] = ()
    loses_data: LosesData | None = None
    sections: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    namespace_field: str = ""
    broker_default: str = ""
    since: str = ""

    def is_copied(self, scope: Scope) -> bool:
        """Whether it is copied in this scope."""
        if self.form is Form.NOT_COPIED:
            return False
        return scope is Scope.LOCAL or not (self.local_only or self.form is Form.CLUSTER_LIST)


def lowered(*keys: str) -> Callable[[Json, Json], bool]:
    """A rule: whether one of the limits `keys` became smaller; -1 is no limit, an unset policy retains nothing."""

    def rule(before: Json, after: Json) -> bool:
        if not before:
            return False
        return any(_limit((after or {}).get(key, 0)) < _limit(before.get(key, 0)) for key in keys)

    return rule


def shortened(before: Json, after: Json) -> bool:
    """Whether a time to live became shorter; 0 and unset are no limit."""
    return bool(after) and after > 0 and (not before or after < before)


def evicts_backlog(before: Json, after: Json) -> bool:
    """Whether a quota that discards unacknowledged messages is new or became smaller."""
    for kind, quota in (after or {}).items():
        if quota.get("policy") != "consumer_backlog_eviction":
            continue
        old = (before or {}).get(kind) or {}
        evicted_before = old.get("policy") == "consumer_backlog_eviction"
        if not evicted_before or lowered("limitSize", "limitTime")(old, quota):
            return True
    return False


def deletes_inactive(before: Json, after: Json) -> bool:
    """Whether inactive topics are deleted from now on, or under another rule.

    Unsetting counts, because the broker's default deletes them after a minute.
    """
    if after is not None and not after.get("deleteWhileInactive"):
        return False
    return bool(before != after)


def drops_name(before: Json, after: Json) -> bool:
    """Whether a cluster is removed from a list: replication to it stops, and its replication backlog is discarded."""
    return bool(set(before or ()) - set(after or ()))


def _limit(value: float) -> float:
    return math.inf if value < 0 else value
