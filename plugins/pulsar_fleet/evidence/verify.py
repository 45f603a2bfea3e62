"""Verify an evidence file: with itself, and with the records that it was made from where they can be reached."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.evidence.collect import ledger_records
from pulsar_fleet.evidence.document import Evidence
from pulsar_fleet.evidence.page import evidence_in, evidence_page
from pulsar_fleet.ledger.audit import check_chain, content_digest, entry_at
from pulsar_fleet.ledger.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEvidence:
    """The outcome of a verification.

    :param compared: whether the ledger has the run, so that the file was compared with it.
    :param problems: a sentence for each disagreement; empty if nothing was changed.
    """

    evidence: Evidence
    compared: bool
    problems: tuple[str, ...]

    def text(self) -> str:
        """The outcome in one sentence, then each problem."""
        count = counted(len(self.evidence.records), "record")
        what = f"{count} of run {self.evidence.run_id}, digest {self.evidence.head}"
        if self.problems:
            return "\n".join([f"CHANGED: {what}", *self.problems])
        against = (
            "equal to the records of the ledger"
            if self.compared
            else ("consistent; the ledger here has no such run: compare the digest with the one that was noted")
        )
        return f"UNCHANGED: {what}, {against}."


def verify_file(content: bytes, run_of: Run) -> VerifiedEvidence:
    """Verify the bytes of an evidence file, JSON or HTML.

    :param run_of: any run of the ledger and the artefact store to compare with.
    :raises InvalidRequest: it is not an evidence file.
    """
    is_page = content.lstrip().startswith(b"<")
    evidence = Evidence.from_bytes(evidence_in(content) if is_page else content)
    problems = [*evidence.problems()]
    # Records that were altered may not have what the page shows.
    if not problems and content != (evidence_page(evidence).encode() if is_page else evidence.to_bytes()):
        problems.append("The file is not what this release writes for its records: its text was altered.")
    run = Run(evidence.run_id, run_of.ledger, run_of.artefacts)
    compared = run.ledger.run(run.id) is not None
    if compared:
        problems += _against_ledger(evidence, run)
    return VerifiedEvidence(evidence=evidence, compared=compared, problems=tuple(problems))


def _against_ledger(evidence: Evidence, run: Run) -> list[str]:
    problems = [*check_chain(run.ledger.engine).problems]
    if entry_at(run.ledger.engine, evidence.audit_number) != evidence.audit_head:
        problems.append(f"The ledger's audit chain has another entry {evidence.audit_number} than when this was made.")
    now = {
        (record.kind, record.audit, content_digest(record.content))
        for recorded in run.ledger.runs_below(run.id)
        for record in ledger_records(Run(recorded.run_id, run.ledger, run.artefacts), recorded)
    }
    for number, record in enumerate(evidence.records, 1):
        if record.audit and (record.kind, record.audit, content_digest(record.content)) not in now:
            problems.append(f"Record {number} ({record.kind}) is not in the ledger.")
    return problems
