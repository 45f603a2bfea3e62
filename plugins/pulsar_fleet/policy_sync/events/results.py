"""The results of a synchronisation, as tasks and commands hand them over (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.policy_sync.events.batch import Batch

_MOST_REASONS = 20


@dataclass(kw_only=True)
class Tally(Document):
    """The counts of one cluster; `dropped` events were stale, repeated or not included.

    :param written: changes on the cluster; an event for a value that is already in place causes none.
    :param lost: edits that a whole document reverted although no later edit of their field exists.
    :param provenance_written: namespaces whose provenance properties were written.
    :param scans: full scans of the cluster, and `scan_calls` their calls.
    :param unsent: cluster → events that wait here for its replication.
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
    scans: int = 0
    scan_calls: int = 0
    reasons: list[str] = field(default_factory=list)
    active: bool = False
    backlog: int = 0
    unsent: Mapping[str, int] = field(default_factory=dict)
    behind_since: str = ""

    def count(self, batch: Batch) -> None:
        """Add the outcomes of a batch."""
        self.applied += len(batch.applied)
        self.dropped += len(batch.dropped)
        self.postponed += len(batch.postponed)
        self.refused += len(batch.refused)
        self.written += batch.written
        self.lost += batch.lost
        self.provenance_written += batch.provenance_written
        self.reasons = [*self.reasons, *batch.refused.values()][-_MOST_REASONS:]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSummary(Document):
    """One synchronisation of the fleet.

    :param fleet: all its clusters; `clusters` has the counts of those that answered.
    :param behind: connection → why its cluster does not answer.
    :param since: cluster → since when it does not answer; `behind_seconds` is how long that is.
    :param changed: clusters with at least one write.
    """

    fleet: tuple[str, ...]
    clusters: Mapping[str, Tally]
    behind: Mapping[str, str]
    since: Mapping[str, str]
    behind_seconds: Mapping[str, float]
    changed: tuple[str, ...]
    seconds: float
