"""The results of a synchronisation, as tasks and commands hand them over (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.policy_sync.events.batch import Batch, Waiting
from pulsar_fleet.policy_sync.events.ordering.reference_clock import ReferenceClock
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions

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
