"""The monitor's state between two polls: a document, so that it survives the process that polls (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.drain.forecast import Forecast, ForecastError, Sample, forecast, forecast_error, keep
from pulsar_fleet.migration.drain.incident import Incident
from pulsar_fleet.migration.stats.partition_state import PartitionState

SCHEDULE = (0.0, 3.0, 10.0, 25.0)
"""Seconds after the cutover at which a partition that is not done is read individually; then its broker's list
decides."""
REREAD_SECONDS = 30.0
STALE_SECONDS = 130.0
"""Brokers renew their lists every minute: what is in neither of two has no statistics at all."""


@dataclass(slots=True)
class SideState:
    """The partitions of one namespace on one cluster.

    :param confirmed: those that were read individually and need no further read.
    :param reads: how often each was read individually; `read_at`: when last.
    :param started: when the schedule of individual reads started.
    """

    partitions: dict[TopicName, PartitionState] = field(default_factory=dict)
    confirmed: set[TopicName] = field(default_factory=set)
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

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "partitions": {str(topic): state.to_json() for topic, state in self.partitions.items()},
            "confirmed": sorted(map(str, self.confirmed)),
            "reads": {str(topic): count for topic, count in self.reads.items()},
            "read_at": {str(topic): at for topic, at in self.read_at.items()},
            "started": self.started,
        }

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        partitions = document["partitions"].items()
        return cls(
            partitions={TopicName.parse(topic): PartitionState.from_json(state) for topic, state in partitions},
            confirmed={TopicName.parse(topic) for topic in document["confirmed"]},
            reads={TopicName.parse(topic): int(count) for topic, count in document["reads"].items()},
            read_at={TopicName.parse(topic): float(at) for topic, at in document["read_at"].items()},
            started=float(document["started"]),
        )


@dataclass(slots=True)
class NamespaceState:
    """One namespace after its cutover. All times are seconds since 1970.

    :param started: when monitoring started; `ended`: when the namespace was done.
    :param checked: when flag, address and permissions were last read.
    :param first_backlogs: `Backlog.key` → its first sample; `last_backlogs`: its last one.
    :param probed: when topics whose producers are missing were last probed; `fenced`: those that the probe could not
        enter.
    :param owners: partition → (broker, bundle) that served it on blue first.
    :param incidents: id → the incident at its last poll, with `first` and `last` time, and `outcome`.
    """

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
    fenced: set[TopicName] = field(default_factory=set)
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

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "started": self.started,
            "blue": self.blue.to_json(),
            "green": self.green.to_json(),
            "samples": [sample.to_json() for sample in self.samples],
            "forecasts": [forecast.to_json() for forecast in self.forecasts],
            "forecast_error": self.error.to_json() if self.error else None,
            "owners": {str(topic): list(owner) for topic, owner in self.owners.items()},
            "incidents": self.incidents,
            "first_backlogs": {key: sample.to_json() for key, sample in self.first_backlogs.items()},
            "last_backlogs": {key: sample.to_json() for key, sample in self.last_backlogs.items()},
            "checked": self.checked,
            "probed": self.probed,
            "fenced": sorted(map(str, self.fenced)),
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            started=float(document["started"]),
            blue=SideState.from_json(document["blue"]),
            green=SideState.from_json(document["green"]),
            samples=tuple(Sample.from_json(sample) for sample in document["samples"]),
            forecasts=tuple(Forecast.from_json(forecast) for forecast in document["forecasts"]),
            owners={TopicName.parse(topic): (owner[0], owner[1]) for topic, owner in document["owners"].items()},
            incidents=dict(document["incidents"]),
            first_backlogs={key: Sample.from_json(sample) for key, sample in document["first_backlogs"].items()},
            last_backlogs={key: Sample.from_json(sample) for key, sample in document["last_backlogs"].items()},
            checked=float(document["checked"]),
            probed=float(document["probed"]),
            fenced={TopicName.parse(topic) for topic in document["fenced"]},
            ended=document["ended"],
        )


@dataclass(slots=True)
class DrainState:
    """The state of the whole monitor: its namespaces, outages of brokers, and its cost.

    :param outages: `cluster host:port` → since when the broker is unreachable, seconds since 1970.
    :param restarted: blue's brokers (`host:port`) that were unreachable and answer again.
    :param listed: when the brokers' lists were last read.
    :param calls: admin calls of all polls.
    """

    namespaces: dict[str, NamespaceState] = field(default_factory=dict)
    outages: dict[str, float] = field(default_factory=dict)
    restarted: set[str] = field(default_factory=set)
    listed: float = 0.0
    polls: int = 0
    calls: int = 0

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": 1,
            "namespaces": {name: state.to_json() for name, state in self.namespaces.items()},
            "outages": self.outages,
            "restarted": sorted(self.restarted),
            "listed": self.listed,
            "polls": self.polls,
            "calls": self.calls,
        }

    @classmethod
    def from_json(cls, document: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            namespaces={name: NamespaceState.from_json(state) for name, state in document["namespaces"].items()},
            outages={broker: float(at) for broker, at in document["outages"].items()},
            restarted=set(document["restarted"]),
            listed=float(document["listed"]),
            polls=int(document["polls"]),
            calls=int(document["calls"]),
        )
