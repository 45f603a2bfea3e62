"""What became of a plan, change by change, as values (pure)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.change.plan import Change
from pulsar_fleet.cluster.json import JsonObject


class Outcome(StrEnum):
    """What became of a change."""

    APPLIED = "applied"
    ALREADY = "already there"
    CONFLICT = "conflict"
    """The live value is not the one that the plan was made from; nothing was sent."""
    REFUSED = "refused"
    """A guard said no, or the operator did not allow this hazard; nothing was sent."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """What it depends on was not made."""

    @property
    def in_place(self) -> bool:
        """Whether the cluster now holds what the plan wanted."""
        return self in (Outcome.APPLIED, Outcome.ALREADY)


@dataclass(frozen=True, slots=True)
class Result:
    """A change with what became of it; `passing` tells that the failure may be gone on a second try."""

    change: Change
    outcome: Outcome
    detail: str = ""
    passing: bool = False

    def to_json(self) -> JsonObject:
        """As a JSON object, without the calls."""
        return {
            "id": self.change.id,
            "resource": self.change.resource.value,
            "name": self.change.name,
            "field": self.change.field,
            "action": self.change.action.value,
            "hazard": self.change.hazard.value,
            "outcome": self.outcome.value,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan, change by change, in the plan's order."""

    plan_id: str
    target: str
    results: tuple[Result, ...]

    @property
    def complete(self) -> bool:
        """Whether every change is in place."""
        return all(result.outcome.in_place for result in self.results)

    def counts(self) -> dict[str, int]:
        """Changes by outcome, each kind named."""
        found = Counter(result.outcome for result in self.results)
        return {outcome.value: found[outcome] for outcome in Outcome}

    def not_in_place(self) -> tuple[Result, ...]:
        """What a person has to look at."""
        return tuple(result for result in self.results if not result.outcome.in_place)

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        results = [result.to_json() for result in self.results]
        return {"schema_version": 1, "plan": self.plan_id, "target": self.target, "results": results}
