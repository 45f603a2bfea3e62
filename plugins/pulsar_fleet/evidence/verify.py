"""Verify an evidence file: with itself, and with the records that it was made from where they can be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.evidence.collect import ARTEFACT, artefact_records, ledger_records
from pulsar_fleet.evidence.document import Evidence
from pulsar_fleet.evidence.page import evidence_in, evidence_page
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.audit import check_chain, content_digest, entries_of, entry_at, identity_of, last_entry
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.page import REPORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEvidence:
    """The outcome of a verification.

    :param compared: whether the ledger here is the one of the run, so that the file was compared with it.
    :param went_on: the run has written records since: documents that it has stored since are not compared.
    :param problems: a sentence for each disagreement; empty if nothing was changed.
    """

    evidence: Evidence
    compared: bool
    problems: tuple[str, ...]
    went_on: bool = False

    def text(self) -> str:
        """The outcome in one sentence, then each problem."""
        count = counted(len(self.evidence.records), "record")
        what = f"{count} of run {self.evidence.run_id}, digest {self.evidence.head}"
        if self.problems:
            return "\n".join([f"CHANGED: {what}", *self.problems])
        against = (
            "equal to the records of the ledger" + (_WENT_ON if self.went_on else " and to the stored documents")
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
    engine = run.ledger.engine
    compared = run.ledger.run(run.id) is not None or (evidence.ledger != "" and evidence.ledger == identity_of(engine))
    went_on = False
    if compared:
        later = [entry for entry in entries_of(engine, _ids(run)) if entry.number > evidence.audit_number]
        went_on = bool(later)
        problems += [*_against_ledger(evidence, run), *([] if went_on else _against_documents(evidence, run))]
        problems += altered_reports(run.ledger, run.artefacts, _ids(run))
    return VerifiedEvidence(evidence=evidence, compared=compared, problems=tuple(problems), went_on=went_on)


def altered_reports(ledger: Ledger, artefacts: Artefacts, run_ids: Iterable[str]) -> Iterator[str]:
    """A sentence for each report that is not the one which the run has stored."""
    for run_id in run_ids:
        if not (recorded := ledger.facts(run_id, REPORTS)):
            continue
        for name, digest in recorded[-1].content.items():
            reference = artefacts.find(run_id, name)
            if reference is None:
                yield f"{name} of run {run_id} was removed."
            elif reference.sha256 != digest:
                yield f"{name} of run {run_id} was altered."


_WENT_ON = "; the run has gone on since: make the evidence again"


def _ids(run: Run) -> list[str]:
    return [recorded.run_id for recorded in run.ledger.runs_below(run.id)]


def _against_ledger(evidence: Evidence, run: Run) -> list[str]:
    engine = run.ledger.engine
    problems = [*check_chain(engine).problems]
    number, last = evidence.audit_number, last_entry(engine)[0]
    if number > last:
        problems.append(
            f"The ledger's audit chain ends with entry {last}, and had entry {number} when this was made: the ledger "
            "was restored from an older copy, or entries were removed."
        )
    elif entry_at(engine, number) != evidence.audit_head:
        problems.append(f"The ledger's audit chain has another entry {number} than when this was made.")
    now = {
        (record.kind, record.audit, content_digest(record.content))
        for recorded in run.ledger.runs_below(run.id)
        for record in ledger_records(Run(recorded.run_id, run.ledger, run.artefacts), recorded)
    }
    for number, record in enumerate(evidence.records, 1):
        if record.audit and (record.kind, record.audit, content_digest(record.content)) not in now:
            problems.append(f"Record {number} ({record.kind}) is not in the ledger.")
    return problems


def _against_documents(evidence: Evidence, run: Run) -> Iterator[str]:
    """A sentence for each document of the run that is not the one which it was when this was made."""
    now = {
        content_digest(record.content)
        for run_id in _ids(run)
        for record in artefact_records(Run(run_id, run.ledger, run.artefacts))
    }
    for number, record in enumerate(evidence.records, 1):
        if record.kind == ARTEFACT and isinstance(record.content, dict) and content_digest(record.content) not in now:
            what = f"{record.content['name']} of run {record.content['run_id']}"
            yield f"Record {number} ({ARTEFACT}): {what} was replaced or removed since this was made."
