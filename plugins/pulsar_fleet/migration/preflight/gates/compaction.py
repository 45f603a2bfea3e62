"""Values of compacted topics, which no subscription and no retention holds (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.text import counted
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_STAYS = blocks(
    "compacted-values-stay",
    Owner.APPLICATION,
    "A redirect moves no stored message: on {green} a reader of the compacted topic gets only what is written from "
    "then on.",
)
_TRIMMED = blocks(
    "compacted-values-trimmed",
    Owner.APPLICATION,
    "Geo-replication copies the log, and {blue} has deleted the oldest of these values from it: {green} would lack "
    "them.",
)
_REPLICATE = "move the namespace with replicate_then_switch."
_WRITE_AGAIN = (
    "set a retention for the namespace on {blue}, let an application write each value that it reads from the compacted "
    "topic once more, and compact the topic. Then move the namespace with replicate_then_switch."
)
_KEEP = (
    "let an application keep the values that it reads from the compacted topic now, and write each once more when its "
    "clients are on {green}. Where it will, or nobody needs them, accept this finding with a waiver."
)
"""In a failback: what came by replication is not replicated back."""


def compacted_values_are_moved(view: View) -> Iterator[Finding]:
    """Topics with values for readers of the compacted topic, each with whether the log still has them.

    Observed on 4.2.4: a trim leaves the compacted ledger, which has 10 of 10 keys then, and an empty log.
    """
    for facts in view.moving:
        copies = view.replicates(facts.namespace)
        for topic, compacted in facts.compacted.items():
            if copies and compacted.in_log:
                continue
            yield (_TRIMMED if copies else _STAYS).finding(
                str(topic),
                f"{counted(compacted.entries, 'value')} in its compacted view; its log "
                f"{'has them all' if compacted.in_log else 'lacks the oldest'}",
                _remedy(view, copies=copies, in_log=compacted.in_log),
            )


def _remedy(view: View, *, copies: bool, in_log: bool) -> str:
    if view.expected.is_failback and not copies:
        return _KEEP.format(green=view.green.name)
    return _REPLICATE if in_log else _WRITE_AGAIN.format(blue=view.blue.name)
