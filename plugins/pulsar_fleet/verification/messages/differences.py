"""From unequal messages to named differences: what is missing, extra or altered, and in which field (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.messages.scan import Sighting
from pulsar_fleet.verification.messages.causes import Cause

MOST_ALTERED_FIELDS = 2
"""Two messages that differ in more fields of their content are not called the same message altered."""


class Kind(StrEnum):
    """What is wrong with one message."""

    MISSING = "missing"
    EXTRA = "extra"
    ALTERED = "altered"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A content that one side holds more often than the other; each side shows its last copy, if it has one."""

    pair: int
    in_source: int
    in_target: int
    at_source: Sighting | None
    at_target: Sighting | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One message that is not the same on both sides.

    :param source: position `ledger:entry[index in batch]` there, None where it is missing.
    :param fields: for an altered message, (field, value in the source, value in the target).
    :param copies: how often the sides hold this content, where both do.
    :param cause: why, as far as the brokers tell; None where they were not asked.
    """

    kind: Kind
    source: str | None
    target: str | None
    key: str
    publish_time: int
    producer: str
    fields: tuple[tuple[str, str, str], ...] = ()
    copies: tuple[int, int] | None = None
    cause: Cause | None = None

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, found: JsonObject) -> Difference:
        """Read what `to_json` wrote."""
        return cls(
            kind=Kind(found["kind"]),
            source=found["source"],
            target=found["target"],
            key=found["key"],
            publish_time=found["publish_time"],
            producer=found["producer"],
            fields=tuple((name, left, right) for name, left, right in found["fields"]),
            copies=tuple(found["copies"]) if found["copies"] else None,
            cause=Cause(found["cause"]) if found["cause"] else None,
        )


def tally(source: Iterable[Sighting], target: Iterable[Sighting]) -> list[Mismatch]:
    """Signed multiset of both sides' messages by content; what cancels out is left away."""
    counts: dict[tuple[int, str], tuple[int, int]] = {}
    last: dict[tuple[int, str, bool], Sighting] = {}
    for is_target, sightings in ((False, source), (True, target)):
        for each in sightings:
            here, there = counts.get((each.pair, each.digest), (0, 0))
            counts[each.pair, each.digest] = (here, there + 1) if is_target else (here + 1, there)
            last[each.pair, each.digest, is_target] = each
    return [
        Mismatch(pair, here, there, last.get((pair, digest, False)), last.get((pair, digest, True)))
        for (pair, digest), (here, there) in counts.items()
        if here != there
    ]


def name_differences(mismatches: Sequence[Mismatch]) -> list[Difference]:
    """Differences of one topic in the order of its source: what the source alone holds is matched with what the target
    alone holds, so that an altered message is one difference and not two."""
    absent = sorted((each for each in mismatches if each.in_target == 0), key=_lies)
    surplus = sorted((each for each in mismatches if each.in_source == 0), key=_lies)
    named = [_repeated(each) for each in mismatches if each.in_source and each.in_target]
    for one in absent:
        other = _closest(one, surplus)
        if other is None:
            named.append(_one_sided(one.at_source, Kind.MISSING))
        else:
            surplus.remove(other)
            named.append(_altered(one, other))
    named += [_one_sided(one.at_target, Kind.EXTRA) for one in surplus]
    return sorted(named, key=lambda each: _numbers(each.source or each.target or ""))


def changed_fields(left: Sighting, right: Sighting) -> tuple[tuple[str, str, str], ...]:
    """Fields of the content that are not equal, with both values; of payloads the digest and the size."""
    changed = [
        (label, repr(getattr(left, name)), repr(getattr(right, name)))
        for label, name in (("key", "key"), ("ordering key", "ordering_key"), ("null value", "null"))
        if getattr(left, name) != getattr(right, name)
    ]
    if left.event_time != right.event_time:
        changed.append(("event time", str(left.event_time), str(right.event_time)))
    changed += _changed_properties(json.loads(left.properties), json.loads(right.properties))
    if left.payload != right.payload:
        changed.append(("payload", _payload(left), _payload(right)))
    return tuple(changed)


def _changed_properties(left: list[list[str]], right: list[list[str]]) -> list[tuple[str, str, str]]:
    here, there = {key: value for key, value in left}, {key: value for key, value in right}
    names = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    return [(f"property {name!r}", _shown(here.get(name)), _shown(there.get(name))) for name in names]


def _shown(value: str | None) -> str:
    return "absent" if value is None else repr(value)


def _payload(each: Sighting) -> str:
    return f"{each.size:,} bytes {each.payload[:8]}…"


def _closest(one: Mismatch, candidates: Sequence[Mismatch]) -> Mismatch | None:
    """The candidate that is the same message with the fewest fields altered; none that differs in too many."""
    best: tuple[int, int, int] | None = None
    chosen = None
    for index, other in enumerate(candidates):
        if one.at_source is None or other.at_target is None:
            continue
        distance = _distance(one.at_source, other.at_target)
        if distance is not None and (best is None or (*distance, index) < best):
            best, chosen = (*distance, index), other
    return chosen


def _distance(left: Sighting, right: Sighting) -> tuple[int, int] | None:
    """(altered fields, milliseconds between the publish times), None when they cannot be the same message."""
    altered = len(changed_fields(left, right))
    if altered > MOST_ALTERED_FIELDS or (left.producer != right.producer and not _identified(left, right)):
        return None
    return altered, abs(left.publish_time - right.publish_time)


def _identified(left: Sighting, right: Sighting) -> bool:
    """Whether copies by another producer still share something that tells one message from the next."""
    same = (left.payload == right.payload, left.event_time == right.event_time != 0, left.key == right.key != "")
    return sum(same) >= 1


def _one_sided(at: Sighting | None, kind: Kind) -> Difference:
    assert at is not None
    where = place_of(at)
    source, target = (where, None) if kind is Kind.MISSING else (None, where)
    return Difference(kind, source, target, at.key, at.publish_time, at.producer)


def _repeated(one: Mismatch) -> Difference:
    assert one.at_source is not None
    assert one.at_target is not None
    kind = Kind.MISSING if one.in_target < one.in_source else Kind.EXTRA
    at = one.at_source
    positions = (place_of(at), place_of(one.at_target))
    return Difference(kind, *positions, at.key, at.publish_time, at.producer, copies=(one.in_source, one.in_target))


def _altered(one: Mismatch, other: Mismatch) -> Difference:
    assert one.at_source is not None
    assert other.at_target is not None
    left, right = one.at_source, other.at_target
    fields = changed_fields(left, right) or (("publish time", str(left.publish_time), str(right.publish_time)),)
    where = (place_of(left), place_of(right))
    return Difference(Kind.ALTERED, *where, left.key, left.publish_time, left.producer, fields)


def place_of(each: Sighting) -> str:
    """Where a message lies: `ledger:entry[index in batch]`."""
    return f"{each.ledger}:{each.entry}" + (f"[{each.batch}]" if each.batch >= 0 else "")


def _numbers(position: str) -> list[int]:
    return [int(part) for part in position.replace("[", ":").rstrip("]").split(":") if part]


def _lies(one: Mismatch) -> tuple[int, int, int]:
    at = one.at_source or one.at_target
    assert at is not None
    return at.ledger, at.entry, at.batch
