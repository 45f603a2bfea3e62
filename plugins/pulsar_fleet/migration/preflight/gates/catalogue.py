"""Every finding of a migration's own gates: severity, owner, consequence, and whether a waiver is possible (pure).

The table in docs/migration_gates.md is generated from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pulsar_fleet.cluster.text import with_names
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.preflight.waivers import NOT_WAIVABLE


class Owner(StrEnum):
    """Who must act."""

    BLUE = "operators of {blue}"
    GREEN = "operators of {green}"
    APPLICATION = "application's team"
    TENANT = "tenant's administrators"
    RUN = "operator of the run"
    AIRFLOW = "operators of Airflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One kind of finding.

    Texts have `{blue}` and `{green}` for the names of the clusters.

    :param consequence: what would happen without the gate, in a sentence.
    :param never_waived: why no waiver is accepted, which is a certain loss; empty where a waiver is possible.
    :param milder: when the blocker is only a warning, as text for the documentation.
    """

    id: str
    severity: Severity
    owner: Owner
    consequence: str
    never_waived: str = ""
    milder: str = ""

    def finding(self, resource: str, evidence: str, remedy: str, *, mild: bool = False, call: str = "") -> Finding:
        """A finding of this gate.

        :param mild: the case in `milder`: a warning.
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


GATES: dict[str, Gate] = {}


def never_waived(clusters: Mapping[str, str]) -> dict[str, str]:
    """Id of each blocker, of the gates and of every procedure, that is never waived → the certain loss.

    :param clusters: `blue` and `green` → the cluster's own name.
    """
    own = {id_: with_names(gate.never_waived, clusters) for id_, gate in GATES.items() if gate.never_waived}
    return {**NOT_WAIVABLE, **own}


def blocks(id_: str, owner: Owner, consequence: str, *, never_waived: str = "", milder: str = "") -> Gate:
    """Add a gate whose finding stops the run."""
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
    """Add a gate whose finding informs a person before the cut-over."""
    return _add(Gate(id=id_, severity=Severity.WARNING, owner=owner, consequence=consequence))


def _add(gate: Gate) -> Gate:
    if gate.id in GATES:
        raise ValueError(f"Two gates have the id {gate.id!r}.")
    GATES[gate.id] = gate
    return gate
