"""The answers of the persons who approved or rejected a plan or a wave, in the ledger."""

from __future__ import annotations

import logging

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run

log = logging.getLogger(__name__)

APPROVED = "Approve"
REJECTED = "Reject"
FORGOTTEN = "Void"
"""What follows an answer whose plan is made again."""
APPROVAL = "approval"
_OF_EARLIER_RELEASES = "approval.json"


def store_approval(run: Run, about: str, answer: str, *, by: str, at: str = "") -> None:
    """Record answer, author and time; the newest one counts."""
    run.ledger.record_fact(run.id, APPROVAL, {"about": about, "answer": answer, "by": by, "at": at})
    log.info("%s: %s by %s", about, answer, by)


def forget_approval(run: Run) -> None:
    """Of a run that plans again: the answer was to another plan."""
    if approval := read_approval(run):
        run.ledger.record_fact(run.id, APPROVAL, {**approval, "answer": FORGOTTEN, "by": "the run, which plans again"})


def read_approval(run: Run) -> JsonObject | None:
    """The answer that counts: `about`, `answer`, `by`, `at`; None if there is no answer yet, or to an earlier plan."""
    if recorded := run.ledger.facts(run.id, APPROVAL):
        newest = recorded[-1].content
        return None if newest["answer"] == FORGOTTEN else newest
    answer = run.stored(_OF_EARLIER_RELEASES)
    return dict(answer) if isinstance(answer, dict) else None
