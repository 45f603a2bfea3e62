"""Proofs of earlier runs that a new run can continue, so that it reads only the messages after them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification.messages.verdict import ENCODINGS, KEYED, NONE_READ, TopicVerdict, Verdict, Verification

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
