"""The monitor's state between two polls: a document, so that it survives the process that polls (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Self

from pulsar_fleet.cluster.document import Document, Sorted
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.drain.forecast import Forecast, ForecastError, Sample, forecast, forecast_error, keep
from pulsar_fleet.migration.facts import ConnectedClients, PartitionState, PartitionStates


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


SCHEDULE = (0.0, 3.0, 10.0, 25.0)
"""Seconds after the cutover at which a partition that is not done is read individually; then its broker's list
decides."""
REREAD_SECONDS = 30.0
STALE_SECONDS = 130.0
"""Brokers renew their lists every minute: what is in neither of two has no statistics at all."""


class Entrance(StrEnum):
    """Whether a topic on blue lets a new producer in, by what its broker says."""

    OPEN = "open"
    """It does, or the broker sends it to green, or refuses it only because the topic is terminated."""
    FENCED = "fenced"
    UNKNOWN = "unknown"
    """No broker has said anything about a fence: it did not answer, or refused for another reason."""


@dataclass(slots=True)
class SideState(Document):
    """The partitions of one namespace on one cluster.

    :param confirmed: those that were read individually and need no further read.
    :param reads: how often each was read individually; `read_at`: when last.
    :param started: when the schedule of individual reads started.
    """

    partitions: dict[TopicName, PartitionState] = field(default_factory=dict)
    confirmed: Annotated[set[TopicName], Sorted()] = field(default_factory=set)
    reads: dict[TopicName, int] = field(default_factory=dict)
    read_at: dict[TopicName, float] = field(default_factory=dict)
    started: float = 0.0

    def due(
        self, topics: Iterable[TopicName], now: float, likely: Callable[[TopicName, PartitionState], bool]
    ) -> list[TopicName]:
        """Which partitions to read individually now.

        :param likely: whether a partition is probably done, by its broker's list.
        """
        return [topic for topic in topics if topic not in self.confirmed and self._is_due(topic, now, likely)]

    def _is_due(self, topic: TopicName, now: float, likely: Callable[[TopicName, PartitionState], bool]) -> bool:
        reads, state = self.reads.get(topic, 0), self.partitions.get(topic)
        if reads < len(SCHEDULE):
            return now - self.started >= SCHEDULE[reads]
        if now - self.read_at[topic] < REREAD_SECONDS:
            return False
        if state is None or state.absence is not None or now - state.at > STALE_SECONDS:
            return True
        return likely(topic, replace(state, close=True))

    def restart(self, topics: Iterable[TopicName], now: float) -> None:
        """After a remedy: start the schedule of individual reads again for these partitions."""
        self.started = now
        for topic in topics:
            self.confirmed.discard(topic)
            self.reads.pop(topic, None)

    def add_listed(self, states: Mapping[TopicName, PartitionState]) -> None:
        """Take states from the brokers' lists; a list may be older than an individual read."""
        for topic, state in states.items():
            current = self.partitions.get(topic)
            if current is None or not current.close or state.at - current.at > REREAD_SECONDS * 2:
                self.partitions[topic] = state

    def add_read(self, states: Mapping[TopicName, PartitionState], now: float) -> None:
        """Take states that were read individually."""
        for topic, state in states.items():
            self.partitions[topic] = state
            self.reads[topic] = self.reads.get(topic, 0) + 1
            self.read_at[topic] = now


@dataclass(slots=True)
class NamespaceState(Document):
    """One namespace after its cutover. All times are seconds since 1970.

    :param started: when monitoring started; `ended`: when the namespace was done.
    :param checked: when flag, address and permissions were last read.
    :param first_backlogs: `Backlog.key` → its first sample; `last_backlogs`: its last one.
    :param probed: when topics whose producers are missing were last probed; `fenced`: those that were fenced when a
        probe last learned it.
    :param owners: partition → (broker, bundle) that served it on blue first.
    :param incidents: id → the incident at its last poll, with `first` and `last` time, and `outcome`.
    """

    PROPERTIES = ("forecast_error",)

    started: float
    blue: SideState
    green: SideState
    samples: tuple[Sample, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    owners: dict[TopicName, tuple[str, str]] = field(default_factory=dict)
    incidents: dict[str, JsonObject] = field(default_factory=dict)
    first_backlogs: dict[str, Sample] = field(default_factory=dict)
    last_backlogs: dict[str, Sample] = field(default_factory=dict)
    checked: float = 0.0
    probed: float = 0.0
    fenced: Annotated[set[TopicName], Sorted()] = field(default_factory=set)
    ended: float | None = None

    @classmethod
    def begin(cls, now: float) -> Self:
        """Before the first poll."""
        return cls(started=now, blue=SideState(started=now), green=SideState(started=now))

    def add_sample(
        self, entries: int, now: float, backlogs: Mapping[str, int] = MappingProxyType({})
    ) -> Forecast | None:
        """Keep the remaining entries on blue, in total and of each subscription, and the forecast from them."""
        for key, unread in backlogs.items():
            self.first_backlogs.setdefault(key, Sample(now, unread))
        self.last_backlogs = {key: Sample(now, unread) for key, unread in backlogs.items()}
        self.samples = keep(self.samples, Sample(now, entries))
        latest = forecast(self.samples)
        if latest is not None:
            self.forecasts = (*self.forecasts[-199:], latest)
        return latest

    def add_probe(self, suspects: Collection[TopicName], entrances: Mapping[TopicName, Entrance], now: float) -> None:
        """Keep which suspects are fenced; one of which the probe learned nothing stays what it was."""
        before, self.probed = self.fenced, now
        probed = {topic: entrances.get(topic, Entrance.UNKNOWN) for topic in suspects}
        self.fenced = {topic for topic, entrance in probed.items() if entrance is Entrance.FENCED}
        self.fenced |= {topic for topic in before if probed.get(topic) is Entrance.UNKNOWN}

    def record_incidents(self, incidents: Iterable[Incident], now: float) -> None:
        """Keep each incident with the times of its first and last poll; one that is no longer detected is over."""
        detected = {incident.id: incident for incident in incidents}
        for id_, record in self.incidents.items():
            if id_ not in detected and record["outcome"] == "open":
                record["outcome"] = "over"
        for id_, incident in detected.items():
            first = self.incidents.get(id_, {}).get("first", now)
            self.incidents[id_] = {**incident.to_json(), "first": first, "last": now, "outcome": "open"}

    @property
    def rates(self) -> dict[str, float]:
        """`Backlog.key` → entries per second since its first sample."""
        spans = {
            key: (self.first_backlogs[key], last)
            for key, last in self.last_backlogs.items()
            if last.at > self.first_backlogs[key].at
        }
        return {key: (first.entries - last.entries) / (last.at - first.at) for key, (first, last) in spans.items()}

    @property
    def error(self) -> ForecastError | None:
        """The error of the forecasts, once the namespace has drained."""
        drained = next((sample.at for sample in self.samples if sample.entries == 0), None)
        return forecast_error(self.forecasts, drained) if self.ended and drained else None

    @property
    def forecast_error(self) -> JsonObject | None:
        """The error as a JSON object."""
        return self.error.to_json() if self.error else None


@dataclass(slots=True)
class DrainState(Document):
    """The state of the whole monitor: its namespaces, outages of brokers, and its cost.

    :param outages: `cluster host:port` → since when the broker is unreachable, seconds since 1970.
    :param restarted: blue's brokers (`host:port`) that were unreachable and answer again.
    :param listed: when the brokers' lists were last read.
    :param calls: admin calls of all polls.
    """

    SCHEMA_VERSION = 1

    namespaces: dict[str, NamespaceState] = field(default_factory=dict)
    outages: dict[str, float] = field(default_factory=dict)
    restarted: Annotated[set[str], Sorted()] = field(default_factory=set)
    listed: float = 0.0
    polls: int = 0
    calls: int = 0
