"""Names of Pulsar resources: parse, format, partitions (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pulsar_fleet.cluster.document import TextValue
from pulsar_fleet.cluster.errors import InvalidRequest

# Broker rule (NamedEntity.java): word characters and "-=:.", for tenants, namespaces and clusters.
_ENTITY = re.compile(r"^[\w=:.-]+$")
_PARTITION = re.compile(r"^(?P<parent>.+)-partition-(?P<index>\d+)$")
_PARTITION_MARK = "-partition-"
_NUMBER = re.compile(r"^[+-]?\d+$")
POLICY_EVENTS = "__change_events"
SYSTEM_TOPICS = frozenset(
    {
        POLICY_EVENTS,
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_indexes",
        "__transaction_buffer_snapshot_segments",
    }
)
"""The topics that a broker creates for itself in namespaces of applications, by its class `SystemTopicNames` (4.2.4).

Other names that begin with two underscores are applications': `__debezium-heartbeat.fulfillment`, `__consumer_offsets`.
"""

_PENDING_ACKS = "__transaction_pending_ack"
"""Ends the name of the topic in which a broker keeps the transactions of one subscription."""

_BROKER_NAMESPACE = re.compile(r"^(?:pulsar|sla-monitor)/[^/:]+:\d+$")
"""The namespace of one broker's health checks, named by its address."""

SHADOW_SOURCE = "PULSAR.SHADOW_SOURCE"
"""The property that makes a topic a shadow topic; its value is the topic whose ledgers it shares."""

_TOPIC_STATE = frozenset({"pulsar.topic.epoch", "__contains_txn_messages"})
_SUBSCRIPTION_STATE = "#pulsar.internal."


def own_topic_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """The properties of a topic without what brokers keep among them.

    That is the epoch of its exclusive producers and whether it has transactions (PIP-373): on another cluster either
    would be of another topic.
    """
    return {name: value for name, value in (properties or {}).items() if name not in _TOPIC_STATE}


def own_subscription_properties(properties: Mapping[str, str] | None) -> dict[str, str]:
    """The properties of a subscription without what brokers keep among them, such as its delayed messages.

    Brokers refuse a call that sets one of those, and keep theirs whatever a call sets (observed, 4.2.4).
    """
    return {name: value for name, value in (properties or {}).items() if not name.startswith(_SUBSCRIPTION_STATE)}


SEGMENT = "segment://"
"""Begins the name of a segment, in which a scalable topic (`topic://`) stores a part of its messages."""

SYSTEM_NAMESPACES = frozenset({"pulsar/system"})
"""Namespaces that a broker creates for itself; never copied."""

SYSTEM_TENANT = "pulsar"
"""The tenant of the brokers' own namespaces."""


def _quoted_twice(name: str) -> str:
    return quote(quote(name, safe=""), safe="")


def is_addressable(name: str) -> bool:
    """Whether a name can be a part of a REST path: `.` and `..` would be read as steps to another path."""
    return name not in (".", "..", "")


def _entity(text: str, what: str) -> str:
    if not _ENTITY.fullmatch(text):
        raise InvalidRequest(f"{text!r} is not a valid {what} name: letters, digits and any of _-=:. are allowed.")
    return text


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName(TextValue):
    """`tenant/namespace`."""

    tenant: str
    name: str

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        """Parse `tenant/namespace`; anything else is `InvalidRequest`."""
        parts = text.split("/")
        if len(parts) != 2 or not all(parts):
            raise InvalidRequest(f"{text!r} is not a namespace: write it as tenant/namespace, for example acme/orders.")
        return cls(_entity(parts[0], "tenant"), _entity(parts[1], "namespace"))

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"

    @property
    def path(self) -> str:
        """The name as it stands in a REST path."""
        return f"{quote(self.tenant, safe='')}/{quote(self.name, safe='')}"


def parse_namespaces(texts: Sequence[str]) -> tuple[NamespaceName, ...]:
    """The namespaces of a configuration, in order and without duplicates; an invalid name raises `InvalidRequest`."""
    if not texts:
        raise InvalidRequest(
            "The run names no namespace: set 'namespaces' (--namespaces), for example [\"acme/orders\"]."
        )
    return tuple(dict.fromkeys(NamespaceName.parse(text) for text in texts))


FUNCTIONS_STATE = NamespaceName("public", "functions")
"""The namespace in which functions workers keep their state."""


@dataclass(frozen=True, slots=True, order=True)
class TopicName(TextValue):
    """`persistent://tenant/namespace/topic`, or one partition of a topic."""

    namespace: NamespaceName
    local: str
    persistent: bool = True

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse a full topic name; a short form is `InvalidRequest`, since clients expand short forms differently."""
        domain, separator, rest = text.partition("://")
        parts = rest.split("/", 2)
        if not separator or domain not in ("persistent", "non-persistent") or len(parts) != 3 or not all(parts):
            raise InvalidRequest(f"{text!r} is not a topic: write it as persistent://tenant/namespace/topic.")
        return cls(NamespaceName.parse(f"{parts[0]}/{parts[1]}"), parts[2], domain == "persistent")

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace}/{self.local}"

    @property
    def domain(self) -> str:
        """`persistent` or `non-persistent`."""
        return "persistent" if self.persistent else "non-persistent"

    @property
    def path(self) -> str:
        """The name as it stands in a REST path."""
        return f"{self.domain}/{self.namespace.path}/{quote(self.local, safe='')}"

    def subscription_path(self, name: str) -> str:
        """A subscription of this topic as it stands in a REST path below `/admin/v2`.

        The broker decodes the name twice: quoted once, `a+b` would become `a b` (observed).
        """
        return f"/{self.path}/subscription/{_quoted_twice(name)}"

    @property
    def schema_path(self) -> str:
        """The schemas of this topic as they stand in a REST path below `/admin/v2`.

        The broker decodes the name twice: quoted once, `a+b` would be the topic `a b` (observed).
        """
        return f"/schemas/{self.namespace.path}/{_quoted_twice(self.local)}"

    @property
    def partition_index(self) -> int | None:
        """0-based index if this is one partition of a partitioned topic, else None."""
        match = _PARTITION.match(self.local)
        return int(match["index"]) if match else None

    @property
    def parent(self) -> TopicName:
        """The partitioned topic of this partition; a topic that is no partition returns itself."""
        match = _PARTITION.match(self.local)
        return TopicName(self.namespace, match["parent"], self.persistent) if match else self

    def partition(self, index: int) -> TopicName:
        """Partition `index` (0-based) of this partitioned topic."""
        return TopicName(self.namespace, f"{self.local}-partition-{index}", self.persistent)

    def partitions(self, count: int) -> tuple[TopicName, ...]:
        """The topics that store the messages: the `count` partitions, or the topic itself when `count` is 0."""
        return tuple(self.partition(index) for index in range(count)) if count else (self,)

    def has_refused_name(self, partitions: int) -> bool:
        """Whether brokers refuse (412, 409) a call that creates a topic of this name with so many partitions (0: none).

        Measured with 4.2.4: no partitioned topic has `-partition-` in its name. A topic without partitions has no
        number after the first `-partition-`, with or without a sign, and does not end like a partition. Beside a
        partitioned topic `x` with more partitions than the number, `x-partition-01` is accepted; here it counts as
        refused.
        """
        _, mark, rest = self.local.partition(_PARTITION_MARK)
        return bool(mark) and (partitions > 0 or self.partition_index is not None or bool(_NUMBER.match(rest)))

    @property
    def is_system(self) -> bool:
        """Whether brokers made it for themselves: by its exact name or its namespace, as their own lists decide it."""
        local, namespace = self.parent.local, str(self.namespace)
        named = local in SYSTEM_TOPICS or local.endswith(_PENDING_ACKS)
        return named or namespace in SYSTEM_NAMESPACES or bool(_BROKER_NAMESPACE.match(namespace))


def with_parent(name: str) -> frozenset[str]:
    """A name, and that of the partitioned topic if it is the full name of a partition."""
    match = _PARTITION.match(name) if "://" in name else None
    return frozenset({name, match["parent"]} if match else {name})


@dataclass(frozen=True, slots=True, order=True)
class Position(TextValue):
    """Position of an entry in a topic: ledger and entry; `entry` is -1 before the first entry of a ledger."""

    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the broker's `ledger:entry`, also with what it adds: a partition, or ` (ackSet is null)` (observed)."""
        ledger, entry = text.partition(" ")[0].split(":")[:2]
        return cls(int(ledger), int(entry))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"
