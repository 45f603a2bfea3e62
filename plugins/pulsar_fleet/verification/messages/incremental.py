"""Proofs of earlier runs: how old they are, and which one a new run can continue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification.messages.verdict import ENCODINGS, KEYED, NONE_READ, TopicVerdict, Verdict, Verification


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


log = logging.getLogger(__name__)


def continuable(verification: Verification, source: str, target: str) -> dict[str, TopicVerdict]:
    """Topics of an earlier result that a new proof can continue: equal, unrestricted, between the same two clusters."""
    if (verification.source, verification.target) != (source, target) or verification.restriction:
        return {}
    return {
        topic.topic: topic
        for namespace in verification.namespaces
        for topic in namespace.topics
        if topic.verdict is Verdict.EQUAL and _is_continuable(topic)
    }


def _is_continuable(topic: TopicVerdict) -> bool:
    """Whether its digests cover everything from the beginning on, in the encoding of this release."""
    is_complete = topic.proof.get("compacted") is False and not topic.proof.get("after")
    return _encoding(topic) in ENCODINGS.items() and is_complete and NONE_READ not in topic.bounds.values()


def _is_of_another_release(topic: TopicVerdict) -> bool:
    """Whether the digests of its proof cover other fields than those of this release."""
    return _encoding(topic) not in ENCODINGS.items() and _encoding(topic)[1] != KEYED


def _encoding(topic: TopicVerdict) -> tuple[Json, Json]:
    """The engine of its digests, and the version of their encoding."""
    proof = topic.proof.get(Side.SOURCE) or {}
    return proof.get("engine"), proof.get("encoding")


def earlier_proofs(
    ledger: Ledger, artefacts: Artefacts, name: NamespaceName, source: str, target: str
) -> Mapping[str, JsonObject]:
    """The newest proof of each topic of a namespace, in the form of `Pair.earlier`; `InvalidRequest` without any proof.

    A document that is missing, altered or of another release is skipped: its proof is no longer valid.
    """
    proofs: dict[str, JsonObject] = {}
    older = False
    for row in ledger.verdicts_of(str(name)):
        if not row.artefact:
            continue
        try:
            verification = Verification.from_bytes(artefacts.read(Reference.from_json(row.artefact)))
        except FleetError as error:
            log.info("the verdict of run %s is skipped: %s", row.run_id, error)
            continue
        for topic, proof in proofs_in(verification, row.run_id, source, target).items():
            proofs.setdefault(topic, proof)
        compared = (topic for namespace in verification.namespaces for topic in namespace.topics)
        older = older or any(_is_of_another_release(topic) for topic in compared if topic.verdict is Verdict.EQUAL)
    if not proofs:
        reason = " The digests of its proofs were made by another release and cover other fields." if older else ""
        raise InvalidRequest(
            f"Mode 'incremental' continues a proof, but the ledger has no proof that {name} is equal on {source!r} and "
            f"{target!r} that this release can continue; run mode 'full' first.{reason}"
        )
    return proofs


def proofs_in(verification: Verification, run_id: str, source: str, target: str) -> dict[str, JsonObject]:
    """The proofs of a verification that a new one can continue, by topic, in the form of `Pair.earlier`."""
    topics = continuable(verification, source, target).items()
    return {topic: _as_earlier(run_id, verdict) for topic, verdict in topics}


def _as_earlier(run_id: str, verdict: TopicVerdict) -> JsonObject:
    return {
        "run": run_id,
        "publish_time": verdict.proof["publish_time"],
        "mesh": bool(verdict.proof.get("mesh")),
        "engine": verdict.proof[Side.SOURCE]["engine"],
        "bounds": dict(verdict.bounds),
        "ends": {side.value: verdict.bounds[side].partition("–")[2] for side in Side},
        "proof": {side.value: verdict.proof[side] for side in Side},
    }
