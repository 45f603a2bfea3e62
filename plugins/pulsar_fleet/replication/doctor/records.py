"""What a run of the doctor stored: its examination, and the one after a remedy (client of the artefact store)."""

from __future__ import annotations

from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.doctor.model import Examination
from pulsar_fleet.replication.doctor.remedies import RemedyResult
from pulsar_fleet.replication.doctor.text import UNCHANGED

_EXAMINATION = "examination.json"
_REMEDY = "remedy.json"


def store_examination(run: Run, examination: Examination) -> Reference:
    """Store the examination of a run; a second call replaces it, and what an earlier try has healed."""
    if run.stored(_REMEDY):
        run.artefacts.write_json(run.id, _REMEDY, None)
    return run.artefacts.write_json(run.id, _EXAMINATION, examination.to_json())


def store_remedy(run: Run, result: RemedyResult) -> None:
    """Store what was sent, with the examinations before and after; a second call replaces it."""
    run.artefacts.write_json(run.id, _REMEDY, result.to_json())


def last_examination(run: Run) -> tuple[Examination, str] | None:
    """The last examination of a run and what was changed before it, as a sentence; None before the first."""
    if remedy := run.stored(_REMEDY):
        result = RemedyResult.from_json(remedy)
        return result.after, result.changed()
    stored = run.stored(_EXAMINATION)
    return (Examination.from_json(stored), UNCHANGED) if stored else None
