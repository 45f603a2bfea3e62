"""Collect the evidence of a run from the ledger and the artefact store; nothing else is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.evidence.document import Evidence, Record
from pulsar_fleet.ledger.approval import APPROVAL, read_approval
from pulsar_fleet.ledger.audit import (
    CHANGE,
    FACT,
    INTENT,
    PHASE,
    RUN,
    VERDICT,
    audited_rows,
    entries_of,
    identity_of,
    last_entry,
)
from pulsar_fleet.ledger.rows import RecordedRun, utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.page import DOCUMENT

ARTEFACT, DIGESTS, REPORT = "artefact", "digests", "report"


def collect(run: Run, *, now: datetime | None = None) -> Evidence:
    """The evidence of a run and of the runs that it recorded below its own name; a second call adds what came since.

    :raises NotFound: the ledger has no such run.
    """
    run.ledger.require_run(run.id)
    last = last_entry(run.ledger.engine)
    made_at = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    ledger = identity_of(run.ledger.engine)
    return Evidence.chain(run.id, made_at, last, ledger_and_artefacts(run), ledger=ledger)


def ledger_and_artefacts(run: Run) -> Iterator[Record]:
    """The records of a run and of the runs below it, as they are now."""
    for recorded in run.ledger.runs_below(run.id):
        one = Run(recorded.run_id, run.ledger, run.artefacts)
        yield from _ledger_records(one, recorded)
        yield from _artefact_records(one)


def _ledger_records(run: Run, recorded: RecordedRun) -> Iterator[Record]:
    """What the ledger has of one run: its request and states, approvals, writes, phases, digests and verdicts."""
    entries = entries_of(run.ledger.engine, [run.id])
    # Evidence of an earlier release has none.
    request = {name: value for name, value in _plain(asdict(recorded)).items() if name != "requested_by" or value}
    states = [entry for entry in entries if entry.kind == RUN]
    yield from (Record(kind=RUN, content={**request, "state": entry.key}, audit=entry.content) for entry in states)
    if not states:
        yield Record(kind=RUN, content=request)
    for kind in (INTENT, CHANGE, PHASE):
        rows = audited_rows(run.ledger.engine, run.id, kind)
        yield from (Record(kind=kind, content=_plain(row), audit=digest) for row, digest in rows)
    for row, digest in audited_rows(run.ledger.engine, run.id, FACT):
        yield Record(kind="approval" if row["kind"] == APPROVAL else DIGESTS, content=_plain(row), audit=digest)
    verdicts = {entry.key: entry.content for entry in entries if entry.kind == VERDICT}
    for verdict in run.ledger.verdicts(run.id):
        yield Record(kind=VERDICT, content=_plain(asdict(verdict)), audit=verdicts.get(verdict.scope, ""))


def _artefact_records(run: Run) -> Iterator[Record]:
    """The report with its content; of every document name, size and digest."""
    if not run.ledger.facts(run.id, APPROVAL) and (approval := read_approval(run)):
        # Of an earlier release.
        yield Record(kind="approval", content={"run_id": run.id, **approval})
    if report := run.stored(DOCUMENT):
        yield Record(kind=REPORT, content={"run_id": run.id, "report": report})
    for name, reference in run.artefacts.files(run.id):
        content = {"run_id": run.id, "name": name, "sha256": reference.sha256, "bytes": reference.size}
        yield Record(kind=ARTEFACT, content=content)


def _plain(row: Mapping[str, Any]) -> dict[str, Json]:
    """A record of the ledger, times as ISO 8601 in UTC."""
    document: dict[str, Json] = json.loads(json.dumps(row, default=_time))
    return document


def _time(value: datetime) -> str:
    return utc(value).astimezone(UTC).isoformat()
