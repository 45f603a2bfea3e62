"""The input of the checks of two snapshots, and the functions that build their findings (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.admin.permissions import Right
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.effective import broker_default, is_set
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD, Kind, Policy
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.preflight.bookies import Bookies
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.preflight.schema_probe import SchemaAnswer
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements(Document):
    """Measurements of a cluster that its snapshot does not contain; None or empty where nothing was measured.

    :param tenants: the number of all tenants of the cluster, selected or not.
    :param namespaces: tenant → the number of its namespaces.
    :param unreachable: address in the cluster's data → why it accepted no connection from this host.
    :param bookies: None if nobody asked for them.
    """

    clock: ClockSkew | None = None
    rights: tuple[Right, ...] = ()
    tenants: int | None = None
    namespaces: Mapping[str, int] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    bookies: Bookies | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The measurements of both clusters.

    :param schemas: the answers of the target's broker about versions of the source.
    :param lag_seconds: how long messages may wait on the source before they are replicated; 0 if no lag is expected.
    """

    source: Measurements = field(default_factory=Measurements)
    target: Measurements = field(default_factory=Measurements)
    schemas: tuple[SchemaAnswer, ...] = ()
    lag_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """Both clusters; `translated` is what the target will have, in its terms: the source where it is copied.

    :param kept: namespaces and topics of which the target keeps its own policies, which `translated` then has.
    """

    source: Snapshot
    target: Snapshot
    translated: Snapshot
    probes: Probes = field(default_factory=Probes)
    kept: frozenset[str] = frozenset()

    def policies_after(self, namespace: str) -> JsonObject:
        """The policies that a namespace has on the target after the plan; empty if neither side has it."""
        return {row.name: row.policies for row in self.translated.namespaces}.get(namespace, {})

    def keeping_policies(self) -> Pair:
        """The pair under a plan that changes no policy that the target has, except lists of clusters."""
        namespaces, topics = self.target_namespaces(), {row.name for row in self.target.topics}
        states = (
            replace(row, policies={**namespaces[row.name].policies, _LIST: row.policies.get(_LIST)})
            if row.name in namespaces
            else row
            for row in self.translated.namespaces
        )
        added = (row for row in self.translated.topic_policies if row.topic not in topics)
        own = (row for row in self.target.topic_policies if row.topic in topics)
        translated = replace(self.translated, namespaces=tuple(states), topic_policies=(*added, *own))
        return replace(self, translated=translated, kept=frozenset({*namespaces, *topics}))

    def owner(self, name: str) -> str:
        """The cluster on which the policies of a namespace or topic are set that the target will have."""
        return self.target.cluster if name in self.kept else self.source.cluster

    def values(self, source: Json, target: Json) -> str:
        """`blue 12, green 8`; the entries of a list are joined."""
        source, target = (" and ".join(value) if isinstance(value, list) else value for value in (source, target))
        return f"{self.source.cluster} {source}, {self.target.cluster} {target}"

    def sides(self) -> Iterator[tuple[Snapshot, Snapshot, Measurements]]:
        """Each cluster with the other cluster, and the measurements of the first."""
        yield self.source, self.target, self.probes.source
        yield self.target, self.source, self.probes.target

    def differing_settings(self, keys: Iterable[str]) -> Iterator[tuple[str, list[str], list[str]]]:
        """Broker settings that differ: key, the source's values, the target's; keys that one side lacks are skipped."""
        for key in keys:
            ours, theirs = (sorted(set(settings(side, key).values())) for side in (self.source, self.target))
            if ours and theirs and ours != theirs:
                yield key, ours, theirs

    def target_namespaces(self) -> dict[str, NamespaceState]:
        """The target's namespaces by name."""
        return {namespace.name: namespace for namespace in self.target.namespaces}

    def replicated(self, namespace: str) -> bool:
        """Whether the namespace replicates between the two now, or will after the copy."""
        both = {self.source.cluster, self.target.cluster}
        return any(
            state.name == namespace and both <= set(state.policies.get(_LIST) or ())
            for state in (*self.translated.namespaces, *self.target.namespaces)
        )

    def common_namespaces(self) -> Iterator[tuple[str, JsonObject, JsonObject]]:
        """Namespaces that both have: name, the source's document in the target's terms, the target's document."""
        target_namespaces = self.target_namespaces()
        for namespace in self.translated.namespaces:
            if namespace.name in target_namespaces:
                yield namespace.name, namespace.policies, target_namespaces[namespace.name].policies


def settings(snapshot: Snapshot, key: str) -> dict[str, str]:
    """Broker → its value of `key`; without brokers that do not report it."""
    return {
        broker.address: str(broker.configuration[key]) for broker in snapshot.brokers if key in broker.configuration
    }


def setting(snapshot: Snapshot, key: str) -> str | None:
    """The brokers' value of `key`, the lowest where they differ; None if no broker reports it."""
    return min(settings(snapshot, key).values(), default=None)


def names_in(value: str) -> tuple[str, ...]:
    """The names in a list as brokers report it: `[admin, broker]`."""
    return tuple(name.strip() for name in value.strip("[]").split(",") if name.strip())


def number(snapshot: Snapshot, key: str) -> int:
    """A limit of the brokers; 0, which means no limit, where no broker reports it."""
    limits = [int(value) for value in settings(snapshot, key).values() if value.lstrip("-").isdigit()]
    return min((value for value in limits if value > 0), default=0)


def call_text(cluster: str, *calls: Call) -> str:
    """`green: POST /admin/v2/namespaces/acme/orders/retention {…}`, for each call."""
    return "; ".join(f"{cluster}: {written(call)}" for call in calls)


def keeping_calls(pair: Pair, field: str, names: Sequence[str]) -> str:
    """Set on namespaces of the source what its brokers apply there already, so that a plan copies it.

    Nothing changes on the source, and other namespaces of the target keep their settings. At most three namespaces;
    empty where the source's brokers differ, or no policy says what they apply, such as a rate without a limit.
    """
    policy = BY_FIELD[field]
    value = _common_default(pair.source, policy)
    if value is None:
        return ""
    own = {state.name: state.policies.get(field) for state in pair.source.namespaces}
    if field == TOPIC_CREATION and value.get("topicType") == "non-partitioned":
        # Brokers refuse a number of partitions for this type.
        value = {key: part for key, part in value.items() if key != "defaultNumPartitions"}
    calls: list[Call] = []
    for name in names[:_MOST_CALLS]:
        # A namespace may have a quota of one type, which stays.
        before = own.get(name) if policy.kind is Kind.QUOTAS else None
        after = {**value, **before} if before else value
        calls += policy_calls(policy, NamespaceName.parse(name), before, after)
    return call_text(pair.source.cluster, *calls)


def _common_default(snapshot: Snapshot, policy: Policy) -> Json:
    """What every broker applies while the policy is not set; None if they differ, or it cannot be set as a policy."""
    values = [broker_default(policy, broker.configuration) for broker in snapshot.brokers]
    value = values[0] if values else None
    keyed = {snapshot.cluster: value} if policy.keyed_by_cluster else value
    if value is None or any(other != value for other in values) or not is_set(value):
        return None
    # A document has the same value while the policy is not set.
    if not comparable({policy.field: keyed}, snapshot.cluster):
        return None
    parts = {part for part, _ in policy.broker_default} if isinstance(policy.broker_default, tuple) else set()
    if parts and policy.kind is not Kind.QUOTAS:
        # The broker would use 0 for a part that is left out. It reports names as a list, which no policy accepts.
        whole = parts <= set(value) and not any(isinstance(part, list) for part in value.values())
        return value if whole else None
    return value


TOPIC_CREATION = "autoTopicCreationOverride"
_LIST = "replication_clusters"
_MOST_CALLS = 3

NO_RESTART = "Restart no broker while a migrated namespace drains there: a flagged topic is not loaded again."
"""Said with every remedy that restarts brokers."""


def in_broker_conf(setting: str, brokers: str) -> str:
    """How brokers get a setting that is not dynamic."""
    return f"set {setting} in broker.conf of {brokers} and restart them: it is not dynamic. {NO_RESTART}"


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
"""A finding that an operator should know."""


def written(call: Call) -> str:
    """`POST /admin/v2/namespaces/acme/orders/retention {…}`, as a person sends it."""
    method, _, path = call.text().partition(" ")
    return f"{method} /admin/v2{path}" + (f" {json.dumps(call.body)}" if call.has_body else "")
