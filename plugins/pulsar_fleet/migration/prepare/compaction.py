"""Compact on green what blue has compacted: then green keeps the values as blue does, also without retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.names import TopicName

log = logging.getLogger(__name__)

_SECONDS = 600.0
_POLL_SECONDS = 0.5


async def compact(green: AdminClient, partitions: Sequence[TopicName]) -> None:
    """Compact these partitions and wait for the end, at most ten minutes; a second call compacts what came since.

    The cursor of the compaction holds what is written later, and the compacted ledger what is deleted from the log.

    :raises PreconditionFailed: a compaction failed or has not ended.
    """
    loop = asyncio.get_running_loop()
    end, waiting = loop.time() + _SECONDS, list(partitions)
    await asyncio.gather(*(_begin(green, topic) for topic in waiting))
    while waiting:
        documents = await asyncio.gather(*(green.get(f"/{topic.path}/compaction") for topic in waiting))
        states = dict(zip(waiting, documents, strict=True))
        for topic, document in states.items():
            if document["status"] == "ERROR" or loop.time() > end:
                raise PreconditionFailed(
                    f"{topic} was not compacted on {green.connection.name}: {document['status']} "
                    f"{document.get('lastError') or ''}. Its readers would lack values there; nothing was flagged. "
                    "Check the log of its broker, then run again.",
                    cluster=green.connection.name,
                )
        waiting = [topic for topic, document in states.items() if document["status"] != "SUCCESS"]
        await asyncio.sleep(_POLL_SECONDS if waiting else 0)
    if partitions:
        log.info("%s: %d partitions compacted, first %s", green.connection.name, len(partitions), partitions[0])


async def _begin(green: AdminClient, topic: TopicName) -> None:
    try:
        await green.put(f"/{topic.path}/compaction")
    except Conflict:
        log.info("%s is being compacted already", topic)
