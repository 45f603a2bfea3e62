"""What a watch knows between two looks: kept as a document, so that it survives the process that looks (pure)."""

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
"""Seconds after the switch at which a partition that is not done is asked by itself; then its broker's list decides."""
AGAIN_SECONDS = 30.0
STALE_SECONDS = 130.0
"""Brokers renew their lists every minute: what is in none of two has no statistics at all."""


@dataclass(slots=True)
class SideWatch:
    """The partitions of one namespace on one side.

    :param confirmed: those that were asked by themselves and need not be looked at again.
    :param looks: how often each was asked by itself, and `looked` when last.
    """

    known: dict[TopicName, PartitionState] = field(default_factory=dict)
    confirmed: set[TopicName] = field(default_factory=set)
    looks: dict[TopicName, int] = field(default_factory=dict)
    looked: dict[TopicName, float] = field(default_factory=dict)
    base: float = 0.0

    def due(
        self, topics: Iterable[TopicName], now: float, likely: Callable[[TopicName, PartitionState], bool]
    ) -> list[TopicName]:
        """Which partitions to ask by themselves now.

        :param likely: whether what its broker's list says about a partition looks like the end.
        """
        return [topic for topic in topics if topic not in self.confirmed and self._is_due(topic, now, likely)]

    def _is_due(self, topic: TopicName, now: float, likely: Callable[[TopicName, PartitionState], bool]) -> bool:
        looks, state = self.looks.get(topic, 0), self.known.get(topic)
        if looks < len(SCHEDULE):
            return now - self.base >= SCHEDULE[looks]
        if now - self.looked[topic] < AGAIN_SECONDS:
            return False
        if state is None or state.absence is not None or now - state.at > STALE_SECONDS:
            return True
        return likely(topic, replace(state, close=True))

    def begin_again(self, topics: Iterable[TopicName], now: float) -> None:
        """After a remedy: look closely again at these, from now on."""
        self.base = now
        for topic in topics:
            self.confirmed.discard(topic)
            self.looks.pop(topic, None)

    def listed(self, states: Mapping[TopicName, PartitionState]) -> None:
        """Take what the brokers' lists say; a list may be older than what was asked by itself."""
        for topic, state in states.items():
            known = self.known.get(topic)
            if known is None or not known.close or state.at - known.at > AGAIN_SECONDS * 2:
                self.known[topic] = state

    def asked(self, states: Mapping[TopicName, PartitionState], now: float) -> None:
        """Take what partitions said that were asked by themselves; where they are served is kept from the lists."""
        for topic, state in states.items():
            self.known[topic] = state
            self.looks[topic] = self.looks.get(topic, 0) + 1
            self.looked[topic] = now

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "known": {str(topic): state.to_json() for topic, state in self.known.items()},
            "confirmed": sorted(map(str, self.confirmed)),
            "looks": {str(topic): count for topic, count in self.looks.items()},
            "looked": {str(topic): at for topic, at in self.looked.items()},
            "base": self.base,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            known={TopicName.parse(topic): PartitionState.from_json(one) for topic, one in found["known"].items()},
            confirmed={TopicName.parse(topic) for topic in found["confirmed"]},
            looks={TopicName.parse(topic): int(count) for topic, count in found["looks"].items()},
            looked={TopicName.parse(topic): float(at) for topic, at in found["looked"].items()},
            base=float(found["base"]),
        )


@dataclass(slots=True)
class NamespaceWatch:
    """One namespace after its switch.

    :param switched: when the watch began, seconds since 1970; `ended`: when it was found done.
    :param checked: when flag, address and rights were last looked at.
    :param begun: `Backlog.key` → what was left when it was first seen; `latest`: when it was seen last.
    :param probed: when a fresh producer was last tried on topics whose producers are missing, and `closed`: those that
        it did not get into.
    :param places: partition → (broker, bundle) where blue served it first.
    :param incidents: id → the incident as it was last seen, with `first` and `last` (seconds since 1970) and `outcome`.
    """

    switched: float
    blue: SideWatch
    green: SideWatch
    samples: tuple[Sample, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    places: dict[TopicName, tuple[str, str]] = field(default_factory=dict)
    incidents: dict[str, JsonObject] = field(default_factory=dict)
    begun: dict[str, Sample] = field(default_factory=dict)
    latest: dict[str, Sample] = field(default_factory=dict)
    checked: float = 0.0
    probed: float = 0.0
    closed: set[TopicName] = field(default_factory=set)
    ended: float | None = None

    @classmethod
    def begin(cls, now: float) -> Self:
        """Nothing seen yet."""
        return cls(switched=now, blue=SideWatch(base=now), green=SideWatch(base=now))

    def note(self, left: int, now: float, backlogs: Mapping[str, int] = MappingProxyType({})) -> Forecast | None:
        """Keep what is left on blue, as a whole and of each subscription, and what that forecasts."""
        for key, unread in backlogs.items():
            self.begun.setdefault(key, Sample(now, unread))
        self.latest = {key: Sample(now, unread) for key, unread in backlogs.items()}
        self.samples = keep(self.samples, Sample(now, left))
        found = forecast(self.samples)
        if found is not None:
            self.forecasts = (*self.forecasts[-199:], found)
        return found

    def meet(self, incidents: Iterable[Incident], now: float) -> None:
        """Keep each incident with when it was first and last seen; one that is not seen any more is over."""
        met = {incident.id: incident for incident in incidents}
        for id_, record in self.incidents.items():
            if id_ not in met and record["outcome"] == "open":
                record["outcome"] = "over"
        for id_, incident in met.items():
            first = self.incidents.get(id_, {}).get("first", now)
            self.incidents[id_] = {**incident.to_json(), "first": first, "last": now, "outcome": "open"}

    @property
    def rates(self) -> dict[str, float]:
        """`Backlog.key` → entries per second since it was first seen."""
        spans = {key: (self.begun[key], last) for key, last in self.latest.items() if last.at > self.begun[key].at}
        return {key: (first.left - last.left) / (last.at - first.at) for key, (first, last) in spans.items()}

    @property
    def error(self) -> ForecastError | None:
        """How wrong the forecasts were, once it has ended."""
        drained = next((sample.at for sample in self.samples if sample.left == 0), None)
        return forecast_error(self.forecasts, drained) if self.ended and drained else None

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "switched": self.switched,
            "blue": self.blue.to_json(),
            "green": self.green.to_json(),
            "samples": [sample.to_json() for sample in self.samples],
            "forecasts": [one.to_json() for one in self.forecasts],
            "forecast_error": self.error.to_json() if self.error else None,
            "places": {str(topic): list(place) for topic, place in self.places.items()},
            "incidents": self.incidents,
            "begun": {key: sample.to_json() for key, sample in self.begun.items()},
            "latest": {key: sample.to_json() for key, sample in self.latest.items()},
            "checked": self.checked,
            "probed": self.probed,
            "closed": sorted(map(str, self.closed)),
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            switched=float(found["switched"]),
            blue=SideWatch.from_json(found["blue"]),
            green=SideWatch.from_json(found["green"]),
            samples=tuple(Sample.from_json(sample) for sample in found["samples"]),
            forecasts=tuple(Forecast.from_json(one) for one in found["forecasts"]),
            places={TopicName.parse(topic): (place[0], place[1]) for topic, place in found["places"].items()},
            incidents=dict(found["incidents"]),
            begun={key: Sample.from_json(sample) for key, sample in found["begun"].items()},
            latest={key: Sample.from_json(sample) for key, sample in found["latest"].items()},
            checked=float(found["checked"]),
            probed=float(found["probed"]),
            closed={TopicName.parse(topic) for topic in found["closed"]},
            ended=found["ended"],
        )


@dataclass(slots=True)
class WatchState:
    """The whole watch: its namespaces, who is silent since when, and what it cost.

    :param silent: `cluster host:port` → since when it has not answered, seconds since 1970.
    :param restarted: blue's brokers (`host:port`) that were silent and answer again.
    :param listed: when the brokers' lists were last asked for.
    :param calls: admin calls of all looks.
    """

    namespaces: dict[str, NamespaceWatch] = field(default_factory=dict)
    silent: dict[str, float] = field(default_factory=dict)
    restarted: set[str] = field(default_factory=set)
    listed: float = 0.0
    looks: int = 0
    calls: int = 0

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": 1,
            "namespaces": {name: one.to_json() for name, one in self.namespaces.items()},
            "silent": self.silent,
            "restarted": sorted(self.restarted),
            "listed": self.listed,
            "looks": self.looks,
            "calls": self.calls,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            namespaces={name: NamespaceWatch.from_json(one) for name, one in found["namespaces"].items()},
            silent={broker: float(at) for broker, at in found["silent"].items()},
            restarted=set(found["restarted"]),
            listed=float(found["listed"]),
            looks=int(found["looks"]),
            calls=int(found["calls"]),
        )
