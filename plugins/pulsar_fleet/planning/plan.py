"""A plan: ordered changes with their exact calls, as values (pure)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.diff_entry import Difference, Resource


class Hazard(StrEnum):
    """What it takes to go back, in rising order."""

    NONE = "none"
    """It adds something and changes nothing that exists."""
    REVERSIBLE = "reversible"
    """Setting the previous value restores the previous state."""
    IRREVERSIBLE = "irreversible"
    """It cannot be undone, or the broker discards messages because of it."""
    DESTRUCTIVE = "destructive"
    """It deletes topics, namespaces or backlogs immediately."""

    @property
    def needs_permission(self) -> bool:
        """Whether the operator must allow the change by its id."""
        return self in (Hazard.IRREVERSIBLE, Hazard.DESTRUCTIVE)


_ORDER = tuple(Hazard)


def worst(*hazards: Hazard) -> Hazard:
    """The highest hazard; NONE without any."""
    return max(hazards, key=_ORDER.index, default=Hazard.NONE)


# Each write is read before and after; measured with 8 connections.
SECONDS_PER_CALL = 0.06
ONLY_ON_TARGET = "exists only on the target"


class Action(StrEnum):
    """What a change does."""

    CREATE = "create"
    SET = "set"
    UNSET = "unset"
    GROW = "grow"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Document):
    """One change of one resource.

    :param field: the policy, `scope/policy`, property set or subscription; empty for the whole resource.
    :param before: the value that the cluster must still have when the change is applied (None: missing or not set).
    :param reason: why it is planned, and its hazards, in a sentence.
    """

    PROPERTIES = ("id",)

    resource: Resource
    name: str
    field: str
    action: Action
    calls: tuple[Call, ...]
    before: Json
    after: Json
    hazard: Hazard
    reason: str

    @classmethod
    def of(
        cls,
        difference: Difference,
        calls: tuple[Call, ...],
        after: Json,
        reason: str,
        action: Action | None = None,
        hazard: Hazard | None = None,
    ) -> Self:
        """The change of a difference, from the target's value to `after`; by default it creates what is missing."""
        creates = difference.whole and difference.target is None
        return cls(
            resource=difference.resource,
            name=difference.name,
            field=difference.field,
            action=action or (Action.CREATE if creates else Action.SET),
            calls=calls,
            before=difference.target,
            after=after,
            hazard=hazard or (Hazard.NONE if creates else Hazard.REVERSIBLE),
            reason=reason,
        )

    @property
    def id(self) -> str:
        """Stable for the same change of the same values: an id that an operator allows never names another change."""
        return _digest([self.resource, self.name, self.field, self.action, self.before, self.after])[:12]

    @property
    def label(self) -> str:
        """`policy acme/orders retention_policies`."""
        return " ".join(part for part in (self.resource.value, self.name, self.field) if part)

    @property
    def namespace(self) -> NamespaceName | None:
        """The namespace of the resource; None for a cluster-wide one."""
        if not self.resource.in_namespace:
            return None
        if self.resource in (Resource.NAMESPACE, Resource.POLICY):
            return NamespaceName.parse(self.name)
        return TopicName.parse(self.name).namespace


@dataclass(frozen=True, slots=True)
class LeftAlone(Document):
    """A difference that the plan does not change, and why."""

    resource: Resource
    name: str
    field: str
    reason: str

    @classmethod
    def of(cls, difference: Difference, reason: str) -> Self:
        """The difference with the reason why the plan does not change it."""
        return cls(difference.resource, difference.name, difference.field, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Document):
    """The ordered changes of `target`; empty when nothing differs."""

    SCHEMA_VERSION = 1
    OTHER_VERSION = "make the plan again"
    PROPERTIES = ("id",)

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
        """Whether the plan has no change."""
        return not self.changes

    @property
    def calls(self) -> int:
        """The number of writing calls."""
        return sum(len(change.calls) for change in self.changes)

    @property
    def seconds(self) -> float:
        """The expected duration of applying."""
        return self.calls * SECONDS_PER_CALL

    def namespaces(self) -> tuple[str, ...]:
        """Every namespace in which the plan changes something."""
        return tuple(dict.fromkeys(str(change.namespace) for change in self.changes if change.namespace))

    def shared(self) -> Self:
        """The cluster-wide changes, such as tenants: apply them before any namespace."""
        return replace(self, changes=tuple(change for change in self.changes if change.namespace is None))

    def batch(self, namespaces: Collection[str]) -> Self:
        """The changes in some namespaces; batches can be applied concurrently after `shared`."""
        names = set(namespaces)
        return replace(self, changes=tuple(change for change in self.changes if str(change.namespace) in names))

    def hazards(self) -> dict[str, int]:
        """The number of changes of each hazard."""
        counts = Counter(change.hazard for change in self.changes)
        return {hazard.value: counts[hazard] for hazard in Hazard}

    def needing_permission(self) -> tuple[Change, ...]:
        """The changes that are applied only if the operator allows their ids."""
        return tuple(change for change in self.changes if change.hazard.needs_permission)


def _digest(value: Json) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
