"""Generate the tables of docs/migration_gates.md about gates and clients from the code."""

from __future__ import annotations

from collections.abc import Mapping

from docs.tools.generated_parts import with_parts

from pulsar_fleet.cluster.text import with_names
from pulsar_fleet.migration.preflight.client_compatibility import TABLE, Behaviour
from pulsar_fleet.migration.preflight.gates import GATE_CHECKS
from pulsar_fleet.migration.preflight.gates.catalogue import GATES, Gate
from pulsar_fleet.migration.preflight.gates.compatibility import RAISED_TO_BLOCKERS
from pulsar_fleet.preflight.findings import Severity
from pulsar_fleet.preflight.waivers import NOT_WAIVABLE

_ROLES = {"blue": "blue", "green": "green"}


def with_gates(page: str) -> str:
    """The page with an up-to-date table between each pair of markers; a page without markers stays unchanged."""
    # The page is for any two clusters: it says blue and green, as the form does.
    return with_parts(page, {name: with_names(table, _ROLES) for name, table in _tables().items()})


def _tables() -> Mapping[str, str]:
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
    return f"| `{gate.id}` | {kind} | {gate.owner.value} | {_sentence(gate.consequence)} | {waiver} |"


def _sentence(template: str) -> str:
    text = with_names(template, _ROLES)
    return text[:1].upper() + text[1:]


def _client(row: Behaviour) -> str:
    return f"| {row.family} | {row.range} | `{row.finding}` | {row.can}; {row.advice.consequence} | {row.evidence} |"
