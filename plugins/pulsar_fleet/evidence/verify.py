"""Verify an evidence file: with itself, and with the records that it was made from where they can be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.evidence.collect import ARTEFACT, DIGESTS, REPORT, ledger_and_artefacts
from pulsar_fleet.evidence.document import Evidence, Record
from pulsar_fleet.evidence.page import evidence_in, evidence_page
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.audit import RUN, check_chain, content_digest, entries_of, entry_at, identity_of, last_entry
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.page import DOCUMENT, REPORTS, document_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEvidence:
    """The outcome of a verification.

    :param compared: whether the ledger here is the one of the run, so that the file was compared with it.
    :param problems: a sentence for each disagreement; empty if nothing was changed.
    :param left_out: what was not compared, and why; empty if everything was.
    """

    evidence: Evidence
    compared: bool
    problems: tuple[str, ...]
    left_out: str = ""

    def text(self) -> str:
        """The outcome in one sentence, then each problem."""
        count = counted(len(self.evidence.records), "record")
        what = f"{count} of run {self.evidence.run_id}, digest {self.evidence.head}"
        if self.problems:
            return "\n".join([f"CHANGED: {what}", *self.problems])
        if not self.compared:
            return f"UNCHANGED: {what}, consistent; {self.left_out}: compare the digest with the one that was noted."
        documents = f"; {self.left_out}" if self.left_out else " and to the stored documents"
        return f"UNCHANGED: {what}, equal to the records of the ledger{documents}."


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
    problems += _of_reports(evidence)
    run = Run(evidence.run_id, run_of.ledger, run_of.artefacts)
    if left_out := _not_here(evidence, run):
        return VerifiedEvidence(evidence=evidence, compared=False, problems=tuple(problems), left_out=left_out)
    now = [*ledger_and_artefacts(run)]
    problems += _against_ledger(evidence, run, now)
    left_out = _documents_left_out(evidence, run, now)
    if not left_out:
        problems += _against_documents(evidence, now)
    problems += altered_reports(run.ledger, run.artefacts, _ids(run))
    return VerifiedEvidence(evidence=evidence, compared=True, problems=tuple(problems), left_out=left_out)


def altered_reports(ledger: Ledger, artefacts: Artefacts, run_ids: Iterable[str]) -> Iterator[str]:
    """A sentence for each report that is not the one which the run has stored; of a run without documents here none."""
    for run_id in run_ids:
        recorded = ledger.facts(run_id, REPORTS)
        if not recorded or not artefacts.has(run_id):
            continue
        for name, digest in recorded[-1].content.items():
            reference = artefacts.find(run_id, name)
            if reference is None:
                yield f"{name} of run {run_id} was removed."
            elif reference.sha256 in {fact.content.get(name) for fact in recorded[:-1]} - {digest}:
                yield f"{name} of run {run_id} is an earlier one than the last that the run has stored."
            elif reference.sha256 != digest:
                yield f"{name} of run {run_id} was altered."


def _ids(run: Run) -> list[str]:
    return [recorded.run_id for recorded in run.ledger.runs_below(run.id)]


def _not_here(evidence: Evidence, run: Run) -> str:
    """Why the ledger here is not the one to compare with; empty if it is."""
    if evidence.ledger and evidence.ledger != identity_of(run.ledger.engine):
        return "the ledger here is another one than it was made from"
    if not evidence.ledger and run.ledger.run(run.id) is None:
        return "the ledger here has no such run"
    return ""


def _of_reports(evidence: Evidence) -> Iterator[str]:
    """Each report against the digest that the file has of it, newest last."""
    digests = {str(content["run_id"]): content.get(DOCUMENT) for content in _contents(evidence, DIGESTS)}
    for content in _contents(evidence, REPORT):
        run_id = str(content["run_id"])
        if run_id in digests and sha256(document_bytes(content.get("report"))).hexdigest() != digests[run_id]:
            yield f"The report of run {run_id} is not the one that the run has stored last."


def _contents(evidence: Evidence, kind: str) -> list[JsonObject]:
    return [content for content in evidence.of(kind) if isinstance(content, dict)]


def _against_ledger(evidence: Evidence, run: Run, now: Iterable[Record]) -> list[str]:
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
    recorded = {_key(record): record for record in now if record.kind not in (ARTEFACT, REPORT)}
    known = {*recorded, *((record.kind, "", content_digest(record.content)) for record in recorded.values())}
    in_file = {_key(record) for record in evidence.records}
    for position, record in enumerate(evidence.records, 1):
        if record.kind not in (ARTEFACT, REPORT) and _key(record) not in known and (record.audit or record.kind != RUN):
            problems.append(f"Record {position} ({record.kind}) is not in the ledger.")
    then = {(entry.run_id, entry.content) for entry in entries_of(engine, _ids(run)) if entry.number <= number}
    for key, record in recorded.items():
        run_id = _run_id(record)
        if record.audit and (run_id, record.audit) in then and key not in in_file:
            problems.append(f"The ledger has a record ({record.kind}) of run {run_id} from before that the file lacks.")
    return problems


def _key(record: Record) -> tuple[str, str, str]:
    return record.kind, record.audit, content_digest(record.content)


def _run_id(record: Record) -> str:
    return str(record.content["run_id"]) if isinstance(record.content, dict) else ""


def _documents_left_out(evidence: Evidence, run: Run, now: Iterable[Record]) -> str:
    """Why the stored documents are not compared: a run that is not over writes them, also without a record."""
    states = [str(content["state"]) for content in _contents(evidence, RUN) if content["run_id"] == run.id]
    later = any(entry.number > evidence.audit_number for entry in entries_of(run.ledger.engine, _ids(run)))
    if later:
        return "its documents are not compared, as the run has gone on since: make the evidence again"
    if not states or states[-1] not in _OVER:
        return "its documents are not compared, as the run had not succeeded"
    if not any(record.kind == ARTEFACT for record in now):
        return "its documents are not in the artefact store here"
    return ""


_OVER = ("succeeded", "undone")


def _against_documents(evidence: Evidence, now: Iterable[Record]) -> Iterator[str]:
    """A sentence for each document of the run that is not the one which it was when this was made."""
    stored = {_key(record) for record in now}
    for position, record in enumerate(evidence.records, 1):
        if record.kind == ARTEFACT and isinstance(record.content, dict) and _key(record) not in stored:
            what = f"{record.content['name']} of run {record.content['run_id']}"
            yield f"Record {position} ({ARTEFACT}): {what} was replaced or removed since this was made."
