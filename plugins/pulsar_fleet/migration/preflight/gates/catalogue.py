"""Every finding of a migration's own gates: how grave it is, who must act, what would happen, and what may be waived.

Pure. The table in docs/migrate_namespaces.md is made from it, and each gate takes its findings from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.preflight.findings import Finding, Severity


class Owner(StrEnum):
    """Who must act."""

    BLUE = "operators of blue"
    GREEN = "operators of green"
    APPLICATION = "application's team"
    TENANT = "tenant's administrators"
    RUN = "who starts the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One kind of finding.

    :param consequence: what would happen, in a sentence.
    :param never_waived: why no waiver is taken: what is lost for certain; empty where one may be given.
    :param milder: when a blocker is a warning only, in words for the documentation.
    """

    id: str
    severity: Severity
    owner: Owner
    consequence: str
    never_waived: str = ""
    milder: str = ""

    def found(self, resource: str, evidence: str, remedy: str, *, mild: bool = False, call: str = "") -> Finding:
        """What this gate found.

        :param mild: the case in `milder`.
        """
        return Finding(
            id=self.id,
            severity=Severity.WARNING if mild else self.severity,
            resource=resource,
            evidence=evidence,
            consequence=self.consequence,
            remedy=remedy,
            call=call,
            owner=self.owner.value,
        )


def first_of(names: Sequence[str]) -> str:
    """The first three, and how many there are more."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


_NAMED = 3

GATES: dict[str, Gate] = {}


def blocks(id_: str, owner: Owner, consequence: str, *, never_waived: str = "", milder: str = "") -> Gate:
    """Add a gate that stops the run."""
    return _add(
        Gate(
            id=id_,
            severity=Severity.BLOCKER,
            owner=owner,
            consequence=consequence,
            never_waived=never_waived,
            milder=milder,
        )
    )


def warns(id_: str, owner: Owner, consequence: str) -> Gate:
    """Add a gate that tells a person something before the switch."""
    return _add(Gate(id=id_, severity=Severity.WARNING, owner=owner, consequence=consequence))


def _add(gate: Gate) -> Gate:
    if gate.id in GATES:
        raise ValueError(f"Two gates are called {gate.id!r}.")
    GATES[gate.id] = gate
    return gate
