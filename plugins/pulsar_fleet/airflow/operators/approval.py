"""Ask a person before a plan is carried out: once, with everything in front of them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_fleet.airflow.run import current_run

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run

log = logging.getLogger(__name__)

APPROVAL = "approval.json"
"""Name of the artefact that says who approved what."""


class PlanApprovalOperator(ApprovalOperator):
    """Wait for a person to approve a plan, without a worker slot; *Reject* skips what follows and changes nothing.

    It asks nobody when the conf says so (`auto_approve`) or nothing is to change; a dry run ends here, and blockers
    end the run. Without an answer within `approval_hours` it is rejected. The answer is kept in the run's artefacts.

    It returns the numbers of the plan's batches, so that the next task can be mapped over them.

    :param planned: what the planning task returned: `headline`, `text` (a reference), `changes`, `blockers`, `batches`.
    """

    template_fields: Collection[str] = (*ApprovalOperator.template_fields, "planned")

    def __init__(self, *, planned: Any, **kwargs: Any) -> None:
        super().__init__(subject="A plan waits for approval", defaults=self.REJECT, **kwargs)
        self.planned: JsonObject = planned

    def execute(self, context: Context) -> Any:
        """Decide at once where no person is needed, else ask."""
        from pulsar_fleet.cluster.errors import PreconditionFailed
        from pulsar_fleet.onboarding.steps import stopping_text

        params, headline = context["params"], self.planned["headline"]
        run = current_run(context)
        if params["dry_run"]:
            raise AirflowSkipException(f"Dry run: {headline} Nothing is changed.")
        if self.planned["blockers"]:
            raise PreconditionFailed(stopping_text(run.artefacts, self.planned))
        if params["auto_approve"] or not self.planned["changes"]:
            return self._keep(context, {"chosen_options": [self.APPROVE], "responded_by_user": "the run's conf"})
        self.subject, self.body = headline, self._text(context)
        self.response_timeout = timedelta(hours=params["approval_hours"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Keep the answer, then go on or skip what follows."""
        if "error" not in event:
            # First of all: skipping what follows ends this method.
            self._keep(context, event)
        super().execute_complete(context, event)
        return list(self.planned["batches"])

    def _text(self, context: Context) -> str:
        from pulsar_fleet.ledger.artefacts import Reference

        text = current_run(context).artefacts.read(Reference.from_json(self.planned["text"])).decode()
        return f"{self.planned['warnings']} warnings.\n\n{text}"

    def _keep(self, context: Context, answer: Mapping[str, Any]) -> list[int]:
        keep_answer(context, f"plan {self.planned['id']}", answer)
        return list(self.planned["batches"])


class WaveApprovalOperator(ApprovalOperator):
    """Wait for a person to approve a wave, without a worker slot; *Reject* skips what follows and changes nothing.

    It asks nobody when the conf says so (`auto_approve`); a dry run ends here. Without an answer within
    `approval_hours` the wave is rejected. The answer is kept in the run's artefacts.

    :param checked: what the task before returned: `headline`, `findings` and `text` (a reference).
    """

    template_fields: Collection[str] = (*ApprovalOperator.template_fields, "checked")

    def __init__(self, *, checked: Any, **kwargs: Any) -> None:
        super().__init__(subject="A wave waits for approval", defaults=self.REJECT, **kwargs)
        self.checked: JsonObject = checked

    def execute(self, context: Context) -> Any:
        """Decide at once where no person is needed, else ask."""
        from pulsar_fleet.ledger.artefacts import Reference

        params = context["params"]
        text = current_run(context).artefacts.read(Reference.from_json(self.checked["text"])).decode()
        self.log.info("%s\n%s", self.checked["headline"], text)
        if params["dry_run"]:
            raise AirflowSkipException("Dry run: every gate was evaluated, nothing is changed.")
        if params["auto_approve"]:
            keep_answer(context, self._about, {"chosen_options": [self.APPROVE], "responded_by_user": "the run's conf"})
            return None
        self.subject, self.body = self.checked["headline"], text
        self.response_timeout = timedelta(hours=params["approval_hours"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Keep the answer, then go on or skip what follows."""
        if "error" not in event:
            # First of all: skipping what follows ends this method.
            keep_answer(context, self._about, event)
        return super().execute_complete(context, event)

    @property
    def _about(self) -> str:
        return f"wave {self.checked['wave']}"


def keep_answer(context: Context, about: str, answer: Mapping[str, Any]) -> None:
    """Note who answered what, and when, in the run's artefacts; again replaces it."""
    run, who = current_run(context), answer.get("responded_by_user") or {}
    kept = {
        "about": about,
        "answer": ", ".join(answer["chosen_options"]),
        "by": who if isinstance(who, str) else str(who.get("name") or who.get("id")),
        "at": str(answer.get("responded_at") or ""),
    }
    run.artefacts.write_json(run.id, APPROVAL, kept)
    log.info("%s: %s by %s", kept["about"], kept["answer"], kept["by"])


def read_approval(run: Run) -> JsonObject | None:
    """Who answered for a run's plan, and what; None if nobody was asked yet."""
    reference = run.artefacts.find(run.id, APPROVAL)
    return dict(run.artefacts.read_json(reference)) if reference else None
