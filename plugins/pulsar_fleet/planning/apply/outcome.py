"""The result of each change of a plan, as values (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import with_parent
from pulsar_fleet.cluster.policies.documents import problems
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.hazards import risks_of_calls
from pulsar_fleet.planning.plan import Action, Change, worst
from pulsar_fleet.planning.render import short


class Outcome(StrEnum):
    """The outcome of one change."""

    APPLIED = "applied"
    ALREADY = "already there"
    CONFLICT = "conflict"
    """The live value differs from the value that the plan was made from; nothing was sent."""
    REFUSED = "refused"
    """A guard refused the call, or the operator did not allow this hazard; nothing was sent."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """A change that it depends on was not made."""

    @property
    def in_place(self) -> bool:
        """Whether the cluster now has the planned value."""
        return self in (Outcome.APPLIED, Outcome.ALREADY)


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """A change with its outcome.

    :param passing: whether a second attempt may succeed.
    :param read_back: the value after a change that was sent and is not in place as a whole; parts of it may be.
    """

    change: Change
    outcome: Outcome
    detail: str = ""
    passing: bool = False
    read_back: Json = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult(Document):
    """What a step of a procedure has changed.

    :param changes: those that are in place.
    :param calls: admin calls, reads included.
    :param kept: what stays, and why.
    """

    changes: int
    calls: int
    seconds: float
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The results of a plan's changes, in the plan's order."""

    plan_id: str
    target: str
    results: tuple[ChangeResult, ...]

    @property
    def complete(self) -> bool:
        """Whether every change is in place."""
        return all(result.outcome.in_place for result in self.results)

    def counts(self) -> dict[str, int]:
        """The number of changes of each outcome."""
        counter = Counter(result.outcome for result in self.results)
        return {outcome.value: counter[outcome] for outcome in Outcome}

    def not_in_place(self) -> tuple[ChangeResult, ...]:
        """The results that an operator must check."""
        return tuple(result for result in self.results if not result.outcome.in_place)

    def require_in_place(self) -> None:
        """Return if every change is in place.

        :raises Unavailable: one is not, and a second attempt may succeed.
        :raises InvalidRequest: one failed, was refused, or found another value than the plan was made from.
        """
        failed = self.not_in_place()
        if not failed:
            return
        kind: type[FleetError] = Unavailable if any(result.passing for result in failed) else InvalidRequest
        raise kind(
            f"{len(failed)} of {counted(len(self.results), 'change')} are not in place on {self.target}; first "
            f"{failed[0].change.label}: {failed[0].detail} Correct the cause and run this step again: changes that are "
            "in place are skipped.",
            cluster=self.target,
        )

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        results = [result.to_json() for result in self.results]
        return {"schema_version": 1, "plan": self.plan_id, "target": self.target, "results": results}


_text = partial(short, longest=160)
Key = tuple[Resource, str]


def result_before_write(
    change: Change, live: Json, *, own: str, allow: Collection[str], begun: bool, done: bool = False
) -> ChangeResult | None:
    """The result of a change that needs no write; None when it must be sent.

    :param begun: an earlier attempt of this run began the change and was interrupted, so it wrote a partial value.
    :param done: an earlier attempt of this run made it; later changes may have changed what it created.
    """
    if done and creates_resource(change) and live is not None:
        return ChangeResult(change, Outcome.ALREADY)
    if same(comparable_value(change, live), comparable_value(change, change.after)):
        detail = "made by an interrupted attempt"
        return ChangeResult(change, Outcome.APPLIED, detail) if begun else ChangeResult(change, Outcome.ALREADY)
    hazard = worst(change.hazard, *(risk.hazard for risk in risks_of_calls(change.calls, own)))
    if hazard.needs_permission and change.id not in allow:
        return ChangeResult(change, Outcome.REFUSED, f"{hazard.value}: {change.reason}; allow it by its id {change.id}")
    unchanged = same(comparable_value(change, live), comparable_value(change, change.before))
    if not unchanged and not (begun and partly_written(change.before, live, change.after)):
        expected, actual = differing_fields(change.before, live)
        return ChangeResult(change, Outcome.CONFLICT, f"expected {_text(expected)}, found {_text(actual)}: plan again")
    return None


def differing_fields(expected: Json, actual: Json) -> tuple[Json, Json]:
    """Of two documents only the fields in which they differ; other values unchanged."""
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return expected, actual
    fields = [field for field in sorted({*expected, *actual}) if not same(expected.get(field), actual.get(field))]
    first, second = ({field: side[field] for field in fields if field in side} for side in (expected, actual))
    return first, second


def partly_written(before: Json, live: Json, after: Json) -> bool:
    """Whether each part of the live value is the previous or the planned one; lists are filled in order."""
    if same(live, before) or same(live, after):
        return True
    if isinstance(after, list) and isinstance(live, list):
        return len(before or ()) <= len(live) and same(live, after[: len(live)])
    if not isinstance(live, dict) or not isinstance(after, dict | None) or not isinstance(before, dict | None):
        return False
    old, new = before or {}, after or {}
    return all(partly_written(old.get(key), live.get(key), new.get(key)) for key in {*old, *live, *new})


def result_after_write(change: Change, live: Json, error: FleetError | None) -> ChangeResult:
    """The result of a change that was sent, by the value that was read back.

    :param error: the broker's answer, if it did not confirm the change.
    """
    if same(comparable_value(change, live), comparable_value(change, change.after)):
        return ChangeResult(change, Outcome.APPLIED)
    if error is not None:
        return replace(failed_result(change, error), read_back=live)
    wrote, read = differing_fields(change.after, live)
    return ChangeResult(change, Outcome.FAILED, f"wrote {_text(wrote)}, read back {_text(read)}", read_back=live)


def comparable_value(change: Change, value: Json) -> Json:
    """A namespace without fields that the catalogue does not know: an older broker drops the fields of a newer one."""
    if change.resource is Resource.NAMESPACE and value:
        return {field: entry for field, entry in value.items() if field in BY_FIELD}
    return value


def failed_result(change: Change, error: FleetError) -> ChangeResult:
    """The result of a change that failed with an error."""
    outcome = Outcome.REFUSED if isinstance(error, PreconditionFailed) else Outcome.FAILED
    return ChangeResult(change, outcome, str(error), passing=isinstance(error, Unavailable))


def creates_resource(change: Change) -> bool:
    """Whether the change creates a resource that other changes of the plan may need."""
    return change.action is Action.CREATE and not change.field


def dependencies(change: Change) -> frozenset[Key]:
    """The resources that must exist before the change, if the plan creates them."""
    keys: set[Key] = set()
    namespace = change.namespace
    if namespace is not None:
        keys = {
            (Resource.TENANT, namespace.tenant),
            (Resource.NAMESPACE, str(namespace)),
            *((Resource.TOPIC, name) for name in with_parent(change.name)),
        }
    value = change.after or {}
    if change.resource is Resource.NAMESPACE and "resource_group_name" in value:
        keys.add((Resource.RESOURCE_GROUP, value["resource_group_name"]))
    if change.resource is Resource.POLICY and change.field == "resource_group_name":
        keys.add((Resource.RESOURCE_GROUP, change.after))
    if change.resource in (Resource.TENANT, Resource.NAMESPACE):
        names = [*value.get("allowedClusters", ()), *value.get("replication_clusters", ())]
        keys |= {(Resource.CLUSTER, name) for name in names}
    return frozenset(keys - {(change.resource, change.name)})


def left_without(changes: Iterable[Change], absent: Mapping[Key, str]) -> dict[str, str]:
    """Id of each change that needs a resource which nobody creates, or what such a change would create → why.

    :param changes: in the order in which they are applied.
    :param absent: resources that neither exist nor are created → why.
    """
    reasons, missing = dict[str, str](), dict(absent)
    for change in changes:
        if needed := sorted(dependencies(change) & missing.keys()):
            kind, name = needed[0]
            reasons[change.id] = f"the {kind.value} {name} is not created: {missing[kind, name]}"
            if creates_resource(change):
                missing[change.resource, change.name] = missing[kind, name]
    return reasons


def check_creation(call: Call, own: str) -> None:
    """Refuse to create a namespace with policies that the broker would store and fail on later."""
    parts = call.path.strip("/").split("/")
    if call.method == "PUT" and parts[0] == "namespaces" and len(parts) == 3:
        wrong = problems(call.body or {}, own)
        if wrong:
            raise PreconditionFailed(f"{'/'.join(parts[1:])} was not created: {'; '.join(wrong)}.", cluster=own)
