"""Proofs of earlier runs that a new one may continue, so that only what came since has to be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification.messages.verdict import ENCODINGS, NONE_READ, TopicVerdict, Verdict, Verification

log = logging.getLogger(__name__)


def continuable(found: Verification, source: str, target: str) -> dict[str, TopicVerdict]:
    """Topics of an earlier result that a new proof may continue: wholly equal, between the same two clusters."""
    if (found.source, found.target) != (source, target) or found.restriction:
        return {}
    return {
        topic.topic: topic
        for namespace in found.namespaces
        for topic in namespace.topics
        if topic.verdict is Verdict.EQUAL and _is_continuable(topic)
    }


def _is_continuable(topic: TopicVerdict) -> bool:
    """Whether its digests are of all from the beginning on, made as an engine of this release makes them."""
    made = (topic.proof[Side.SOURCE].get("engine"), topic.proof[Side.SOURCE].get("encoding"))
    ours = [(engine.value, encoding) for engine, encoding in ENCODINGS.items()]
    as_a_whole = topic.proof.get("compacted") is False and not topic.proof.get("after")
    return made in ours and as_a_whole and NONE_READ not in topic.bounds.values()


def earlier_proofs(
    ledger: Ledger, artefacts: Artefacts, name: NamespaceName, source: str, target: str
) -> Mapping[str, JsonObject]:
    """The newest proof of each topic of a namespace, as `Pair.earlier` wants it; `InvalidRequest` if there is none at
    all.

    A document that is gone, altered or of another release is passed over: what it proved is not proven any more.
    """
    found: dict[str, JsonObject] = {}
    for kept in ledger.verdicts_of(str(name)):
        if not kept.artefact:
            continue
        try:
            verdicts = Verification.from_bytes(artefacts.read(Reference.from_json(kept.artefact)))
        except FleetError as error:
            log.info("the verdict of run %s is passed over: %s", kept.run_id, error)
            continue
        for topic, verdict in continuable(verdicts, source, target).items():
            found.setdefault(topic, _as_earlier(kept.run_id, verdict))
    if not found:
        raise InvalidRequest(
            f"Mode 'incremental' continues a proof, and the ledger has none that {name} is equal on {source!r} and "
            f"{target!r}; run mode 'full' first."
        )
    return found


def _as_earlier(run_id: str, verdict: TopicVerdict) -> JsonObject:
    return {
        "run": run_id,
        "publish_time": verdict.proof["publish_time"],
        "engine": verdict.proof[Side.SOURCE]["engine"],
        "bounds": dict(verdict.bounds),
        "ends": {side.value: verdict.bounds[side].partition("–")[2] for side in Side},
        "proof": {side.value: verdict.proof[side] for side in Side},
    }
