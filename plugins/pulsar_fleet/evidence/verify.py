"""Verify an evidence file: with itself, and with the records that it was made from where they can be reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.evidence.collect import ARTEFACT, DIGESTS, REPORT, ledger_and_artefacts
from pulsar_fleet.evidence.document import Evidence, Record
from pulsar_fleet.evidence.page import evidence_in, evidence_page
from pulsar_fleet.ledger.artefacts import Artefacts, json_bytes
from pulsar_fleet.ledger.audit import (
    CHANGE,
    FACT,
    INTENT,
    PHASE,
    RUN,
    VERDICT,
    AuditEntry,
    AuditResult,
    check_chain,
    content_digest,
    entries_of,
    entry_at,
    identity_of,
    last_entry,
)
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.page import DOCUMENT, REPORTS


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
    if problems:
        return VerifiedEvidence(evidence=evidence, compared=False, problems=tuple(problems))
    problems += [*_of_contents(evidence), *_of_reports(evidence)]
    run = Run(evidence.run_id, run_of.ledger, run_of.artefacts)
    if left_out := _not_here(evidence, run):
        return VerifiedEvidence(evidence=evidence, compared=False, problems=tuple(problems), left_out=left_out)
    ids = [recorded.run_id for recorded in run.ledger.runs_below(run.id)]
    entries, now = entries_of(run.ledger.engine, ids), [*ledger_and_artefacts(run)]
    problems += _against_ledger(evidence, run, entries, now)
    left_out = _documents_left_out(evidence, run, entries, now)
    if not left_out:
        problems += _against_documents(evidence, now)
    problems += _altered_reports(run.ledger, run.artefacts, ids)
    return VerifiedEvidence(evidence=evidence, compared=True, problems=tuple(problems), left_out=left_out)


def audit_ledger(ledger: Ledger) -> tuple[AuditResult, str]:
    """Check the whole audit chain, and the reports in the artefact store; and why reports were not compared, if any."""
    result, problems = check_chain(ledger.engine), list[str]()
    try:
        artefacts, run_ids = Artefacts.open(), ledger.runs_with_facts(REPORTS)
        problems += _altered_reports(ledger, artefacts, run_ids)
        absent = sum(not artefacts.has(run_id) for run_id in run_ids)
    except FleetError as error:
        left_out = f"The reports were not compared. {error}"
    else:
        of_runs = counted(absent, "run")
        left_out = f"The artefact store here has nothing of {of_runs}: these reports were not compared."
        left_out = left_out if absent else ""
    return replace(result, problems=(*result.problems, *problems)), left_out


def _altered_reports(ledger: Ledger, artefacts: Artefacts, run_ids: Iterable[str]) -> Iterator[str]:
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


def _not_here(evidence: Evidence, run: Run) -> str:
    """Why the ledger here is not the one to compare with; empty if it is."""
    engine = run.ledger.engine
    if entry_at(engine, evidence.audit_number) == evidence.audit_head:
        return ""
    if evidence.ledger and evidence.ledger != identity_of(engine):
        return "the ledger here is another one than it was made from"
    if not evidence.ledger and run.ledger.run(run.id) is None:
        return "the ledger here has no such run"
    return ""


def _of_contents(evidence: Evidence) -> Iterator[str]:
    """Each record against the digest that the ledger's chain has of it."""
    for position, record in enumerate(evidence.records, 1):
        if record.audit and content_digest(record.content) != record.audit:
            yield f"Record {position} ({record.kind}) is not in the ledger: its content has another digest."


def _of_reports(evidence: Evidence) -> Iterator[str]:
    """Each report against the digests that the file has of the run's documents."""
    stored, known = dict[str, str](), dict[str, set[str]]()
    for content in _contents(evidence, ARTEFACT):
        if content["name"] == DOCUMENT:
            stored[str(content["run_id"])] = str(content["sha256"])
    for content in _contents(evidence, DIGESTS):
        known.setdefault(str(content["run_id"]), set()).add(str(content["content"].get(DOCUMENT)))
    shown = {str(content["run_id"]): content for content in _contents(evidence, REPORT)}
    for run_id in sorted({*stored, *known, *shown}):
        if run_id not in shown:
            yield f"The file has no report of run {run_id}, which has stored one."
        elif "text" in shown[run_id] and run_id not in stored | known:
            # Of an early release.
            continue
        elif sha256(json_bytes(shown[run_id].get("report"))).hexdigest() != stored.get(run_id) or stored[
            run_id
        ] not in known.get(run_id, {stored[run_id]}):
            yield f"The report of run {run_id} is not the one that the run has stored."


def _contents(evidence: Evidence, kind: str) -> list[JsonObject]:
    return [content for content in evidence.of(kind) if isinstance(content, dict)]


def _against_ledger(evidence: Evidence, run: Run, entries: Sequence[AuditEntry], now: Iterable[Record]) -> list[str]:
    engine, number = run.ledger.engine, evidence.audit_number
    problems, last = [*check_chain(engine).problems], last_entry(engine)[0]
    if number > last:
        problems.append(
            f"The ledger's audit chain ends with entry {last}, and had entry {number} when this was made: the ledger "
            "was restored from an older copy, or entries were removed."
        )
    elif entry_at(engine, number) != evidence.audit_head:
        problems.append(f"The ledger's audit chain has another entry {number} than when this was made.")
    if evidence.ledger and evidence.ledger != identity_of(engine):
        problems.append("The file names another ledger than the one whose entry it has.")
    then = [entry for entry in entries if entry.number <= number]
    return [*problems, *_of_chain(evidence, then), *_of_older_records(evidence, run, then, now)]


def _of_chain(evidence: Evidence, then: Sequence[AuditEntry]) -> Iterator[str]:
    """The records with an entry of the chain, in their order: a run's states, rows of each kind, newest verdicts."""
    expected = list[tuple[str, str, str]]()
    for run_id in sorted({entry.run_id for entry in then}):
        own = [entry for entry in then if entry.run_id == run_id]
        for kind in (RUN, INTENT, CHANGE, PHASE, FACT):
            expected += [(kind, run_id, entry.content) for entry in own if entry.kind == kind]
        newest = {entry.key: entry.content for entry in own if entry.kind == VERDICT}
        expected += [(VERDICT, run_id, newest[scope]) for scope in sorted(newest)]
    found = [
        (_LEDGER_KINDS.get(record.kind, record.kind), _run_id(record), record.audit) for record in evidence.records
    ]
    positions = [position for position, record in enumerate(evidence.records) if record.audit]
    left = Counter(expected)
    for position in positions:
        if left[found[position]] == 0:
            yield f"Record {position + 1} ({evidence.records[position].kind}) is not in the ledger."
        left[found[position]] -= 1
    for (kind, run_id, _), count in left.items():
        if count > 0:
            yield f"The ledger has a record ({kind}) of run {run_id} from before that the file lacks."
    if not any(left.values()) and [found[position] for position in positions] != expected:
        yield "The records of the file are in another order than those of the ledger."


_LEDGER_KINDS = {"approval": FACT, DIGESTS: FACT}


def _of_older_records(evidence: Evidence, run: Run, then: Sequence[AuditEntry], now: Iterable[Record]) -> Iterator[str]:
    """The records that are older than the chain, and answers of an earlier release, which are in the store."""
    chained = {entry.run_id for entry in then if entry.kind == RUN}
    has_documents = run.artefacts.has(run.id)
    recorded = {_key(record) for record in now if not record.audit and record.kind not in (ARTEFACT, REPORT)}
    # An answer of an earlier release may be a fact by now.
    answers = [record.content["content"] for record in now if record.audit and _is_answer(record)]
    requests = {_run_id(record): _without_state(record.content) for record in now if record.kind == RUN}
    in_file = {_key(record) for record in evidence.records if not record.audit}
    for position, record in enumerate(evidence.records, 1):
        if record.audit or record.kind in (ARTEFACT, REPORT):
            continue
        run_id, content = _run_id(record), record.content
        if record.kind == RUN:
            known = run_id not in chained and requests.get(run_id) == _without_state(content)
        elif record.kind == "approval" and isinstance(content, dict):
            answer = {name: value for name, value in content.items() if name != "run_id"}
            known = _key(record) in recorded or answer in answers or not has_documents
        else:
            known = _key(record) in recorded
        if not known:
            yield f"Record {position} ({record.kind}) is not in the ledger."
    for kind, digest in sorted(recorded - in_file):
        if kind not in (RUN, "approval"):
            yield f"The ledger has a record ({kind}, {digest[:12]}…) from before that the file lacks."


def _is_answer(record: Record) -> bool:
    return record.kind == "approval" and isinstance(record.content, dict)


def _without_state(content: Json) -> Json:
    return {name: value for name, value in content.items() if name != "state"} if isinstance(content, dict) else None


def _key(record: Record) -> tuple[str, str]:
    return record.kind, content_digest(record.content)


def _run_id(record: Record) -> str:
    return str(record.content.get("run_id")) if isinstance(record.content, dict) else ""


def _documents_left_out(evidence: Evidence, run: Run, entries: Sequence[AuditEntry], now: Iterable[Record]) -> str:
    """Why the stored documents are not compared: a run that is not over writes them, also without a record."""
    states = [str(content.get("state")) for content in _contents(evidence, RUN) if content.get("run_id") == run.id]
    later = any(entry.number > evidence.audit_number for entry in entries)
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
    stored = {_key(record): record.content for record in now if record.kind == ARTEFACT}
    in_file = {_key(record): record.content for record in evidence.records if record.kind == ARTEFACT}
    for key, content in in_file.items():
        if key not in stored and isinstance(content, dict):
            yield f"{content['name']} of run {content['run_id']} was replaced or removed since this was made."
    names = {(content["run_id"], content["name"]) for content in in_file.values() if isinstance(content, dict)}
    for content in stored.values():
        if isinstance(content, dict) and (content["run_id"], content["name"]) not in names:
            yield f"The store has {content['name']} of run {content['run_id']}, which the file lacks."
