"""Messages that blue confirmed to producers and that no consumer gets: stored behind the terminated position."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.positions import entries_behind, terminated_at
from pulsar_fleet.migration.cutover.termination import read_infos
from pulsar_fleet.migration.model import Moves


async def lost_entries(blue: AdminClient, moves: Moves) -> tuple[str, ...]:
    """A sentence for each partition on blue with entries behind its terminated position.

    One call for each topic, one more for each partition with a ledger behind its end. Of a topic that has been deleted
    on blue nothing is read.
    """
    sentences: list[str] = []
    for move in moves.moves:
        infos = await read_infos(blue, move)
        sentences += await asyncio.gather(*(_sentence(blue, topic, info) for topic, info in infos.items() if info))
    return tuple(sentence for sentence in sentences if sentence)


def require_none_lost(lost: Sequence[str], moves: Moves) -> None:
    """Refuse with `PreconditionFailed`; only when all that consumers can get was read or copied.

    :param lost: as `lost_entries`.
    """
    if lost:
        listed = "\n  ".join(lost)
        raise PreconditionFailed(
            f"{moves.blue} stored messages behind the end of {counted(len(lost), 'terminated partition')}: producers "
            f"got a confirmation for them, and no consumer gets them, on no cluster.\n  {listed}\n"
            "Let their applications publish again, to the same topics, what they sent in the minute before the "
            f"cut-over. Everything else of these topics was read or copied: delete them on {moves.blue} then, and "
            "clear this task.",
        )


async def _sentence(blue: AdminClient, topic: TopicName, info: JsonObject) -> str:
    entries = await entries_behind(blue, topic, info)
    listed = ", ".join(f"{count:,} in ledger {ledger}" for ledger, count in entries.items())
    return f"{topic}: {sum(entries.values()):,} entries behind {terminated_at(info)}: {listed}" if entries else ""
