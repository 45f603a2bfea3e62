"""When a field got the value that it has: REST gives no time, so each look bounds it by the looks before (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from pulsar_fleet.cluster.json import Json, JsonObject

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.clock_skew import Clock

UNKNOWN = 0.0
"""Before everything: the value was there when the cluster was first looked at."""

UNBOUNDED = 32_503_680_000.0
"""After everything: nobody has looked yet."""

_MOST_REPLACED = 16

Span = tuple[float, float]
"""Between these two times, in seconds since 1970 by our clock."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A value, by its digest, and between which times it was written.

    :param replaced: digests of the values that it took the place of, on its cluster or as the winner of a conflict,
        youngest first: who still holds one of these is behind, also where the times cannot tell.
    """

    digest: str
    not_before: float
    not_after: float
    replaced: tuple[str, ...] = ()

    def having_replaced(self, *older: str) -> Self:
        """The same, knowing of more values that it took the place of."""
        known = (one for one in (*older, *self.replaced) if one != self.digest)
        return replace(self, replaced=tuple(dict.fromkeys(known))[:_MOST_REPLACED])

    def to_json(self) -> list[Json]:
        """As a JSON list."""
        return [self.digest, self.not_before, self.not_after, list(self.replaced)]

    @classmethod
    def from_json(cls, found: list[Json]) -> Self:
        """Read what `to_json` wrote."""
        return cls(found[0], found[1], found[2], tuple(found[3]))


@dataclass(frozen=True, slots=True)
class Observation:
    """What one look at a resource told; a field that was once set and is not any more stays, with its time.

    :param looked: when the look began: what it showed was the case then or later.
    :param expected: what we were about to write then, as old as its original: a copy must beat nothing newer.
    """

    looked: float
    fields: Mapping[str, Seen]
    expected: Mapping[str, Seen] = field(default_factory=dict)

    def awaiting(self, decided: Mapping[str, Seen]) -> Self:
        """The same when values have been decided on: what is held already gets their age, the others are expected."""
        held = {
            name: one for name, one in decided.items() if name in self.fields and self.fields[name].digest == one.digest
        }
        expected = {name: one for name, one in decided.items() if name not in held}
        return replace(self, fields={**self.fields, **held}, expected=expected)

    def to_json(self) -> JsonObject:
        """All but the time of the look as a JSON object."""
        return {"seen": _to_json(self.fields), "expected": _to_json(self.expected)}

    @classmethod
    def from_json(cls, looked: float, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            looked, *({name: Seen.from_json(one) for name, one in found[part].items()} for part in ("seen", "expected"))
        )


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
    expected = before.expected if before else {}
    since = before.looked if before else UNKNOWN
    fields: dict[str, Seen] = {}
    for name in sorted({*earlier, *values}):
        found, seen, ours = digest(values.get(name)), earlier.get(name), expected.get(name)
        if seen is not None and seen.digest == found:
            fields[name] = seen
        elif ours is not None and ours.digest == found:
            fields[name] = ours
        else:
            # What replaced a value was written after it, also when both were seen within seconds.
            span = (max(since, seen.not_after) if seen and seen.not_after <= ended else since, ended)
            new = Seen(found, *_narrowed(span, (known or {}).get(name)))
            # Whether our own value came in between is not known after a crash, but it was no later.
            older = (one for gone in (ours, seen) if gone for one in (gone.digest, *gone.replaced))
            fields[name] = new.having_replaced(*older)
    return Observation(began, fields)


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


def _to_json(seen: Mapping[str, Seen]) -> JsonObject:
    return {name: one.to_json() for name, one in seen.items()}


def _narrowed(span: Span, known: Span | None) -> Span:
    """Where both say something, what both say; where they contradict each other, what is known."""
    if known is None:
        return span
    both = max(span[0], known[0]), min(span[1], known[1])
    return both if both[0] <= both[1] else known
