"""What the gates of a run have found."""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import FINDINGS, FINDINGS_BEFORE_CUT_OVER
from pulsar_fleet.preflight.findings import Finding


def reported_findings(run: Run) -> list[Finding]:
    """The findings of both evaluations of the gates; a run with a blocker among them has a waiver, or ended there."""
    rows = [*(run.stored(FINDINGS) or ()), *(run.stored(FINDINGS_BEFORE_CUT_OVER) or ())]
    return [Finding.from_json(row) for row in rows]


def not_reported(findings: Iterable[Finding], reported: Iterable[Finding]) -> list[Finding]:
    """The findings that the gates did not report, by id and resource: what they reported has a waiver."""
    known = {(finding.id, finding.resource) for finding in reported}
    return [finding for finding in findings if (finding.id, finding.resource) not in known]
