"""Generate the tables of the catalogues in docs/: causes, gates and clients, known defects.

`python -m docs.tools.catalogue_tables` writes those of docs/known_defects.md; docs/tools/settings_tables.py writes the
others. Tests compare the pages.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from docs.tools.generated_parts import with_parts

from pulsar_fleet.cluster.defects.catalogue import DEFECTS
from pulsar_fleet.cluster.defects.model import BrokerDefect, Condition
from pulsar_fleet.cluster.text import with_names
from pulsar_fleet.migration.preflight.client_compatibility import TABLE, Behaviour
from pulsar_fleet.migration.preflight.gates import GATE_CHECKS
from pulsar_fleet.migration.preflight.gates.catalogue import GATES, Gate
from pulsar_fleet.migration.preflight.gates.compatibility import RAISED_TO_BLOCKERS
from pulsar_fleet.preflight.findings import Severity
from pulsar_fleet.preflight.waivers import NOT_WAIVABLE
from pulsar_fleet.replication.doctor.causes.catalogue import CATALOGUE, Cause
from pulsar_fleet.replication.doctor.model import Severity as CauseSeverity
from pulsar_fleet.replication.doctor.model import State

PAGE = "known_defects.md"
_ROLES = {"blue": "blue", "green": "green"}
_SIDES = {"source": "the source", "target": "the target", "resource": "it"}
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
    return with_parts(page, _cause_tables())


def _cause_tables() -> Mapping[str, str]:
    states = ["| state | meaning |", "| --- | --- |"]
    states += [f"| `{state}` | {_STATES[state]} |" for state in State]
    causes = ["| diagnosis | kind | what is wrong | consequence | remedy |", "| --- | --- | --- | --- | --- |"]
    order = list(CauseSeverity)
    rows = sorted(CATALOGUE.values(), key=lambda cause: order.index(cause.severity))
    return {"states": "\n".join(states), "causes": "\n".join([*causes, *map(_cause, rows)])}


def _cause(cause: Cause) -> str:
    sent = " The tool sends the calls on request." if cause.automatic else ""
    consequence, remedy = (_sentence(text.format(**_SIDES)) for text in (cause.consequence, cause.remedy))
    return f"| `{cause.id}` | {cause.severity} | {cause.meaning} | {consequence} | {remedy}{sent} |"


def with_gates(page: str) -> str:
    """The page with an up-to-date table between each pair of markers; a page without markers stays unchanged."""
    # The page is for any two clusters: it says blue and green, as the form does.
    return with_parts(page, {name: with_names(table, _ROLES) for name, table in _gate_tables().items()})


def _gate_tables() -> Mapping[str, str]:
    assert GATE_CHECKS  # Importing the gates fills the catalogue.
    rows = sorted(GATES.values(), key=lambda gate: (gate.severity is not Severity.BLOCKER, gate.id))
    gates = ["| finding | kind | who acts | consequence | waiver |", "| --- | --- | --- | --- | --- |"]
    clients = ["| client | versions | finding | what it does | evidence |", "| --- | --- | --- | --- | --- |"]
    shared = ["| finding of every procedure | for a migration |", "| --- | --- |"]
    shared += [f"| `{id_}` | a blocker: {why} |" for id_, why in sorted(RAISED_TO_BLOCKERS.items())]
    shared += [f"| `{id_}` | never waived: {lost.removesuffix('.')} |" for id_, lost in sorted(NOT_WAIVABLE.items())]
    return {
        "gates": "\n".join([*gates, *map(_gate, rows)]),
        "shared": "\n".join(shared),
        "clients": "\n".join([*clients, *map(_client, TABLE)]),
    }


def _gate(gate: Gate) -> str:
    kind = f"{gate.severity.value}; {gate.milder}" if gate.milder else gate.severity.value
    if gate.severity is Severity.WARNING:
        waiver = "not needed"
    else:
        waiver = f"never: {gate.never_waived.removesuffix('.')}" if gate.never_waived else "by name"
    return (
        f"| `{gate.id}` | {kind} | {gate.owner.value} | {_sentence(with_names(gate.consequence, _ROLES))} | {waiver} |"
    )


def _client(row: Behaviour) -> str:
    return f"| {row.family} | {row.range} | `{row.finding}` | {row.can}; {row.advice.consequence} | {row.evidence} |"


def with_defects(page: str) -> str:
    """The page with up-to-date tables between their markers."""
    return with_parts(page, _defect_tables())


def _defect_tables() -> Mapping[str, str]:
    checked = ["| finding | in | what happens | warned of where | seen by | what to do | known by |"]
    checked += ["| --- | --- | --- | --- | --- | --- | --- |"]
    shown = ["| defect | in | what happens | named by | seen by | what to do | known by |"]
    shown += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for defect in DEFECTS:
        if defect.condition is Condition.SYMPTOM:
            shown.append(_defect(defect, ", ".join(f"`{sign}`" for sign in defect.signs)))
        else:
            named = f"; named by {', '.join(f'`{sign}`' for sign in defect.signs)}" if defect.signs else ""
            checked.append(_defect(defect, f"{defect.condition}{named}"))
    return {"checked": "\n".join(checked), "shown": "\n".join(shown)}


def _defect(defect: BrokerDefect, where: str) -> str:
    spans = ", ".join(f"{span.line} before {span.fixed}" if span.fixed else f"all {span.line}" for span in defect.spans)
    remedy = _sentence(defect.remedy)
    known = f"{defect.evidence}: {', '.join(defect.issues)}"
    return f"| `{defect.id}` | {spans} | {defect.symptom} | {where} | {defect.seen} | {remedy} | {known} |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / PAGE
    target.write_text(with_defects(target.read_text()))
