"""The verdicts of a migration's proofs in the ledger: of the copy, repeated, copied, drained."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.model import Move
from pulsar_fleet.verification.messages.report import namespace_summary
from pulsar_fleet.verification.messages.verdict import Verification

log = logging.getLogger(__name__)

DRAINED = "drained"
REPEATED = "repeated"
"""Green has every message, and stores some of them twice."""
COPIED = "copied"
"""Blue had copied all messages to green, but removed them before they were compared."""
_COPY = "copy of {}"


def record_copy(run: Run, verification: Verification) -> None:
    """Record it under its own scope: the verdict on the migration comes at the end."""
    for result in verification.namespaces:
        run.ledger.record_verdict(
            run.id,
            _COPY.format(result.namespace),
            verdict=result.verdict,
            messages=result.messages,
            summary=f"before the cut-over: {namespace_summary(result, verification.restriction)}",
            artefact=None,
        )


def record_not_equal(run: Run, verification: Verification, copied: Collection[str]) -> int:
    """Record a verdict of its own for namespaces that green has whole although they were not compared as equal.

    :param copied: the topics whose messages blue removed before they were compared.
    :returns: how many messages green stores more than once.
    """
    results = {row.namespace: row for row in verification.namespaces}
    for stored in run.ledger.verdicts(run.id):
        row = results.get(stored.scope)
        repeated = sum(topic.repeated for topic in row.topics) if row else 0
        removed = sorted(row.names & set(copied)) if row else []
        if sentences := [*_repeated(verification, repeated), *_removed(verification, removed)]:
            log.warning("%s: %s", stored.scope, "; ".join(sentences))
            run.ledger.record_verdict(
                run.id,
                stored.scope,
                verdict=COPIED if removed else REPEATED,
                messages=stored.messages,
                summary="; ".join(sentences),
                artefact=stored.artefact,
            )
    return sum(topic.repeated for row in verification.namespaces for topic in row.topics)


def _repeated(verification: Verification, messages: int) -> Iterator[str]:
    if messages:
        yield (
            f"{verification.target} has every message, and {counted(messages, 'message')} more than once: a replicator "
            f"lost its connection and sent again what {verification.target} had not confirmed; consumers there get "
            "these again"
        )


def _removed(verification: Verification, topics: Sequence[str]) -> Iterator[str]:
    if topics:
        yield (
            f"{verification.source} removed all messages of {listed(topics)} by its own retention before they were "
            f"compared; its replicator had copied them all to {verification.target}"
        )


def record_drained(run: Run, move: Move, drained: Collection[str]) -> None:
    if str(move.namespace) not in drained:
        raise PreconditionFailed(
            f"{move.namespace} has not drained in this run: its unread messages were not copied. Clear wait_drained."
        )
    run.ledger.record_verdict(
        run.id,
        str(move.namespace),
        verdict=DRAINED,
        messages=0,
        summary="every subscription read its backlog; no message is on both clusters to compare",
        artefact=None,
    )
