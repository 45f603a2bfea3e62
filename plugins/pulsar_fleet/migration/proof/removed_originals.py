"""Topics whose messages blue removed behind the flag, by its own retention, before they could be compared."""

from __future__ import annotations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.statistics.cursors import cursors_in_stats
from pulsar_fleet.cluster.statistics.system_cursors import replicator_cursor
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.verification.messages.verdict import Verdict, Verification


async def copied_and_removed(blue: AdminClient, moves: Moves, verification: Verification) -> frozenset[str]:
    """The inconclusive topics of which blue has nothing left that it had not copied to green.

    Blue empties a terminated topic when nothing retains its messages and nobody has them to read (observed). It removes
    only what all cursors have passed, and that of the replicator passes what green has stored. One call for each such
    topic.
    """
    inconclusive = {
        verdict.topic
        for namespace in verification.namespaces
        for verdict in namespace.topics
        if verdict.verdict is Verdict.INCONCLUSIVE
    }
    unproven = [topic for move in moves.moves for topic in move.partitions if str(topic) in inconclusive]
    stats = [await blue.internal_stats(topic) for topic in unproven]
    return frozenset(
        str(topic)
        for topic, document in zip(unproven, stats, strict=True)
        if _is_copied_and_removed(document, verification.target)
    )


def _is_copied_and_removed(stats: JsonObject, green: str) -> bool:
    """
    :param green: the cluster's name.
    """
    is_replicated = replicator_cursor(green) in cursors_in_stats(stats)
    return is_replicated and stats["state"] == "Terminated" and not len(Ledgers.of(stats))
