"""The results of reconciliation's steps, as tasks and commands hand them over (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.merge.deletion_plan import PendingDeletions


@dataclass(frozen=True, slots=True, kw_only=True)
class LastScan(Document):
    """When an unreachable cluster was last read.

    :param last_seen: in seconds since 1970, None if it was never read; `since` is the same as a text.
    :param seconds: how long ago.
    """

    last_seen: float | None
    since: str
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan(Document):
    """The stored plan of the writes for one cluster.

    :param changes: their number; `needs_permission` of them must be allowed by the operator.
    """

    plan: Reference
    changes: int
    needs_permission: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftSummary(Document):
    """A scan of the fleet in numbers, with the first examples, small enough for an XCom.

    :param fleet: all its clusters; `clusters` are those that were compared.
    :param behind: clusters that do not answer.
    :param unreachable: connection → why its cluster does not answer.
    :param calls: cluster → admin calls.
    :param fields: number of fields that differ; `drifting` is the number of their resources.
    :param missing: number of resources that have to be created on a cluster.
    :param tombstones: resources that were deleted on a cluster.
    :param listed_conflicts: the first of them.
    :param lost: number of edits that a whole document reverted.
    :param oldest_drift_seconds: since the oldest drift was first observed, 0 without drift.
    :param pairs: `blue/green` → number of differences between these two.
    :param unread: resources that a cluster could not read.
    :param unmeasured: what is not known of brokers' versions, a sentence each.
    :param held: namespaces in a running migration, which are not compared.
    :param left_alone: number of differences for which no write is planned.
    :param divergent: number of resources that a job found divergent, None if everything was compared in the task.
    :param plans: by cluster; a cluster without a change has none.
    :param drift: the compared resources that differ, None without drift.
    :param deletions: cluster → the deletions that wait there for an approval.
    """

    headline: str
    fleet: tuple[str, ...]
    clusters: tuple[str, ...]
    behind: Mapping[str, LastScan]
    unreachable: Mapping[str, str]
    resources: int
    namespaces: int
    calls: Mapping[str, int]
    fields: int
    drifting: int
    missing: int
    tombstones: tuple[str, ...]
    conflicts: int
    lost: int
    oldest_drift_seconds: float
    pairs: Mapping[str, int]
    unread: tuple[str, ...]
    held: tuple[str, ...]
    left_alone: int
    seconds: float = 0.0
    divergent: int | None = None
    plans: Mapping[str, RepairPlan] = field(default_factory=dict)
    drift: Reference | None = None
    listed_conflicts: tuple[ListedConflict, ...] = ()
    deletions: Mapping[str, PendingDeletions] = field(default_factory=dict)
    unmeasured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairSummary(Document):
    """What applying the plans did.

    :param repaired: number of applied changes; `counts` has the number for every outcome.
    :param problems: the first changes that are not in place.
    :param changed: clusters with at least one applied change.
    :param failed: number of failed changes.
    :param unreached: clusters with a plan that did not answer.
    :param calls: cluster → admin calls.
    :param after: the fleet as it was read after the writes, without plans; None if it could not be read.
    """

    complete: bool
    repaired: int
    counts: Mapping[str, int]
    problems: tuple[str, ...]
    changed: tuple[str, ...]
    failed: int
    unreached: tuple[str, ...]
    calls: Mapping[str, int]
    after: DriftSummary | None = None
