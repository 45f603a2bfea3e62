"""Findings of checks: blockers and warnings, each with evidence, consequence and remedy (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.text import counted, with_names

Plan = TypeVar("Plan", bound=Document, covariant=True)


class Severity(StrEnum):
    """Whether a finding stops the run."""

    BLOCKER = "blocker"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Document):
    """A fault or a risk.

    :param id: stable, such as `migration-check-off`; a waiver names it.
    :param resource: a broker, a namespace, a topic, a client.
    :param evidence: the observed value or values.
    :param consequence: what will happen, in one sentence.
    :param remedy: what to do.
    :param call: the remedy as calls to a cluster's admin API, where calls suffice.
    :param source: the value on the source, where two are compared.
    :param target: the value on the target.
    :param owner: who must act, if defined.
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

    def named(self, clusters: Mapping[str, str]) -> Finding:
        """The finding with the names of clusters in its texts.

        :param clusters: role, which the texts write as `{role}` → the cluster's own name.
        """
        return replace(
            self,
            evidence=with_names(self.evidence, clusters),
            consequence=with_names(self.consequence, clusters),
            remedy=with_names(self.remedy, clusters),
            call=with_names(self.call, clusters),
            owner=with_names(self.owner, clusters),
        )

    def text(self) -> str:
        """Three lines for a terminal or a log."""
        return (
            f"{self.severity.upper():7} {self.id:26} {self.resource:38} {self.evidence}\n"
            f"        {self.consequence}\n"
            f"        Do{f' ({self.owner})' if self.owner else ''}: {self.remedy}"
            + (f"\n        {self.call}" if self.call else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Generic[Plan]):
    """A plan and what was found when it was made.

    :param headline: one sentence with the numbers.
    :param text: the plan for the person who approves it, as Markdown.
    """

    plan: Plan
    findings: tuple[Finding, ...]
    headline: str
    text: str


def blockers(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings that stop the run."""
    return tuple(finding for finding in findings if finding.severity is Severity.BLOCKER)


def blockers_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings by severity, id and resource."""
    return tuple(sorted(findings, key=lambda row: (row.severity is not Severity.BLOCKER, row.id, row.resource)))


def count_line(findings: Sequence[Finding]) -> str:
    """`2 blockers, 1 warning`."""
    stopping = len(blockers(findings))
    warning = len(findings) - stopping
    return f"{counted(stopping, 'blocker')}, {counted(warning, 'warning')}"


def refusal_text(findings: Sequence[Finding], state: str, stopping: Sequence[Finding] | None = None) -> str:
    """Why a step stops: the number of findings, the state of the clusters, and each blocker with its remedy.

    :param state: the state of the clusters, in a sentence.
    :param stopping: the findings that stop it; all blockers by default.
    """
    listed = "\n".join(finding.text() for finding in (blockers(findings) if stopping is None else stopping))
    return f"{count_line(findings)}. {state}\n{listed}"


def findings_markdown(findings: Sequence[Finding]) -> str:
    """A table, blockers first; empty without findings."""
    if not findings:
        return ""
    rows = [
        f"| {finding.severity.upper()} `{finding.id}` | `{finding.resource}` | {finding.evidence} "
        f"| {finding.consequence} **Do{f' ({finding.owner})' if finding.owner else ''}:** {finding.remedy}"
        + (f" `{finding.call}` |" if finding.call else " |")
        for finding in blockers_first(findings)
    ]
    return "\n".join(["| finding | where | value | consequence and remedy |", "| --- | --- | --- | --- |", *rows])
