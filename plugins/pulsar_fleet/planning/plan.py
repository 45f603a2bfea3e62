"""A plan: ordered changes with the exact calls that they make, as values (pure)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.hazards.model import Hazard

SCHEMA_VERSION = 1
# A write is read before and after; measured at 8 connections.
SECONDS_PER_CALL = 0.06


class Action(StrEnum):
    """What a change does."""

    CREATE = "create"
    SET = "set"
    UNSET = "unset"
    GROW = "grow"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one resource.

    :param field: the policy, `scope/policy`, property set or subscription; empty for a resource as a whole.
    :param before: the value that the live one must still have when the change is made (None: not there, not set).
    :param reason: why it is planned, and what is special about it, in a sentence.
    """

    resource: Resource
    name: str
    field: str
    action: Action
    calls: tuple[Call, ...]
    before: Json
    after: Json
    hazard: Hazard
    reason: str

    @property
    def id(self) -> str:
        """Stable for the same change of the same values: what an operator allows by it cannot become another."""
        return _digest([self.resource, self.name, self.field, self.action, self.before, self.after])[:12]

    @property
    def label(self) -> str:
        """`policy acme/orders retention_policies`."""
        return " ".join(part for part in (self.resource.value, self.name, self.field) if part)

    @property
    def namespace(self) -> NamespaceName | None:
        """The namespace in which it lies; None for what belongs to the cluster as a whole."""
        if not self.resource.in_namespace:
            return None
        if self.resource in (Resource.NAMESPACE, Resource.POLICY):
            return NamespaceName.parse(self.name)
        return TopicName.parse(self.name).namespace

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "id": self.id,
            "resource": self.resource.value,
            "name": self.name,
            "field": self.field,
            "action": self.action.value,
            "calls": [call.to_json() for call in self.calls],
            "before": self.before,
            "after": self.after,
            "hazard": self.hazard.value,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            resource=Resource(found["resource"]),
            name=found["name"],
            field=found["field"],
            action=Action(found["action"]),
            calls=tuple(Call.from_json(call) for call in found["calls"]),
            before=found["before"],
            after=found["after"],
            hazard=Hazard(found["hazard"]),
            reason=found["reason"],
        )


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """A difference that the plan does not touch, and why."""

    resource: Resource
    name: str
    field: str
    reason: str

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"resource": self.resource.value, "name": self.name, "field": self.field, "reason": self.reason}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(Resource(found["resource"]), found["name"], found["field"], found["reason"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What has to change on `target`, in order. Empty when nothing differs."""

    source: str
    target: str
    changes: tuple[Change, ...]
    left_alone: tuple[LeftAlone, ...] = ()

    @property
    def id(self) -> str:
        """Stable for the same changes on the same cluster."""
        return _digest([self.target, *(change.id for change in self.changes)])[:8]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.changes

    @property
    def calls(self) -> int:
        """Writing calls that applying makes."""
        return sum(len(change.calls) for change in self.changes)

    @property
    def seconds(self) -> float:
        """About how long applying takes."""
        return self.calls * SECONDS_PER_CALL

    def namespaces(self) -> tuple[str, ...]:
        """Every namespace that the plan changes something in."""
        return tuple(dict.fromkeys(str(change.namespace) for change in self.changes if change.namespace))

    def shared(self) -> Self:
        """What belongs to the cluster as a whole, such as tenants: to be applied before any namespace."""
        return replace(self, changes=tuple(change for change in self.changes if change.namespace is None))

    def batch(self, namespaces: Collection[str]) -> Self:
        """What lies in some of its namespaces; batches can be applied side by side once `shared` is in place."""
        wanted = set(namespaces)
        return replace(self, changes=tuple(one for one in self.changes if str(one.namespace) in wanted))

    def hazards(self) -> dict[str, int]:
        """Changes by hazard, each kind named."""
        found = Counter(change.hazard for change in self.changes)
        return {hazard.value: found[hazard] for hazard in Hazard}

    def needing_permission(self) -> tuple[Change, ...]:
        """The changes that run only when the operator allows their ids."""
        return tuple(change for change in self.changes if change.hazard.needs_permission)

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "source": self.source,
            "target": self.target,
            "changes": [change.to_json() for change in self.changes],
            "left_alone": [one.to_json() for one in self.left_alone],
        }

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote; another schema version is `InvalidRequest`."""
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"This plan has schema version {found.get('schema_version')!r}, this release reads {SCHEMA_VERSION}: "
                "make the plan again."
            )
        return cls(
            source=found["source"],
            target=found["target"],
            changes=tuple(Change.from_json(change) for change in found["changes"]),
            left_alone=tuple(LeftAlone.from_json(one) for one in found["left_alone"]),
        )


def _digest(value: Json) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
