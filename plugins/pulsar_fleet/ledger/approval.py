"""The answer of the person who approved or rejected a plan or a wave, stored with the run."""

from __future__ import annotations

import logging

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run

log = logging.getLogger(__name__)

APPROVED = "Approve"
REJECTED = "Reject"
_APPROVAL = "approval.json"


def store_approval(run: Run, about: str, answer: str, *, by: str, at: str = "") -> None:
    """Store answer, author and time in the run's artefacts; a second call replaces them."""
    run.artefacts.write_json(run.id, _APPROVAL, {"about": about, "answer": answer, "by": by, "at": at})
    log.info("%s: %s by %s", about, answer, by)


def forget_approval(run: Run) -> None:
    """Of a run that plans again: the answer was to another plan."""
    run.artefacts.write_json(run.id, _APPROVAL, None)


def read_approval(run: Run) -> JsonObject | None:
    """The stored answer of a run: `about`, `answer`, `by`, `at`; None if there is no answer yet."""
    answer = run.stored(_APPROVAL)
    return dict(answer) if isinstance(answer, dict) else None
