"""Why a run failed: the tasks that failed by themselves, with their reasons (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.report.document import Outcome, Report, texts

_LONGEST = 300


def reason_of(error: object) -> str:
    """The sentence of an expected failure; of a defect its type too."""
    return str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"


def failure_line(failed: Mapping[str, str]) -> str:
    """`Failed in cut_over: green answered 503 …`.

    :param failed: task that failed by itself → its reason, empty if that is only in its log.
    """
    names, first = listed(failed), next(iter(failed), "")
    reason = next(iter(failed.get(first, "").splitlines()), "")
    shown = reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1]}…"
    return f"Failed in {names}{f': {shown}' if shown else ''}"


def failure_details(failed: Mapping[str, str]) -> str:
    """The whole reasons that do not fit into the line, and where a missing one is; starts with a blank or a line."""
    parts = []
    if unknown := [name for name, reason in failed.items() if not reason]:
        parts.append(f" The reason is at the end of the log of {listed(unknown)}.")
    rest = {name: reason for name, reason in failed.items() if "\n" in reason or len(reason) > _LONGEST}
    rest |= {name: reason for name, reason in list(failed.items())[1:] if reason}
    parts += [f"\n\n`{name}`:\n\n```\n{reason}\n```" for name, reason in rest.items()]
    return "".join(parts)


def failure_to_do(failed: Mapping[str, str]) -> tuple[str, ...]:
    """What a person does about a failure."""
    return (
        f"remove the reason; then clear {listed(failed)} in Airflow, or continue on the command line as it printed.",
    )


def watch_report(failed: Mapping[str, str], fine: str) -> Report:
    """The report of a watch: what it has found, or that it has found nothing.

    :param fine: as a sentence.
    """
    if not failed:
        return Report(outcome=Outcome.SUCCEEDED, headline=fine)
    return Report(
        outcome=Outcome.FAILED,
        headline=failure_line(failed),
        to_do=("do what the reason says; the next run looks again.",),
        body=texts(failure_details(failed).strip()),
    )


def failed_report(failed: Mapping[str, str], state: str) -> Report:
    """The report of a run that failed before it had a result.

    :param state: what was not done, as a sentence.
    """
    return Report(
        outcome=Outcome.FAILED,
        headline=failure_line(failed),
        to_do=failure_to_do(failed),
        body=(f"{state}{failure_details(failed)}",),
    )
