"""The answers of the persons who approved or rejected a plan or a wave, in the ledger, and who may approve."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
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
    _keep_earlier(run)
    run.ledger.record_fact(run.id, APPROVAL, {"about": about, "answer": answer, "by": by, "at": at})
    log.info("%s: %s by %s", about, answer, by)


def forget_approval(run: Run) -> None:
    """Of a run that plans again: the answer was to another plan."""
    if approval := read_approval(run):
        _keep_earlier(run)
        void = {
            "answer": FORGOTTEN,
            "by": "the run, which plans again",
            "at": datetime.now(UTC).isoformat("T", "seconds"),
        }
        run.ledger.record_fact(run.id, APPROVAL, {**approval, **void})


def read_approval(run: Run) -> JsonObject | None:
    """The answer that counts: `about`, `answer`, `by`, `at`; None if there is no answer yet, or to an earlier plan."""
    if recorded := run.ledger.facts(run.id, APPROVAL):
        newest = recorded[-1].content
        return None if newest["answer"] == FORGOTTEN else newest
    return _of_earlier_release(run)


def _of_earlier_release(run: Run) -> JsonObject | None:
    recorded = run.ledger.run(run.id)
    if recorded is None or recorded.requested_by is not None:
        # A file that appears in the store of a run of this release approves nothing.
        return None
    answer = run.stored(_OF_EARLIER_RELEASES)
    return dict(answer) if isinstance(answer, dict) else None


def _keep_earlier(run: Run) -> None:
    """The answer that an earlier release has stored becomes the first fact."""
    if not run.ledger.facts(run.id, APPROVAL) and (earlier := _of_earlier_release(run)):
        run.ledger.record_fact(run.id, APPROVAL, earlier)


APPROVERS_VARIABLE = "PULSAR_FLEET_APPROVERS"
OTHER_APPROVER_VARIABLE = "PULSAR_FLEET_OTHER_APPROVER"
AUTO_APPROVE_VARIABLE = "PULSAR_FLEET_AUTO_APPROVE"
WAIVERS_VARIABLE = "PULSAR_FLEET_WAIVERS"


@dataclass(frozen=True, slots=True)
class ApprovalRules:
    """Who may approve in this installation, whatever a form or an option says.

    :param approvers: users who may approve; empty: everyone whom Airflow lets answer.
    :param other_person: who asks for a run may not approve it.
    :param auto_approve: whether a run may be approved by its own setting, or by `--yes`.
    :param waivers: users whose runs may waive findings; None: everyone's.
    """

    approvers: frozenset[str] = frozenset()
    other_person: bool = False
    auto_approve: bool = True
    waivers: frozenset[str] | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Those of the environment variables.

        :raises InvalidRequest: one has a value that is none: nothing is approved by a mistake in writing.
        """
        waivers = environment.get(WAIVERS_VARIABLE)
        approvers = environment.get(APPROVERS_VARIABLE)
        if approvers is not None and not _users(approvers):
            raise InvalidRequest(f"{APPROVERS_VARIABLE} names no user: name those who may approve, or remove it.")
        return cls(
            approvers=_users(approvers or ""),
            other_person=_flag(environment, OTHER_APPROVER_VARIABLE, default=False),
            auto_approve=_flag(environment, AUTO_APPROVE_VARIABLE, default=True),
            waivers=None if waivers is None else _users(waivers) - {"nobody"},
        )

    def require_request(self, conf: Mapping[str, Any], requested_by: str) -> None:
        """Refuse settings of a run that are forbidden to who asks for it.

        :raises PreconditionFailed: it would approve itself, or waives findings.
        """
        if conf.get("auto_approve") and not self.auto_approve:
            raise PreconditionFailed(
                f"'auto_approve' is forbidden here by {AUTO_APPROVE_VARIABLE}: leave it off, and a person is asked."
            )
        if conf.get("waivers") and self.waivers is not None and not _names(requested_by) & self.waivers:
            raise PreconditionFailed(
                f"{requested_by} may not waive findings here, by {WAIVERS_VARIABLE}: remove 'waivers', or let "
                f"{_or(self.waivers)} start the run."
            )

    def require_approver(self, names: Collection[str], requested_by: str | None) -> None:
        """Refuse an approval by a person who may not give it; anyone may reject.

        :param names: id and name of the person.
        :raises PreconditionFailed: another person must approve.
        """
        person = ", ".join(dict.fromkeys(names))
        if self.approvers and not self.approvers & {*names}:
            raise PreconditionFailed(
                f"{person} may not approve here, by {APPROVERS_VARIABLE}: let {_or(self.approvers)} answer."
            )
        if self.other_person and (requested_by is None or _names(requested_by) & {*names}):
            asked = (
                "has asked for this run" if requested_by else "may have asked for this run, whose requester is unknown,"
            )
            raise PreconditionFailed(
                f"{person} {asked} and may not approve it, by {OTHER_APPROVER_VARIABLE}: let another person answer"
                f"{'' if requested_by else ', of a new run'}."
            )

    def require_unasked(self, by: str) -> None:
        """Refuse an approval without a question.

        :param by: what gives it, such as `--yes`.
        :raises PreconditionFailed: a person must be asked.
        """
        if not self.auto_approve:
            raise PreconditionFailed(
                f"{by} is forbidden here by {AUTO_APPROVE_VARIABLE}: start the run without it, and answer the question."
            )


def _users(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def _flag(environment: Mapping[str, str], name: str, *, default: bool) -> bool:
    values = {"": default, "true": True, "1": True, "false": False, "0": False}
    if (value := environment.get(name, "").strip().lower()) not in values:
        raise InvalidRequest(f"{name} is {value!r}: set it to true or false.")
    return values[value]


def _names(requested_by: str) -> set[str]:
    """The user who asked, also of a terminal: `anna on host`."""
    return {requested_by, requested_by.partition(" on ")[0]}


def _or(users: Collection[str]) -> str:
    return " or ".join(sorted(users)) or "nobody"
