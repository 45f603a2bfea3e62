"""When each policy of a topic was written, from the events that keep them (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.agreement.observations import UNKNOWN, Span, span_of
from pulsar_fleet.change.difference import same
from pulsar_fleet.cluster.clock import Clock
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.states import TopicPolicyState
from pulsar_fleet.cluster.topic_policies import topic_comparable


class EventTimes:
    """Listens to a pass over the events of a namespace.

    Each event repeats all policies of its topic, so a policy was written with the event in which it first had its
    value. Of the first event that is left after a compaction only the end is known.
    """

    def __init__(self) -> None:
        self._values: dict[str, Mapping[str, Json]] = {}
        self._written: dict[str, dict[str, tuple[bool, int]]] = {}

    def note(self, key: str, state: TopicPolicyState | None, at: int) -> None:
        """Take the next event."""
        first = key not in self._values
        before = self._values.get(key, {})
        values = topic_comparable(state.policies) if state else {}
        written = self._written.setdefault(key, {})
        for field in {*before, *values}:
            if first or not same(before.get(field), values.get(field)):
                written[field] = (not first, at)
        self._values[key] = values

    def spans(self, topic: str, clock: Clock, skew: float) -> dict[str, Span]:
        """`scope/policy` → when it was written, by our clock."""
        found: dict[str, Span] = {}
        for scope, key in (("local", topic), ("global", f"__G__{topic}")):
            for field, (exact, at) in self._written.get(key, {}).items():
                begin, end = span_of(at, clock, skew)
                found[f"{scope}/{field}"] = (begin if exact else UNKNOWN, end)
        return found
