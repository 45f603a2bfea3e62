"""What the last step of an onboarding finds, compared in this process."""

from __future__ import annotations

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.onboarding.results import TakenSnapshot
from pulsar_fleet.verification.snapshots.compare import EqualityResult, compare_in_process, compare_snapshots, read_back


async def verify_equal(
    source: TakenSnapshot, target: ClusterConnection, selection: Selection, artefacts: Artefacts, run_id: str
) -> EqualityResult:
    """Read the target afresh and compare it with the source's snapshot, as `take_snapshot` returned it."""
    request = await read_back(source.reference, target, selection, artefacts, run_id)
    return EqualityResult.of(request, compare_snapshots(request, compare_in_process))
