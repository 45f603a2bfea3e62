"""Generate the tables of docs/watch_replication.md about states and causes from the code."""

from __future__ import annotations

from collections.abc import Mapping

from docs.tools.generated_parts import with_parts

from pulsar_fleet.replication.doctor.causes.catalogue import CATALOGUE, Cause
from pulsar_fleet.replication.doctor.model import Severity, State

_NAMES = {"source": "the source", "target": "the target", "resource": "it"}
_STATES = {
    State.HEALTHY: "connected, and what it has not sent yet takes less than `behind_seconds`",
    State.BEHIND: "connected, and it sends, but the backlog takes longer; the forecast is by both readings",
    State.STALLED: "connected, with a backlog of which the target confirmed no entry between two readings",
    State.DISCONNECTED: "not connected",
    State.MISSING: "a list of clusters asks for it, and the topic does not have it",
    State.UNKNOWN: "its topic or its cursor could not be read; never counted as healthy",
}


def with_causes(page: str) -> str:
    """The page with an up-to-date table between each pair of markers; a page without markers stays unchanged."""
    return with_parts(page, _tables())


def _tables() -> Mapping[str, str]:
    states = ["| state | meaning |", "| --- | --- |"]
    states += [f"| `{state}` | {_STATES[state]} |" for state in State]
    causes = ["| diagnosis | kind | what is wrong | consequence | remedy |", "| --- | --- | --- | --- | --- |"]
    order = list(Severity)
    rows = sorted(CATALOGUE.values(), key=lambda cause: order.index(cause.severity))
    return {"states": "\n".join(states), "causes": "\n".join([*causes, *map(_cause, rows)])}


def _cause(cause: Cause) -> str:
    sent = " The tool sends the calls on request." if cause.automatic else ""
    consequence, remedy = (_sentence(text.format(**_NAMES)) for text in (cause.consequence, cause.remedy))
    return f"| `{cause.id}` | {cause.severity} | {cause.meaning} | {consequence} | {remedy}{sent} |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
