"""What a check found: blockers and warnings, each with evidence, consequence and remedy (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.json import Json, JsonObject


class Severity(StrEnum):
    """Whether a finding stops the run."""

    BLOCKER = "blocker"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong or risky.

    :param id: stable, such as `migration-check-off`; a waiver names it.
    :param resource: what it is about: a broker, a namespace, a topic, a client.
    :param evidence: the value or values that were seen.
    :param consequence: what would happen, in one sentence.
    :param remedy: what to do.
    :param call: the remedy as a call to a cluster's admin API, where one call does it.
    :param source: the value on the source, where two are compared.
    :param target: the value on the target.
    :param owner: who must act, where that is said.
    """

    id: str
    severity: Severity
    resource: str
    evidence: str
    consequence: str
    remedy: str
    call: str = ""
    source: Json = None
    target: Json = None
    owner: str = ""

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{**found, "severity": Severity(found["severity"])})

    def text(self) -> str:
        """Three lines for a terminal or a log."""
        return (
            f"{self.severity.upper():7} {self.id:26} {self.resource:38} {self.evidence}\n"
            f"        {self.consequence}\n"
            f"        Do{f' ({self.owner})' if self.owner else ''}: {self.remedy}"
            + (f"\n        {self.call}" if self.call else "")
        )


def blockers(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that stop the run."""
    return tuple(finding for finding in findings if finding.severity is Severity.BLOCKER)


def count_line(findings: Sequence[Finding]) -> str:
    """`2 blockers, 1 warning`."""
    stopping = len(blockers(findings))
    warning = len(findings) - stopping
    return f"{_counted(stopping, 'blocker')}, {_counted(warning, 'warning')}"


def refusal_text(findings: Sequence[Finding], state: str, stopping: Sequence[Finding] | None = None) -> str:
    """Why a step goes no further: how much was found, how things are, and all that stops it with its remedy.

    :param state: of the clusters, in a sentence.
    :param stopping: those that stop it; all blockers unless given.
    """
    listed = "\n".join(finding.text() for finding in (blockers(findings) if stopping is None else stopping))
    return f"{count_line(findings)}. {state}\n{listed}"


def findings_markdown(findings: Sequence[Finding]) -> str:
    """A table, blockers first; empty when nothing was found."""
    if not findings:
        return ""
    ordered = sorted(findings, key=lambda finding: (finding.severity is not Severity.BLOCKER, finding.id))
    rows = [
        f"| {finding.severity.upper()} `{finding.id}` | `{finding.resource}` | {finding.evidence} "
        f"| {finding.consequence} **Do{f' ({finding.owner})' if finding.owner else ''}:** {finding.remedy}"
        + (f" `{finding.call}` |" if finding.call else " |")
        for finding in ordered
    ]
    return "\n".join(["| finding | where | seen | what it means |", "| --- | --- | --- | --- |", *rows])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
