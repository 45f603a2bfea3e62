"""What became of a plan, change by change, as values (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.policies.documents import problems
from pulsar_fleet.cluster.policies.lookup import BY_FIELD
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.hazards.guards import hazard_of_call
from pulsar_fleet.planning.hazards.model import worst
from pulsar_fleet.planning.plan import Action, Change


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


_LONGEST_VALUE = 160
Key = tuple[Resource, str]


def settle(
    change: Change, live: Json, *, own: str, allow: Collection[str], begun: bool, made: bool = False
) -> Result | None:
    """The result where nothing is to be sent; None when the change has to be made.

    :param begun: an earlier attempt of this run began the change and was cut off, so a value on the way is our own.
    :param made: an earlier attempt of this run made it; what it created may have been changed by later changes.
    """
    if made and creates(change) and live is not None:
        return Result(change, Outcome.ALREADY)
    if same(known(change, live), known(change, change.after)):
        detail = "made by an attempt that was cut off"
        return Result(change, Outcome.APPLIED, detail) if begun else Result(change, Outcome.ALREADY)
    hazard = worst(change.hazard, *(hazard_of_call(call, own) for call in change.calls))
    if hazard.needs_permission and change.id not in allow:
        return Result(change, Outcome.REFUSED, f"{hazard.value}: {change.reason}; allow it by its id {change.id}")
    unchanged = same(known(change, live), known(change, change.before))
    if not unchanged and not (begun and on_the_way(change.before, live, change.after)):
        expected, found = differing(change.before, live)
        return Result(change, Outcome.CONFLICT, f"expected {short(expected)}, found {short(found)}: plan again")
    return None


def differing(one: Json, other: Json) -> tuple[Json, Json]:
    """Of two documents only the fields in which they differ; other values as they are."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one, other
    fields = [field for field in sorted({*one, *other}) if not same(one.get(field), other.get(field))]
    first, second = ({field: side[field] for field in fields if field in side} for side in (one, other))
    return first, second


def on_the_way(before: Json, live: Json, after: Json) -> bool:
    """Whether each part of the live value is either the one before or the one after; lists are filled in order."""
    if same(live, before) or same(live, after):
        return True
    if isinstance(after, list) and isinstance(live, list):
        return len(before or ()) <= len(live) and same(live, after[: len(live)])
    if not isinstance(live, dict) or not isinstance(after, dict | None) or not isinstance(before, dict | None):
        return False
    old, new = before or {}, after or {}
    return all(on_the_way(old.get(key), live.get(key), new.get(key)) for key in {*old, *live, *new})


def checked(change: Change, found: Json, error: FleetError | None) -> Result:
    """The result of a change that was sent, from the value that was read back.

    :param error: what the broker answered when it did not say that the change was made.
    """
    if same(known(change, found), known(change, change.after)):
        return Result(change, Outcome.APPLIED)
    if error is not None:
        return failure(change, error)
    wrote, read = differing(change.after, found)
    return Result(change, Outcome.FAILED, f"wrote {short(wrote)}, read back {short(read)}")


def known(change: Change, value: Json) -> Json:
    """Of a created namespace, only what the catalogue knows: an older broker drops the fields of a newer one."""
    if change.resource is Resource.NAMESPACE and value:
        return {field: one for field, one in value.items() if field in BY_FIELD}
    return value


def failure(change: Change, error: FleetError) -> Result:
    """The result of a change that an error ended."""
    outcome = Outcome.REFUSED if isinstance(error, PreconditionFailed) else Outcome.FAILED
    return Result(change, outcome, str(error), passing=isinstance(error, Unavailable))


def creates(change: Change) -> bool:
    """Whether other changes of the plan may lie in what this one makes."""
    return change.action is Action.CREATE and not change.field


def needs(change: Change) -> frozenset[Key]:
    """What has to be there before the change can be made, if the plan makes it."""
    found: set[Key] = set()
    namespace = change.namespace
    if namespace is not None:
        found = {
            (Resource.TENANT, namespace.tenant),
            (Resource.NAMESPACE, str(namespace)),
            (Resource.TOPIC, change.name),
        }
    value = change.after or {}
    if change.resource is Resource.NAMESPACE and "resource_group_name" in value:
        found.add((Resource.RESOURCE_GROUP, value["resource_group_name"]))
    if change.resource is Resource.POLICY and change.field == "resource_group_name":
        found.add((Resource.RESOURCE_GROUP, change.after))
    if change.resource in (Resource.TENANT, Resource.NAMESPACE):
        names = [*value.get("allowedClusters", ()), *value.get("replication_clusters", ())]
        found |= {(Resource.CLUSTER, name) for name in names}
    return frozenset(found - {(change.resource, change.name)})


def check_creation(call: Call, own: str) -> None:
    """Refuse to create a namespace with policies that the broker would store and break on."""
    parts = call.path.strip("/").split("/")
    if call.method == "PUT" and parts[0] == "namespaces" and len(parts) == 3:
        wrong = problems(call.body or {}, own)
        if wrong:
            raise PreconditionFailed(f"{'/'.join(parts[1:])} was not created, since {'; '.join(wrong)}.", cluster=own)


def short(value: Json) -> str:
    """A value in a few words, for a detail."""
    text = "not set" if value is None else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
