"""The result of a diagnosis: states of replicators, and causes with evidence, consequence and remedy (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.text import counted, duration


class State(StrEnum):
    """What a replicator does."""

    HEALTHY = "healthy"
    """Connected; what it has not sent yet takes less than the limit of the request."""
    BEHIND = "behind"
    """Connected, and it sends, but what it has not sent yet takes longer than the limit of the request."""
    STALLED = "stalled"
    """Connected, with a backlog of which nothing was confirmed between two readings."""
    DISCONNECTED = "disconnected"
    MISSING = "missing"
    """A list of clusters asks for it, and the topic does not have it."""
    UNKNOWN = "unknown"
    """Its topic could not be read, or its cursor."""

    @property
    def is_fault(self) -> bool:
        """Whether messages do not reach the target."""
        return self in (State.STALLED, State.DISCONNECTED, State.MISSING)


class Severity(StrEnum):
    """How much a diagnosis matters."""

    FAULT = "fault"
    """Messages do not arrive, or arrive later and later, or applications cannot use the topic."""
    WARNING = "warning"
    """Replication works as it is set up, and that may not be what is meant, or it will fail later."""
    INFO = "info"


OWN_CLUSTER = "own-cluster-missing"
"""Brokers delete topics: it comes before every other fault."""
POLICY_TOPIC = "policy-topic-differs"
"""Explains replicators that carry no message of an application: that they do not work is no fault."""
FILL_IN = "Put the value in the place of each <…> before you send it; the call replaces all that is stored there."


def placeholder(what: str) -> str:
    """Stands in a printed call for a value that only a person knows, or that is a secret."""
    return f"<{what}>"


def _is_placeholder(value: Json) -> bool:
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyCall(Document):
    """A call of a remedy, and the cluster that gets it.

    :param replaces: the list of clusters that was read where the call stores one; None for other calls.
    """

    cluster: str
    call: Call
    replaces: tuple[str, ...] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it can be sent as it is: no value is left to fill in."""
        body = self.call.body
        return not (isinstance(body, Mapping) and any(map(_is_placeholder, body.values())))

    def text(self) -> str:
        """`green: PUT /admin/v2/persistent/acme/orders/events/unload`, with its body as JSON."""
        import json

        method, _, rest = self.call.text().partition(" ")
        body = f" {json.dumps(self.call.body, ensure_ascii=False)}" if self.call.has_body else ""
        return f"{self.cluster}: {method} /admin/v2{rest}{body}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Document):
    """A cause of a fault, or a risk.

    :param id: stable, such as `partitions-differ`; `--remedy` names it.
    :param resource: a pair of clusters, a namespace or a topic.
    :param evidence: the observed values.
    :param replicators: how many replicators it explains.
    :param remedy: what to do, in sentences.
    :param calls: the remedy as calls, in their order, where calls suffice.
    :param automatic: the calls can harm nothing, so that a run may send them when it is asked to.
    """

    id: str
    severity: Severity
    resource: str
    source: str
    target: str
    evidence: str
    consequence: str
    remedy: str
    replicators: int = 0
    calls: tuple[RemedyCall, ...] = ()
    automatic: bool = False

    @property
    def clusters(self) -> str:
        """`blue → green`; `blue` of a cause in this cluster alone."""
        return self.source if self.source == self.target else f"{self.source} → {self.target}"

    def text(self) -> str:
        """Lines for a terminal or a log."""
        lines = [
            f"{self.severity.upper():7} {self.id:30} {self.clusters}  {self.resource}",
            f"        {self.evidence}",
            f"        {self.consequence}",
            f"        Do: {self.remedy}",
            *(f"        {call.text()}" for call in self.calls),
        ]
        if not all(call.is_ready for call in self.calls):
            lines.append(f"        {FILL_IN}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorState(Document):
    """A replicator that is not healthy.

    :param causes: ids of the diagnoses that explain it.
    :param per_second: entries that the target confirms per second.
    :param forecast_seconds: until the backlog is sent at these rates; None if it does not shrink.
    """

    source: str
    target: str
    topic: str
    state: State
    causes: tuple[str, ...] = ()
    backlog: int = 0
    delay_seconds: float = 0.0
    per_second: float = 0.0
    forecast_seconds: float | None = None

    @property
    def key(self) -> str:
        """`blue → green persistent://acme/orders/events-partition-3`."""
        return f"{self.source} → {self.target} {self.topic}"

    def text(self) -> str:
        """One line with numbers and units."""
        parts = [f"{self.state.upper():12} {self.key}"]
        if self.backlog:
            parts.append(f"{counted(self.backlog, 'entry')} behind, {self.per_second:,.1f} entries/s")
        if self.state is State.BEHIND:
            known = self.forecast_seconds is not None
            parts.append(f"done in about {duration(self.forecast_seconds or 0)}" if known else "it does not catch up")
        return "   ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState(Document):
    """All replicators from one cluster to another.

    :param counts: state → number of replicators.
    :param backlog: entries that are not yet replicated.
    :param delay_seconds: age of the oldest of them.
    :param per_second: entries that the target confirms per second.
    :param catch_up_seconds: until every backlog is sent at these rates; None if that of a replicator is not known.
    """

    source: str
    target: str
    counts: Mapping[str, int]
    backlog: int = 0
    delay_seconds: float = 0.0
    per_second: float = 0.0
    catch_up_seconds: float | None = None

    @property
    def worst(self) -> State:
        """The state of the replicator that needs a person most."""
        return next((state for state in _WORST_FIRST if self.counts.get(state.value)), State.HEALTHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnState(Document):
    """How what the applications of a group write comes back to the cluster that they left.

    :param run: that has moved them.
    :param namespaces: of the group that the examination covers.
    :param replicators: those from the cluster where they are to the one that they left; a missing one for each
        namespace and topic that is not replicated back.
    """

    group: str
    run: str
    replicators: LinkState
    namespaces: tuple[str, ...] = ()

    def text(self) -> str:
        """One line with numbers."""
        row = self.replicators
        return (
            f"RETURN       {self.group}: {row.source} → {row.target} {row.worst.value}, "
            f"{counted(row.backlog, 'entry')} behind"
        )


_WORST_FIRST = (State.MISSING, State.DISCONNECTED, State.STALLED, State.UNKNOWN, State.BEHIND, State.HEALTHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination(Document):
    """What a run of the doctor found.

    :param counts: state → number of replicators.
    :param replicators: those that are not healthy.
    :param links: all replicators, by source and target.
    :param returns: of the groups of applications that were moved and can return, where both clusters were read.
    :param read_at: of the last reading, seconds since 1970; 0 in an examination of an earlier release.
    :param unread: facts that could not be read, as texts; what depends on them is unknown.
    :param outages: connection → why its cluster does not answer.
    :param calls: cluster → number of HTTP requests.
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    clusters: tuple[str, ...]
    namespaces: int
    counts: Mapping[str, int]
    replicators: tuple[ReplicatorState, ...] = ()
    links: tuple[LinkState, ...] = ()
    returns: tuple[ReturnState, ...] = ()
    read_at: float = 0.0
    diagnoses: tuple[Diagnosis, ...] = ()
    unread: tuple[str, ...] = ()
    outages: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def faults(self) -> tuple[Diagnosis, ...]:
        """The diagnoses that a person must act on."""
        return self.by(Severity.FAULT)

    @property
    def has_fault(self) -> bool:
        """Whether a replicator does not work, or is behind without catching up, or a cluster does not answer."""
        failing = any(row.state.is_fault and row.causes != (POLICY_TOPIC,) for row in self.replicators)
        return bool(self.faults or failing or self.outages)

    @property
    def is_complete(self) -> bool:
        """Whether every fact could be read."""
        return not self.unread and not self.counts.get(State.UNKNOWN.value)

    def by(self, severity: Severity) -> tuple[Diagnosis, ...]:
        """The diagnoses of a severity."""
        return tuple(diagnosis for diagnosis in self.diagnoses if diagnosis.severity is severity)


def ordered(diagnoses: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Faults first, of these the one by which topics are deleted, then by id and resource."""
    rank = list(Severity)

    def key(row: Diagnosis) -> tuple[int, bool, str, str, str]:
        return rank.index(row.severity), row.id != OWN_CLUSTER, row.id, row.resource, row.source

    return tuple(sorted(diagnoses, key=key))
