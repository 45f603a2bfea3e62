"""Outcomes of the messages of an event topic, and the results of a synchronisation (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent, reason_to_refuse
from pulsar_fleet.policy_sync.events.event_topic import Received
from pulsar_fleet.policy_sync.events.ordering.reference_clock import ReferenceClock
from pulsar_fleet.policy_sync.events.versions import Version
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions
from pulsar_fleet.policy_sync.merge.view import Item, tenant_and_namespace

_MOST_REASONS = 20


@dataclass(kw_only=True)
class Tally(Document):
    """The counts of one cluster; `dropped` events were stale, repeated or not included.

    :param written: changes on the cluster; an event for a value that is already in place causes none.
    :param lost: edits that a whole document reverted although no later edit of their field exists.
    :param provenance_written: namespaces whose provenance properties were written.
    :param joins: whether the cluster joins the fleet and still lacks what the others have: it publishes nothing.
    :param lacks: what was left out of the snapshot with which it joined, and has not arrived since: one text each.
    :param conflicts: edits on two clusters that had not seen each other, decided here; `listed_conflicts` are the last.
    :param clock: how edits of this cluster are ordered, and by how much the clocks differ; empty before the first scan.
    :param clock_skew: seconds by which the reference clock is ahead of the clock of this host.
    :param clock_uncertainty: seconds, None if the brokers of two clusters cannot be compared.
    :param new_topics: the last partitioned topics that a client or a person created here, with their partition counts.
    :param kept_edits: the last edits that won against a deletion.
    :param deleted: resources that were deleted because another cluster had deleted them.
    :param not_deleted: the allowed deletions that were refused or failed, with the reason.
    :param pending_deletions: the deletions on other clusters that wait here for an approval.
    :param unmeasured: what is not known of the brokers' versions, a sentence each.
    :param scans: full scans of the cluster, and `scan_calls` their calls.
    :param backlog: events that are not acknowledged yet; `unread` are those of them that were not postponed.
    :param unsent: cluster → events that wait here for its replication.
    :param waiting: resource → why its events are delivered again until they can be applied.
    :param behind_since: since when the cluster does not answer, empty if it does.
    """

    published: int = 0
    applied: int = 0
    dropped: int = 0
    postponed: int = 0
    refused: int = 0
    written: int = 0
    lost: int = 0
    provenance_written: int = 0
    joins: bool = False
    lacks: tuple[str, ...] = ()
    conflicts: int = 0
    listed_conflicts: list[ListedConflict] = field(default_factory=list)
    clock: str = ""
    clock_skew: float = 0.0
    clock_uncertainty: float | None = None
    unmeasured: list[str] = field(default_factory=list)
    scans: int = 0
    scan_calls: int = 0
    reasons: list[str] = field(default_factory=list)
    new_topics: list[str] = field(default_factory=list)
    kept_edits: list[str] = field(default_factory=list)
    deleted: int = 0
    not_deleted: list[str] = field(default_factory=list)
    pending_deletions: PendingDeletions | None = None
    active: bool = False
    backlog: int = 0
    unread: int = 0
    unsent: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    behind_since: str = ""

    def notice(self, topics: Sequence[str]) -> None:
        """Add partitioned topics that appeared on the cluster; the last ones are kept."""
        self.new_topics = [*self.new_topics, *topics][-_MOST_REASONS:]

    def count(self, batch: Batch) -> None:
        """Add the outcomes of a batch."""
        self.applied += len(batch.applied)
        self.dropped += len(batch.dropped)
        self.postponed += len(batch.postponed)
        self.refused += len(batch.refused)
        self.written += batch.written
        self.lost += batch.lost
        self.provenance_written += batch.provenance_written
        self.kept_edits = [*self.kept_edits, *batch.kept_edits][-_MOST_REASONS:]
        self.reasons = [*self.reasons, *batch.refused.values()][-_MOST_REASONS:]
        self.conflicts += len(batch.conflicts)
        self.listed_conflicts = [*self.listed_conflicts, *batch.conflicts][-_MOST_REASONS:]

    def read_clock(self, clock: ReferenceClock, own: str) -> None:
        """Take over by which clock edits of a cluster are ordered."""
        self.clock, self.clock_skew = clock.text(own), clock.host.ahead
        self.clock_uncertainty = None if clock.uncertainty is None else clock.uncertainty / 1000


MOST_TENANTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LastUpdate(Document):
    """Where and when a tenant was last written: Pulsar has no place for it.

    :param by: the cluster.
    :param time: in ms since 1970 by the reference clock.
    """

    by: str
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSummary(Document):
    """One synchronisation of the fleet.

    :param fleet: all its clusters; `clusters` has the counts of those that answered.
    :param behind: connection → why its cluster does not answer.
    :param since: cluster → since when it does not answer; `behind_seconds` is how long that is.
    :param changed: clusters with at least one write.
    :param tenants: the last updates of the 50 tenants that were updated last, on whatever cluster.
    """

    fleet: tuple[str, ...]
    clusters: Mapping[str, Tally]
    behind: Mapping[str, str]
    since: Mapping[str, str]
    behind_seconds: Mapping[str, float]
    changed: tuple[str, ...]
    seconds: float
    tenants: Mapping[str, LastUpdate] = field(default_factory=dict)


Pair = tuple[Received, MetadataChangeEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Document):
    """Why the events of a resource wait, and since when as this process knows it."""

    since: str
    why: str


def waiting_lines(own: str, waiting: Mapping[str, Waiting]) -> list[str]:
    """What waits on a cluster, one line for each cause.

    :param waiting: resource → why it waits.
    """
    causes: dict[str, list[str]] = {}
    for name, entry in waiting.items():
        causes.setdefault(entry.why, []).append(name)
    return [
        f"{own}: events of {counted(len(names), 'resource')} wait since {min(waiting[name].since for name in names)}, "
        f"first {names[0]}: {why}"
        for why, names in causes.items()
    ]


@dataclass(kw_only=True)
class Batch:
    """Messages by outcome: applied, dropped, refused with a reason, or postponed; `events` are still open.

    :param written: number of changes on the cluster.
    :param lost: number of edits that a whole document reverted.
    :param provenance_written: number of namespaces whose provenance properties were written.
    :param conflicts: the recorded conflicts between edits that it decided.
    :param deletions: number of deletions on other clusters that wait here for an approval since this batch.
    :param kept_edits: the edits that won against a deletion.
    :param waiting: resource → why its events are postponed; without those that the next delivery settles.
    :param settled: the resources of which no event is postponed.
    """

    events: dict[Item, list[Pair]] = field(default_factory=dict)
    dropped: list[Received] = field(default_factory=list)
    applied: list[Received] = field(default_factory=list)
    postponed: list[Received] = field(default_factory=list)
    refused: dict[Received, str] = field(default_factory=dict)
    written: int = 0
    lost: int = 0
    provenance_written: int = 0
    conflicts: list[ListedConflict] = field(default_factory=list)
    deletions: int = 0
    kept_edits: list[str] = field(default_factory=list)
    waiting: dict[Item, str] = field(default_factory=dict)
    settled: set[Item] = field(default_factory=set)

    @classmethod
    def of(cls, received: Iterable[Received], includes: Callable[[Item], bool], busy: Set[str]) -> Self:
        """Decode messages; invalid ones are refused, resources that are not included are dropped.

        :param busy: namespaces in a migration, in which nothing may be written now; their events are postponed.
        """
        batch = cls()
        for message in received:
            try:
                event = MetadataChangeEvent.decode(message.content)
            except InvalidRequest as error:
                batch.refused[message] = str(error)
                continue
            if reason := reason_to_refuse(event):
                batch.refused[message] = reason
            elif not includes(event.item):
                batch.dropped.append(message)
            elif tenant_and_namespace(event.item)[1] in busy:
                batch.postponed.append(message)
                batch.waiting[event.item] = "its namespace is in a migration"
            else:
                batch.events.setdefault(event.item, []).append((message, event))
        return batch

    def of_item(self, item: Item) -> list[MetadataChangeEvent]:
        """The open events of one resource, in the order of their arrival."""
        return [event for _, event in self.events[item]]

    def drop(self, items: Iterable[Item]) -> None:
        """Drop the events of these resources: they request nothing."""
        for item in items:
            self.dropped += self._pop(item)

    def finish(self, item: Item, failed: Mapping[str, Version], reason: str) -> None:
        """Mark the events of a resource as applied, except those that requested a failed field: these are refused."""
        self.settled.add(item)
        for message, event in self.events.pop(item):
            requested = {name: version for name, (_, version) in event.fields.items()}
            # A whole document also requests, with its own version, that the fields it does not hold are unset.
            if any(requested.get(name, event.version) == version for name, version in failed.items()):
                self.refused[message] = reason
            else:
                self.applied.append(message)

    def refuse(self, item: Item, reason: str) -> None:
        """Refuse all events of a resource."""
        self.refused |= dict.fromkeys(self._pop(item), reason)

    def take(self, items: Iterable[Item]) -> Self:
        """Move the events of some resources to a batch of their own."""
        return type(self)(events={item: self.events.pop(item) for item in items})

    def stages(self) -> Iterator[Self]:
        """Move the open events to batches that are applied one after the other: topics before their policies."""
        policies = [item for item in self.events if item[0] is Resource.TOPIC_POLICY]
        others = [item for item in self.events if item[0] is not Resource.TOPIC_POLICY]
        yield from (self.take(items) for items in (others, policies) if items)

    def add(self, part: Self) -> None:
        """Add the outcomes of a batch that `take` returned."""
        self.dropped += part.dropped
        self.applied += part.applied
        self.postponed += part.postponed
        self.refused |= part.refused
        self.written += part.written
        self.lost += part.lost
        self.provenance_written += part.provenance_written
        self.deletions += part.deletions
        self.kept_edits += part.kept_edits
        self.conflicts += part.conflicts
        self.waiting |= part.waiting
        self.settled |= part.settled

    def postpone(self, items: Collection[Item], why: str = "") -> None:
        """Postpone the events of these resources: they are redelivered.

        :param why: what they wait for; empty if the next delivery settles it.
        """
        for item in list(items):
            self.postponed += [message for message, _ in self.events.pop(item)]
            if why:
                self.waiting[item] = why

    def _pop(self, item: Item) -> list[Received]:
        self.settled.add(item)
        return [message for message, _ in self.events.pop(item)]
