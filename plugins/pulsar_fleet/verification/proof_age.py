"""How old the newest proof of a namespace is, for each pair of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.rows import utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.verification.messages.verdict import Verdict, Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofAge(Document):
    """The age of the newest proof that a namespace is equal on two clusters.

    :param seconds: since it was recorded; None if the ledger has none.
    :param messages: that it covers.
    """

    namespace: str
    source: str
    target: str
    seconds: float | None
    messages: int = 0

    def is_older(self, hours: float) -> bool:
        """Whether it is older than that, or missing."""
        return self.seconds is None or self.seconds > hours * 3600

    def text(self) -> str:
        """`acme/orders east → north: proven equal 31 min ago`."""
        age = "never proven equal" if self.seconds is None else f"proven equal {duration(self.seconds)} ago"
        return f"{self.namespace} {self.source} → {self.target}: {age}"


def proof_ages(run: Run, namespaces: Iterable[tuple[str, str, str]]) -> tuple[ProofAge, ...]:
    """The age of each proof, from the ledger.

    :param namespaces: namespace, source and target, by the clusters' own names.
    """
    now = datetime.now(UTC)
    return tuple(_age(run, namespace, source, target, now) for namespace, source, target in namespaces)


def too_old(ages: Sequence[ProofAge], hours: float) -> tuple[ProofAge, ...]:
    """The proofs that are older than that, or missing; the oldest first."""
    old = [age for age in ages if age.is_older(hours)]
    return tuple(sorted(old, key=lambda age: (age.seconds is not None, -(age.seconds or 0), age.namespace)))


def _age(run: Run, namespace: str, source: str, target: str, now: datetime) -> ProofAge:
    for row in run.ledger.verdicts_of(namespace):
        if row.verdict != Verdict.EQUAL or not row.artefact:
            continue
        try:
            verification = Verification.from_bytes(run.artefacts.read(Reference.from_json(row.artefact)))
        except FleetError:
            # It is missing, altered or of another release, so it proves nothing any more.
            continue
        if (verification.source, verification.target) == (source, target) and not verification.restriction:
            seconds = max((now - utc(row.at)).total_seconds(), 0.0)
            return ProofAge(namespace=namespace, source=source, target=target, seconds=seconds, messages=row.messages)
    return ProofAge(namespace=namespace, source=source, target=target, seconds=None)
