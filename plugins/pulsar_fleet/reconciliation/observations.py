"""When a field got the value that it has: REST gives no time, so each look bounds it by the looks before (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.clock import Clock
from pulsar_fleet.cluster.json import Json, JsonObject

UNKNOWN = 0.0
"""Before everything: the value was there when the cluster was first looked at."""

UNBOUNDED = 32_503_680_000.0
"""After everything: nobody has looked yet."""

Span = tuple[float, float]
"""Between these two times, in seconds since 1970 by our clock."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A value, by its digest, and between which times it was written."""

    digest: str
    not_before: float
    not_after: float


@dataclass(frozen=True, slots=True)
class Observation:
    """What one look at a resource told; a field that was once set and is not any more stays, with its time.

    :param looked: when the look began: what it showed was the case then or later.
    """

    looked: float
    fields: Mapping[str, Seen]

    def to_json(self) -> JsonObject:
        """The fields as a JSON object."""
        return {name: [one.digest, one.not_before, one.not_after] for name, one in self.fields.items()}

    @classmethod
    def from_json(cls, looked: float, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(looked, {name: Seen(*seen) for name, seen in found.items()})


def observe(
    before: Observation | None,
    values: Mapping[str, Json],
    *,
    began: float,
    ended: float,
    known: Mapping[str, Span] | None = None,
) -> Observation:
    """The next observation of a resource; looking again at the same values keeps their times.

    :param began: when reading began, and `ended` when it ended.
    :param known: spans that are known otherwise, such as from the events of topic policies.
    """
    earlier = before.fields if before else {}
    since = before.looked if before else UNKNOWN
    fields: dict[str, Seen] = {}
    for name in sorted({*earlier, *values}):
        found, seen = digest(values.get(name)), earlier.get(name)
        if seen is not None and seen.digest == found:
            fields[name] = seen
        else:
            fields[name] = Seen(found, *_narrowed((since, ended), (known or {}).get(name)))
    return Observation(began, fields)


def carried(before: Observation, stamps: Mapping[str, Seen]) -> Observation:
    """The observation after we wrote values: a copy is as old as its original, so that it beats nothing newer."""
    return Observation(before.looked, {**before.fields, **stamps})


def span_of(event_ms: int, clock: Clock, skew: float) -> Span:
    """When an event of a cluster's clock was, by ours.

    :param skew: seconds on top of what was measured, for clocks that jump.
    """
    middle, open_ = event_ms / 1000 - clock.ahead, clock.uncertainty + skew
    return middle - open_, middle + open_


def digest(value: Json) -> str:
    """The same for equal values, empty for one that is not set; of no use for guessing the value's secrets."""
    if value is None:
        return ""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def _narrowed(span: Span, known: Span | None) -> Span:
    """Where both say something, what both say; where they contradict each other, what is known."""
    if known is None:
        return span
    both = max(span[0], known[0]), min(span[1], known[1])
    return both if both[0] <= both[1] else known
