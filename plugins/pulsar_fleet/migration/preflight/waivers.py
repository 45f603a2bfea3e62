"""Blockers that somebody takes on: named one by one, with who and why, and kept beside the findings (pure)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.migration.preflight.gates.catalogue import GATES
from pulsar_fleet.preflight.findings import Finding, blockers

NEVER: Mapping[str, str] = {
    "namespace-migrated": "its topics do not load, and clients are sent back and forth.",
    "same-cluster-name": "there is no second cluster.",
    "shared-configuration-store": "a change for one cluster deletes topics of the other.",
    "partitions-grow": "keys change their partition, and some partitions never move.",
    "partitions-differ": "keys change their partition, and some partitions never move.",
    "partitioned-on-one-side": "producers are refused on green.",
    "topic-terminated-on-target": "nothing can be written to it on green.",
    "schema-incompatible": "producers are refused on green.",
}
"""Blockers of the checks that all procedures share which are never waived, and what is lost for certain."""

_KEYS = frozenset({"id", "resource", "who", "why"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """One blocker that may be passed.

    :param id: of the finding.
    :param resource: the one resource that is meant; None for every resource with this finding.
    :param who: the person who takes it on; `why` in a sentence.
    """

    id: str
    who: str
    why: str
    resource: str | None = None

    @classmethod
    def parse(cls, found: Json) -> Waiver:
        """Read one of the run's configuration; `InvalidRequest` unless all of it is there and nothing else."""
        if not isinstance(found, dict):
            raise InvalidRequest(f"The waiver {found!r} is no object: write {_EXAMPLE}.")
        if unknown := sorted(set(found) - _KEYS):
            raise InvalidRequest(f"The waiver {found!r} has the unknown key {unknown[0]!r}: write {_EXAMPLE}.")
        for key in ("id", "who", "why"):
            if not isinstance(found.get(key), str) or not found[key].strip():
                raise InvalidRequest(f"The waiver {found!r} does not say {key!r}: write {_EXAMPLE}.")
        return cls(id=found["id"], who=found["who"], why=found["why"], resource=found.get("resource"))

    def covers(self, finding: Finding) -> bool:
        """Whether this finding is meant."""
        return self.id == finding.id and self.resource in (None, finding.resource)

    def text(self) -> str:
        """`transactions-in-use of persistent://acme/orders/events`."""
        return f"{self.id} of {self.resource}" if self.resource else self.id


_EXAMPLE = '{"id": "transactions-in-use", "resource": "persistent://…", "who": "…", "why": "…"}'


@dataclass(frozen=True, slots=True)
class Judged:
    """All findings, and which of the blockers were waived by whom."""

    findings: tuple[Finding, ...]
    waived: tuple[tuple[Finding, Waiver], ...]

    @property
    def stopping(self) -> tuple[Finding, ...]:
        """Blockers that nobody took on."""
        passed = {id(finding) for finding, _ in self.waived}
        return tuple(finding for finding in blockers(self.findings) if id(finding) not in passed)

    def to_json(self) -> JsonObject:
        """The waived findings with their waivers, as a JSON object."""
        waived = [{"finding": finding.to_json(), "waiver": asdict(waiver)} for finding, waiver in self.waived]
        return {"schema_version": 1, "waived": waived}

    def markdown(self) -> str:
        """A table of what was waived; empty when nothing was."""
        if not self.waived:
            return ""
        rows = [
            f"| `{finding.id}` | `{finding.resource}` | {finding.consequence} | {waiver.who} | {waiver.why} |"
            for finding, waiver in self.waived
        ]
        return "\n".join(
            ["| waived | where | what may happen | by | because |", "| --- | --- | --- | --- | --- |", *rows]
        )


def judge(findings: Sequence[Finding], waivers: Sequence[Waiver], *, all_looked_at: bool = True) -> Judged:
    """Which blockers are passed.

    :param all_looked_at: the findings are of all that the run moves, so that each waiver must meet one of them.
    :raises Refused: a waiver of what is never waived.
    :raises Rejected: a waiver that meets no blocker: a typo, or something that was repaired since.
    """
    stopping = blockers(findings)
    for waiver in waivers:
        lost = why_never(waiver.id)
        if lost:
            raise PreconditionFailed(f"The blocker {waiver.id!r} is never waived: {lost} Do what its remedy says.")
        if all_looked_at and not any(waiver.covers(finding) for finding in stopping):
            raise InvalidRequest(_meets_nothing(waiver, findings, stopping))
    waived = [
        (finding, taken)
        for finding in stopping
        if (taken := next((one for one in waivers if one.covers(finding)), None)) is not None
    ]
    return Judged(tuple(findings), tuple(waived))


def why_never(id_: str) -> str:
    """What is lost for certain behind this blocker; empty where a waiver is taken."""
    return GATES[id_].never_waived if id_ in GATES else NEVER.get(id_, "")


def _meets_nothing(waiver: Waiver, findings: Sequence[Finding], stopping: Sequence[Finding]) -> str:
    start = f"The waiver of {waiver.text()!r} meets no blocker"
    if any(waiver.covers(finding) for finding in findings):
        return f"{start}, but a warning, which needs none: take it out of 'waivers'."
    same = sorted({finding.resource for finding in stopping if finding.id == waiver.id})
    if same:
        close = difflib.get_close_matches(waiver.resource or "", same, n=1) or same[:1]
        return f"{start}; this blocker was found for {close[0]!r}: correct 'resource'."
    close = difflib.get_close_matches(waiver.id, sorted({finding.id for finding in stopping}), n=1)
    if close:
        return f"{start}; did you mean {close[0]!r}?"
    return f"{start}: it was repaired, or never there; take it out of 'waivers'."
