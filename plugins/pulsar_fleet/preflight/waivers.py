"""Waivers of blockers: each names a finding, the person who accepts its risk, and the reason (pure)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.preflight.findings import Finding, Severity, blockers, blockers_first

NOT_WAIVABLE: Mapping[str, str] = {
    "namespace-migrated": "its topics do not load, and clients are redirected back and forth.",
    "same-cluster-name": "no second cluster exists.",
    "shared-configuration-store": "a change for one cluster deletes topics of the other.",
    "partitions-grow": "keys change their partition, and some partitions never move.",
    "partitions-differ": "keys change their partition, and some partitions never move.",
    "partitioned-on-one-side": "producers are refused on the target.",
    "topic-terminated-on-target": "the target refuses every message to it.",
    "schema-incompatible": "producers are refused on the target.",
    "value-refused": "the target's brokers refuse the value in every run.",
    "admin-role-refused": "the target's brokers refuse the tenant in every run.",
}
"""Blockers of the shared checks that are never waived, and the certain loss."""

_KEYS = frozenset({"id", "resource", "who", "why"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """The accepted risk of a blocker.

    :param id: of the finding.
    :param resource: of the finding; None for every resource with this finding.
    :param who: the person who accepts the risk; `why` in a sentence.
    """

    id: str
    who: str
    why: str
    resource: str | None = None

    @classmethod
    def parse(cls, document: Json) -> Waiver:
        """Read a waiver of the run's configuration; `InvalidRequest` for missing or unknown keys."""
        if not isinstance(document, dict):
            raise InvalidRequest(f"The waiver {document!r} is not an object: write {_EXAMPLE}.")
        if unknown := sorted(set(document) - _KEYS):
            raise InvalidRequest(f"The waiver {document!r} has the unknown key {unknown[0]!r}: write {_EXAMPLE}.")
        for key in ("id", "who", "why"):
            if not isinstance(document.get(key), str) or not document[key].strip():
                raise InvalidRequest(f"The waiver {document!r} does not have {key!r}: write {_EXAMPLE}.")
        return cls(id=document["id"], who=document["who"], why=document["why"], resource=document.get("resource"))

    def covers(self, finding: Finding) -> bool:
        """Whether the waiver applies to this finding."""
        return self.id == finding.id and self.resource in (None, finding.resource)

    def text(self) -> str:
        """`transactions-in-use of persistent://acme/orders/events`."""
        return f"{self.id} of {self.resource}" if self.resource else self.id


_EXAMPLE = '{"id": "transactions-in-use", "resource": "persistent://…", "who": "…", "why": "…"}'


def parse_waivers(documents: Sequence[Json]) -> list[Waiver]:
    """The waivers of a run's configuration; see `Waiver.parse`."""
    return [Waiver.parse(document) for document in documents]


@dataclass(frozen=True, slots=True)
class WaiverResult:
    """All findings, and the waived blockers with their waivers."""

    findings: tuple[Finding, ...]
    waived: tuple[tuple[Finding, Waiver], ...]

    @property
    def unwaived(self) -> tuple[Finding, ...]:
        """Blockers without a waiver."""
        passed = {id(finding) for finding, _ in self.waived}
        return tuple(finding for finding in blockers(self.findings) if id(finding) not in passed)

    def to_json(self) -> JsonObject:
        """The waived findings with their waivers, as a JSON object."""
        waived = [{"finding": finding.to_json(), "waiver": asdict(waiver)} for finding, waiver in self.waived]
        return {"schema_version": 1, "waived": waived}


def apply_waivers(
    findings: Sequence[Finding],
    waivers: Sequence[Waiver],
    *,
    whole_run: bool = True,
    never: Mapping[str, str] = NOT_WAIVABLE,
) -> WaiverResult:
    """Match blockers with waivers.

    :param never: id of each blocker that is never waived → the certain loss.
    :param whole_run: the findings are of all namespaces of the run, so that each waiver must match a blocker.
    :raises PreconditionFailed: a waiver of a blocker that is never waived.
    :raises InvalidRequest: a waiver that matches no blocker: a typo, or the problem was corrected.
    """
    unwaived = blockers(findings)
    for waiver in waivers:
        if lost := never.get(waiver.id):
            raise PreconditionFailed(f"The blocker {waiver.id!r} is never waived: {lost} Do what its remedy says.")
        if whole_run and not any(waiver.covers(finding) for finding in unwaived):
            raise InvalidRequest(_unmatched(waiver, findings, unwaived))
    waived = [
        (finding, accepted)
        for finding in unwaived
        if (accepted := next((candidate for candidate in waivers if candidate.covers(finding)), None)) is not None
    ]
    return WaiverResult(tuple(findings), tuple(waived))


def accept(
    findings: Sequence[Finding], waivers: Sequence[Waiver], never: Mapping[str, str] = NOT_WAIVABLE
) -> tuple[Finding, ...]:
    """The findings with each waived blocker as a warning that names who accepts it and why, blockers first.

    It raises what `apply_waivers` raises.
    """
    accepted = {id(finding): waiver for finding, waiver in apply_waivers(findings, waivers, never=never).waived}
    return blockers_first(
        replace(
            finding,
            severity=Severity.WARNING,
            evidence=f"{finding.evidence}; accepted by {waiver.who}: {waiver.why}",
        )
        if (waiver := accepted.get(id(finding)))
        else finding
        for finding in findings
    )


def _unmatched(waiver: Waiver, findings: Sequence[Finding], unwaived: Sequence[Finding]) -> str:
    start = f"The waiver of {waiver.text()!r} matches no blocker"
    if any(waiver.covers(finding) for finding in findings):
        return f"{start}, but a warning, which needs no waiver: remove it from 'waivers'."
    same = sorted({finding.resource for finding in unwaived if finding.id == waiver.id})
    if same:
        close = difflib.get_close_matches(waiver.resource or "", same, n=1) or same[:1]
        return f"{start}; the finding is for {close[0]!r}: correct 'resource'."
    close = difflib.get_close_matches(waiver.id, sorted({finding.id for finding in unwaived}), n=1)
    if close:
        return f"{start}; did you mean {close[0]!r}?"
    return f"{start}: it was corrected, or never existed; remove it from 'waivers'."
