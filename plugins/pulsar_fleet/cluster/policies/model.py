"""What one row of the two catalogues of policies says (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import Json


class Kind(StrEnum):
    """How a field of a namespace is read, compared and written."""

    VALUE = "value"
    NAMES = "names"
    """A list whose order means nothing."""
    FLAG = "flag"
    """Set by a call without a body; `false` and absent mean the same."""
    OFFLOAD = "offload"
    """The broker adds defaults and read-only fields to what was set."""
    QUOTAS = "quotas"
    """A map by quota type, one call per type."""
    GRANTS = "grants"
    """Rights of roles, one call per role."""
    PROPERTIES = "properties"
    """A map that the setter merges into; each key that goes needs a call of its own."""
    CLUSTER_LIST = "cluster list"
    """A list without the serving cluster's own name deletes that cluster's topics."""
    CLUSTER_MAP = "cluster map"
    """Keyed by cluster name; a setter writes the entry of the cluster that serves the call."""
    LOCAL = "local"
    """Kept by this cluster outside the document, with an address of its own."""
    AT_CREATION = "at creation"
    """Only taken when the namespace is created."""
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


Loses = Callable[[Json, Json], bool]
Parts = tuple[tuple[str, str], ...]
"""Pairs: a part of the value, and the configuration key that it comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one field of the document is set, unset, compared and judged.

    :param path: below `/namespaces/{tenant}/{namespace}/`; empty where no setter exists.
    :param method: of the setter.
    :param in_path: the value stands in the path instead of the body.
    :param unset_path: where unsetting has another path.
    :param default: what the document shows while the field is not set (absent, empty and null always mean that).
    :param after: fields that have to be set before it, else the broker refuses it.
    :param loses: whether going from one value to another makes the broker discard stored messages or topics.
    :param sections: parts of the value that are set by calls of their own.
    :param secrets: parts of the value that must not be shown.
    :param broker_default: the configuration key, or the key of each part, that counts while the field is not set.
    :param needs: broker settings that switch the policy off as a whole, set or not.
    :param own: kept by each cluster for itself, also where clusters share a configuration store.
    :param since: first Pulsar version that knows it.
    """

    field: str
    path: str = ""
    method: str = "POST"
    unset: Unset = Unset.DELETE
    unset_path: str = ""
    kind: Kind = Kind.VALUE
    in_path: bool = False
    default: Json = None
    after: tuple[str, ...] = ()
    loses: Loses | None = None
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
        """Whether its keys are names of clusters, which another cluster needs renamed."""
        return self.kind is Kind.CLUSTER_MAP or self.field in ("clusterDispatchRate", "latency_stats_sample_rate")


class Scope(StrEnum):
    """A topic has two documents: for this cluster, and for all clusters of its namespace."""

    LOCAL = "local"
    GLOBAL = "global"


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
    """A list that leaves a cluster out deletes the topic there, so only the local one is ever written."""
    IN_QUERY = "in query"
    ELSEWHERE = "elsewhere"
    """Owned by another procedure, or the document's own state; never copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """How one topic policy is set, unset and compared.

    :param path: below the topic; `isGlobal` in the query chooses the document.
    :param fields: of the document, where the policy is kept in several.
    :param can_unset: there is a call to unset it; else `false` has to stand for that.
    :param local_only: the broker ignores `isGlobal` for it and writes the local document.
    :param namespace_field: what counts while neither document of the topic sets it.
    :param broker_default: what counts then, if the namespace has no such field.

    The others mean what they mean for a `Policy`.
    """

    field: str
    path: str = ""
    method: str = "POST"
    form: Form = Form.VALUE
    fields: tuple[str, ...] = ()
    local_only: bool = False
    can_unset: bool = True
    after: tuple[str, ...] = ()
    loses: Loses | None = None
    sections: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    namespace_field: str = ""
    broker_default: str = ""
    since: str = ""

    def carried(self, scope: Scope) -> bool:
        """Whether it is copied in this scope."""
        if self.form is Form.ELSEWHERE:
            return False
        return scope is Scope.LOCAL or not (self.local_only or self.form is Form.CLUSTER_LIST)
