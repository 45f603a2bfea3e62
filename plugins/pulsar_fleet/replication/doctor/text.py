"""An examination as text for a terminal (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

from pulsar_fleet.cluster.text import FEW, counted, listed
from pulsar_fleet.replication.doctor.model import Examination, Severity, State

MOST_ROWS = 50


UNCHANGED = "Nothing has been changed."


def headline(examination: Examination, changed: str = UNCHANGED) -> str:
    """Whether something is wrong, in one sentence, what was examined, and what was changed before."""
    total = sum(examination.counts.values())
    examined = (
        f"{' and '.join(examination.clusters)}: {counted(examination.namespaces, 'namespace')}, "
        f"{counted(total, 'replicator')} examined in {examination.seconds:.0f} s"
    )
    counts = ", ".join(f"{examination.counts[state]} {state}" for state in State if examination.counts.get(state))
    faults, warnings = (len(examination.by(severity)) for severity in (Severity.FAULT, Severity.WARNING))
    if examination.has_fault:
        first = f"Replication has {counted(faults, 'fault')}, {counted(warnings, 'warning')}."
    elif warnings:
        first = f"Replication works, with {counted(warnings, 'warning')}."
    else:
        first = "Replication works." if examination.is_complete else "No fault was detected; not everything was read."
    return f"{first} {examined}{f' ({counts})' if counts else ''}. {changed}"


def examination_text(examination: Examination, changed: str = UNCHANGED) -> str:
    """For a terminal: whether something is wrong, each cause with its remedy, replicators with numbers."""
    return "\n".join(_lines(examination, changed))


def _lines(examination: Examination, changed: str) -> Iterator[str]:
    yield headline(examination, changed)
    for connection, reason in sorted(examination.outages.items()):
        yield f"FAULT   {connection} does not answer: {reason}"
    for id_, group in groupby(examination.diagnoses, attrgetter("id")):
        same = list(group)
        for diagnosis in same[:FEW]:
            yield ""
            yield diagnosis.text()
        if any(diagnosis.automatic for diagnosis in same):
            yield f"        This tool sends these calls with --remedy {id_}"
        if len(same) > FEW:
            more = [f"{diagnosis.clusters} {diagnosis.resource}" for diagnosis in same[FEW:]]
            yield f"        The same: {listed(more, 10)}; the JSON document has them all"
    yield from _rows(examination)
    if examination.unread:
        yield f"Unknown, because it could not be read: {listed(examination.unread, 10)}"


def _rows(examination: Examination) -> Iterator[str]:
    """The replicators that are not healthy, and whether applications that were moved can return."""
    rows = [row.text() for row in examination.replicators[:MOST_ROWS]]
    if more := len(examination.replicators[MOST_ROWS:]):
        rows.append(f"… and {counted(more, 'more replicator')}, all in the JSON document")
    rows += [row.text() for row in examination.returns]
    yield from ["", *rows] if rows else ()
