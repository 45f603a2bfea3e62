"""What the checks of two snapshots look at, and how they say what they found (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.clock_skew import Clock
from pulsar_fleet.cluster.admin.permissions import Right
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.preflight.schema_probe import SchemaAnswer
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a snapshot does not hold of a cluster; None and empty where nothing was measured.

    :param tenants: how many tenants the cluster has, selected or not.
    :param namespaces: tenant → how many namespaces it has.
    :param unreachable: address in the cluster's data → why it took no connection from here.
    """

    clock: Clock | None = None
    rights: tuple[Right, ...] = ()
    tenants: int | None = None
    namespaces: Mapping[str, int] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """Both measurements.

    :param schemas: what the target's broker says about versions of the source.
    :param lag_seconds: for how long messages may wait on the source before they are carried; 0: nothing is expected.
    """

    source: Measured = field(default_factory=Measured)
    target: Measured = field(default_factory=Measured)
    schemas: tuple[SchemaAnswer, ...] = ()
    lag_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """Both clusters; `wanted` is the source in the target's terms."""

    source: Snapshot
    target: Snapshot
    wanted: Snapshot
    probes: Probes = field(default_factory=Probes)

    def values(self, source: Json, target: Json) -> str:
        """`blue 12, green 8`."""
        return f"{self.source.cluster} {source}, {self.target.cluster} {target}"

    def sides(self) -> Iterator[tuple[Snapshot, Snapshot, Measured]]:
        """Each cluster with the other one, and what was measured on the first."""
        yield self.source, self.target, self.probes.source
        yield self.target, self.source, self.probes.target

    def held(self) -> dict[str, NamespaceState]:
        """The target's namespaces by name."""
        return {one.name: one for one in self.target.namespaces}

    def replicated(self, namespace: str) -> bool:
        """Whether the namespace replicates between the two already, or will once it is copied."""
        both = {self.source.cluster, self.target.cluster}
        lists = [
            one.policies.get("replication_clusters") or ()
            for one in (*self.wanted.namespaces,)
            if one.name == namespace
        ]
        held = self.held().get(namespace)
        lists += [held.policies.get("replication_clusters") or ()] if held else []
        return any(both <= set(listed) for listed in lists)

    def shared(self) -> Iterator[tuple[str, JsonObject, JsonObject]]:
        """Namespaces that both have: name, wanted document, the target's document."""
        held = self.held()
        for one in self.wanted.namespaces:
            if one.name in held:
                yield one.name, one.policies, held[one.name].policies


def settings(snapshot: Snapshot, key: str) -> dict[str, str]:
    """Broker → what it has set for `key`; without brokers that did not tell."""
    return {one.address: str(one.configuration[key]) for one in snapshot.brokers if key in one.configuration}


def setting(snapshot: Snapshot, key: str) -> str | None:
    """What the brokers have set for `key`, the lowest where they disagree; None if none told."""
    return min(settings(snapshot, key).values(), default=None)


def number(snapshot: Snapshot, key: str) -> int:
    """A limit of the brokers; 0, which means none for all of them, where it is not known."""
    found = [int(value) for value in settings(snapshot, key).values() if value.lstrip("-").isdigit()]
    return min((value for value in found if value > 0), default=0)


def call_text(cluster: str, *calls: Call) -> str:
    """`green: POST /admin/v2/namespaces/acme/orders/retention {…}`, one after the other."""
    return "; ".join(f"{cluster}: {_text(call)}" for call in calls)


def dynamic_call(cluster: str, key: str, value: str) -> str:
    """Set a dynamic setting on all brokers of a cluster."""
    return call_text(cluster, Call("POST", f"/brokers/configuration/{key}/{value}"))


def _finding(
    severity: Severity,
    id_: str,
    resource: str,
    evidence: str,
    consequence: str,
    remedy: str,
    *,
    call: str = "",
    values: tuple[Json, Json] = (None, None),
) -> Finding:
    return Finding(
        id=id_,
        severity=severity,
        resource=resource,
        evidence=evidence,
        consequence=consequence,
        remedy=remedy,
        call=call,
        source=values[0],
        target=values[1],
    )


blocker = partial(_finding, Severity.BLOCKER)
"""A finding that stops the run."""

warning = partial(_finding, Severity.WARNING)
"""A finding that a person should know."""


def _text(call: Call) -> str:
    method, _, path = call.text().partition(" ")
    return f"{method} /admin/v2{path}" + (f" {json.dumps(call.body)}" if call.has_body else "")
