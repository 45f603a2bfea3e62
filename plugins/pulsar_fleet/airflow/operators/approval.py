"""Operators that wait for a person to approve a plan or a wave."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context

from pulsar_fleet.airflow.run import DEFAULT_ARGS, current_run, retry_what_can_heal
from pulsar_fleet.cluster.text import counted

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject


class PlanApprovalOperator(ApprovalOperator):
    """Wait for a person to approve a plan, without a worker slot; *Reject* skips the next tasks and changes nothing.

    With `auto_approve` or an empty plan no person is asked. A dry run ends here; blockers fail the run. Without an
    answer within `approval_hours` the plan is rejected. The answer is recorded in the ledger; one of a person who may
    not approve here fails the task, and cleared it asks again.

    :param planned: result of the planning task: `id`, `about`, `headline`, `text` and `findings` (references),
        `changes`, `blockers`, `warnings`, and `refusal`, a reason to stop that is no finding.
    """

    template_fields: Collection[str] = (*ApprovalOperator.template_fields, "planned")

    def __init__(self, *, planned: Any, **kwargs: Any) -> None:
        # Airflow would take it as the time for an answer.
        super().__init__(subject="A plan waits for approval", defaults=self.REJECT, execution_timeout=None, **kwargs)
        self.execution_timeout = DEFAULT_ARGS["execution_timeout"]
        self.planned: JsonObject = planned

    @retry_what_can_heal
    def execute(self, context: Context) -> Any:
        """Answer at once if no person is needed, else ask."""
        from pulsar_fleet.cluster.errors import PreconditionFailed
        from pulsar_fleet.ledger.approval import ApprovalRules
        from pulsar_fleet.ledger.artefacts import Reference
        from pulsar_fleet.preflight.findings import Finding, refusal_text

        params, headline = context["params"], self.planned["headline"]
        run = current_run(context)
        if params["dry_run"]:
            raise AirflowSkipException(f"Dry run: {headline.rstrip('.')}. Nothing has been changed.")
        if self.planned["blockers"]:
            documents = run.artefacts.read_json(Reference.from_json(self.planned["findings"]))
            findings = tuple(map(Finding.from_json, documents))
            raise PreconditionFailed(refusal_text(findings, "Nothing has been changed."))
        if refusal := self.planned.get("refusal"):
            raise PreconditionFailed(refusal)
        if params["auto_approve"] and self.planned["changes"]:
            ApprovalRules.of().require_unasked("'auto_approve'")
        if params["auto_approve"] or not self.planned["changes"]:
            return self._store(context, {"chosen_options": [self.APPROVE], "responded_by_user": "the run's conf"})
        self.subject, self.body = headline, self._text(context)
        if approvers := sorted(ApprovalRules.of().approvers):
            self.assigned_users = [{"id": user, "name": user} for user in approvers]
        self.response_timeout = timedelta(hours=params["approval_hours"])
        return super().execute(context)

    @retry_what_can_heal
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Store the answer, then continue or skip the next tasks."""
        if "error" not in event:
            # Before the call below, which raises when it skips the next tasks.
            self._store(context, event)
        super().execute_complete(context, event)

    def _text(self, context: Context) -> str:
        from pulsar_fleet.ledger.artefacts import Reference

        text = current_run(context).artefacts.read(Reference.from_json(self.planned["text"])).decode()
        return f"{counted(self.planned['warnings'], 'warning')}.\n\n{text}"

    def _store(self, context: Context, answer: Mapping[str, Any]) -> None:
        store_answer(context, self.planned.get("about") or f"plan {self.planned['id']}", answer)


def store_answer(context: Context, about: str, answer: Mapping[str, Any]) -> None:
    """Record answer, author and time.

    :raises PreconditionFailed: the author may not approve here.
    """
    from pulsar_fleet.ledger.approval import APPROVED, ApprovalRules, store_approval

    who, run = answer.get("responded_by_user") or {}, current_run(context)
    by = who if isinstance(who, str) else str(who.get("name") or who.get("id"))
    at = str(answer.get("responded_at") or "")
    if APPROVED in answer["chosen_options"] and not isinstance(who, str):
        names = [str(who[key]) for key in ("id", "name") if who.get(key)]
        ApprovalRules.of().require_approver(names, run.requester)
    store_approval(run, about, ", ".join(answer["chosen_options"]), by=by, at=at)
