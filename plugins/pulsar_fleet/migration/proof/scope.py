"""What a proof of a migration compares: namespaces, partitions, transferred cursors, and how entries are matched."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.cutover.confirmation import unterminated
from pulsar_fleet.migration.model import Moves, Phase
from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor, stored_transfers
from pulsar_fleet.verification.request import EntryMapping


def without_cleaned(run: Run, moves: Moves) -> Moves:
    """The moves of namespaces that this run has not cleaned up: after it, blue lacks what continues on green."""
    cleaned = {entry.namespace for entry in run.ledger.phases(run.id) if entry.phase in (Phase.CLEANED, Phase.FINISHED)}
    return replace(moves, moves=tuple(move for move in moves.moves if str(move.namespace) not in cleaned))


async def comparable(blue: AdminClient, green: AdminClient, run: Run, moves: Moves) -> tuple[Moves, frozenset[str]]:
    """The moves without partitions that blue did not terminate, or that were deleted there since; and the former."""
    left, narrowed = await unterminated(blue, green, run, moves.moves), []
    for move in moves.moves:
        existing = set(await blue.topics(move.namespace)) if move.strategy.copies else move.partitions.keys()
        clients = {topic: own for topic, own in move.partitions.items() if topic in existing and topic not in left}
        narrowed.append(replace(move, partitions=clients))
    return replace(moves, moves=tuple(narrowed)), frozenset(map(str, left))


def transferred_cursors(run: Run, moves: Moves) -> list[TransferredCursor]:
    """The cursors that the cut-over set for these partitions."""
    return [
        cursor
        for move in moves.moves
        for topic, partition in stored_transfers(run, str(move.namespace)).items()
        if topic in move.partitions
        for cursor in partition.cursors
    ]


def mapping_of(moves: Moves) -> EntryMapping:
    """Where owners connect the applications, producers may write to green while blue is still replicated to it."""
    redirected = all(move.strategy.redirects for move in moves.moves)
    return EntryMapping.REPLICATED if redirected else EntryMapping.COPIES


def replicated_namespaces(moves: Moves) -> list[NamespaceName]:
    """Those whose messages are compared: of a namespace without persistent topics there is none."""
    return [move.namespace for move in moves.moves if move.strategy.copies and move.partitions]
