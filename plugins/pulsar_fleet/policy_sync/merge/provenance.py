"""When a field got its value: the admin API gives no times, so each scan bounds them by the scan before (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.model import TopicPolicyField
from pulsar_fleet.cluster.policies.topic_policies import Scope, topic_comparable
from pulsar_fleet.planning.diff_entry import same
from pulsar_fleet.snapshot.model import TopicPolicyState

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.clock_skew import ClockSkew

UNKNOWN = 0.0
"""Before everything: the value was present in the first scan of the cluster."""

UNBOUNDED = 32_503_680_000.0
"""After everything: the cluster has not been scanned yet."""

_MOST_REPLACED = 16
_PARTS = ("fields", "expected")

Span = tuple[float, float]
"""Earliest and latest time, in seconds since 1970 by our clock."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The digest of a value, and the earliest and the latest time of its write.

    :param replaced: digests of the values that this value replaced, on its cluster or as the winner of a conflict,
        newest first: a cluster that still holds one of them is behind, even if the times do not show it.
    :param decided_at: when the value last won a conflict, in seconds since 1970; 0 if it never did.
    """

    digest: str
    not_before: float
    not_after: float
    replaced: tuple[str, ...] = ()
    decided_at: float = 0.0

    def having_replaced(self, *older: str) -> Self:
        """The same with more replaced values."""
        digests = (text for text in (*older, *self.replaced) if text != self.digest)
        return replace(self, replaced=tuple(dict.fromkeys(digests))[:_MOST_REPLACED])

    def having_lost_to(self, newer: str) -> Self:
        """The same where a later decision chose a value that this one had replaced."""
        return replace(self, replaced=tuple(text for text in self.replaced if text != newer))

    def as_array(self) -> Json:
        """Its fields in order; without the last one in most cases."""
        decided = (self.decided_at,) if self.decided_at else ()
        return self.digest, self.not_before, self.not_after, self.replaced, *decided


@dataclass(frozen=True, slots=True)
class Observation(Document):
    """The fields of one resource in one scan; a field that was unset later stays, with its time.

    :param observed_at: when the scan began: its values were present then or later.
    :param expected: values that this run was about to write, with the provenance of their originals: a copy must not
        win against a newer value.
    """

    observed_at: float
    fields: Mapping[str, Provenance]
    expected: Mapping[str, Provenance] = field(default_factory=dict)

    def awaiting(self, decided: Mapping[str, Provenance]) -> Self:
        """The same before a write: values that are already present get the decided provenance, others are expected."""
        fields, expected = dict(self.fields), {}
        for name, provenance in decided.items():
            present = fields.get(name)
            if present is not None and present.digest == provenance.digest:
                fields[name] = provenance
                continue
            expected[name] = provenance
            if present is not None:
                fields[name] = present.having_lost_to(provenance.digest)
        return replace(self, fields=fields, expected=expected)

    def confirming(self, names: Collection[str]) -> Self:
        """The same after a write: these fields have their expected values, so that another value is a new edit."""
        present = {name: self.expected[name] for name in names if name in self.expected}
        rest = {name: provenance for name, provenance in self.expected.items() if name not in present}
        return replace(self, fields={**self.fields, **present}, expected=rest)

    def document_of(self) -> JsonObject:
        """With arrays, because there are thousands; without the time of the scan, which is stored separately."""
        return {part: {name: entry.as_array() for name, entry in getattr(self, part).items()} for part in _PARTS}

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """From the arrays."""
        names = Provenance.__match_args__
        return document | {
            part: {name: dict(zip(names, entry, strict=False)) for name, entry in document[part].items()}
            for part in _PARTS
        }


class PolicyEvents:
    """The events of topic policies, collected while those of a namespace are read.

    Each event repeats all policies of its topic, so a policy was written with the event in which its value appeared
    first. The first event after a compaction only bounds the latest time.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, Scope], Mapping[str, Json]] = {}
        self._changes: dict[tuple[str, Scope], list[PolicyChanges]] = {}

    def note(self, topic: str, scope: Scope, state: TopicPolicyState | None, at: int) -> None:
        """Add the next event."""
        key = (topic, scope)
        before = self._values.get(key, {})
        values = topic_comparable(state.policies) if state else {}
        changed = {policy for policy in {*before, *values} if not same(before.get(policy), values.get(policy))}
        self._changes.setdefault(key, []).append(
            PolicyChanges(
                at,
                {str(TopicPolicyField(scope, policy)): values.get(policy) for policy in changed},
                deletes=state is None,
            )
        )
        self._values[key] = values

    def spans(self, topic: str, clock: ClockSkew, skew: float) -> dict[str, Span]:
        """Text of a `TopicPolicyField` → when it was written, by our clock."""
        spans: dict[str, Span] = {}
        for scope in Scope:
            for number, changes in enumerate(self._changes.get((topic, scope), ())):
                begin, end = span_of(changes.at, clock, skew)
                spans |= dict.fromkeys(changes.values, (begin if number else UNKNOWN, end))
        return spans

    def unsets(self, topic: str, names: Collection[str]) -> bool:
        """Whether events show that each of these policies was unset on its own, not with its topic."""
        changes = [change for scope in Scope for change in self._changes.get((topic, scope), ())]
        last = {name: change for change in changes for name in change.values}
        return all(name in last and last[name].values[name] is None and not last[name].deletes for name in names)

    def since(self, earlier: PolicyEvents, topic: str) -> list[PolicyChanges]:
        """What the events of a topic changed after those that an earlier pass had read, in their order.

        After a compaction between the two passes only the last event of each scope is left, if it is a later one.
        """
        changes: list[PolicyChanges] = []
        for scope in Scope:
            now, then = self._changes.get((topic, scope), []), earlier._changes.get((topic, scope), [])
            is_longer = now[: len(then)] == then
            changes += now[len(then) :] if is_longer else [entry for entry in now if entry.at > then[-1].at]
        return changes


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """What one event changed: text of a `TopicPolicyField` → value, None if it was removed; `at` in ms since 1970.

    :param deletes: whether it removes all policies, as the deletion of a topic does.
    """

    at: int
    values: Mapping[str, Json]
    deletes: bool = False


def observe(
    before: Observation | None,
    values: Mapping[str, Json],
    *,
    began: float,
    ended: float,
    spans: Mapping[str, Span] | None = None,
) -> Observation:
    """The next observation of a resource; unchanged values keep their times.

    :param began: when the scan began, and `ended` when it ended.
    :param spans: spans from another source, such as the events of topic policies.
    """
    earlier = before.fields if before else {}
    expected = before.expected if before else {}
    since = before.observed_at if before else UNKNOWN
    fields: dict[str, Provenance] = {}
    for name in sorted({*earlier, *values}):
        text, previous, ours = digest(values.get(name)), earlier.get(name), expected.get(name)
        if previous is not None and previous.digest == text:
            fields[name] = previous
        elif ours is not None and ours.digest == text:
            fields[name] = ours
        else:
            # A value was written after the value that it replaced, even if both were observed within seconds.
            span = (max(since, previous.not_after) if previous and previous.not_after <= ended else since, ended)
            new = Provenance(text, *_narrowed(span, (spans or {}).get(name)))
            # After a crash it is unknown whether our own value was written in between, but it was not written later.
            older = (value for past in (ours, previous) if past for value in (past.digest, *past.replaced))
            fields[name] = new.having_replaced(*older)
    return Observation(began, fields)


def span_of(event_ms: int, clock: ClockSkew, skew: float) -> Span:
    """The span of an event by our clock, from its time by the clock of the cluster.

    :param skew: seconds in addition to the measured skew, for clocks that jump.
    """
    middle, open_ = event_ms / 1000 - clock.ahead, clock.uncertainty + skew
    return middle - open_, middle + open_


def digest(value: Json) -> str:
    """Equal for equal values, empty for a value that is not set; it does not help to guess secrets in the value."""
    if value is None:
        return ""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def _narrowed(span: Span, other: Span | None) -> Span:
    """The intersection; the other span if they contradict each other."""
    if other is None:
        return span
    both = max(span[0], other[0]), min(span[1], other[1])
    return both if both[0] <= both[1] else other
