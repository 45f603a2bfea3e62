"""Incidents of a drain as values: the kinds, the remedy of each, and the facts they are detected from (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.stats.clients import ConnectedClients
from pulsar_fleet.migration.stats.partition_state import PartitionStates


class IncidentKind(StrEnum):
    """Its id in reports and in the ledger."""

    FENCED = "topic-fenced"
    CLIENT_MISSING = "client-missing"
    NO_CONSUMERS = "no-consumers"
    CONSUMERS_WAIT = "consumers-wait"
    UNLOADED = "topic-unloaded"
    BROKER_RESTARTED = "broker-restarted"
    BUNDLE_MOVED = "bundle-moved"
    STATISTICS_INCOMPLETE = "statistics-incomplete"
    NOT_TERMINATED = "not-terminated"
    FLAG_RESET = "flag-reset"
    REDIRECT_LOST = "redirect-lost"
    GREEN_MISSING = "green-missing"
    PERMISSIONS_MISSING = "permissions-missing"
    BROKER_UNREACHABLE = "broker-unreachable"
    BROKER_OUTAGE = "broker-outage"


class Remedy(StrEnum):
    """What can be done about an incident."""

    UNLOAD = "unload the topic: its producers are released and follow the redirect"
    RELOAD = "clear the flag for a moment, load every topic, set the flag again"
    SET_FLAG = "set the flag again"
    STORE_REDIRECT = "store the redirect again"
    GRANT = "grant its roles on the new cluster what they may on the old one"
    RECONNECT = "set its cursor to the end, where it is: its consumers connect again, and are redirected"
    READ_PARTITIONS = "read the statistics of each partition"
    WAIT = "wait"
    OPERATOR = "an operator must act"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(Document):
    """Something that keeps a namespace from draining.

    :param subject: the topic, broker or role.
    :param topics: the partitions that it delays.
    :param sentence: for operators: the observation, and what to do where only an operator can.
    """

    PROPERTIES = ("id",)

    kind: IncidentKind
    namespace: str
    subject: str
    sentence: str
    remedy: Remedy
    topics: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same incident has the same id at every poll."""
        return f"{self.kind}:{self.subject}"

    @property
    def is_automatic(self) -> bool:
        """Whether its remedy changes a cluster without an operator."""
        return self.remedy not in (Remedy.READ_PARTITIONS, Remedy.WAIT, Remedy.OPERATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFacts:
    """One namespace after its cutover, as observed; what was not read is None or empty.

    :param seconds: since the cutover, or since the last remedy.
    :param clusters: `blue` and `green` → the cluster's own name.
    :param before: the clients connected to blue before the cutover.
    :param departed: consumers that the gates saw and that left before the cutover, of subscriptions without consumers.
    :param owners: partition → (broker, bundle) that served it on blue right after the cutover.
    :param flagged: whether blue's namespace has the flag; `redirected`: whether the stored address is the run's.
    :param green_exists: whether green's namespace exists.
    :param fenced: partitions whose broker refuses every new producer, see `Entrance`.
    :param roles_without_permission: roles with permissions on blue that they lack on green.
    :param unreachable: broker, as `cluster host:port` → seconds of its outage.
    :param live: blue's brokers that answer.
    :param restarted: blue's brokers that were unreachable since the cutover and answer again.
    :param versions: of blue's brokers at the gates; empty if they are not stored.
    :param flags_cluster: the flag of the cluster redirects the clients, and not one of the namespace.
    """

    namespace: NamespaceName
    seconds: float
    clusters: Mapping[str, str]
    before: ConnectedClients
    blue: PartitionStates
    green: PartitionStates
    owners: Mapping[TopicName, tuple[str, str]] = field(default_factory=dict)
    flagged: bool | None = None
    redirected: bool | None = None
    green_exists: bool | None = None
    fenced: Collection[TopicName] = frozenset()
    roles_without_permission: tuple[str, ...] = ()
    unreachable: Mapping[str, float] = field(default_factory=dict)
    live: Collection[str] = frozenset()
    restarted: Collection[str] = frozenset()
    departed: ConnectedClients = field(default_factory=dict)
    versions: Collection[str] = ()
    flags_cluster: bool = False
