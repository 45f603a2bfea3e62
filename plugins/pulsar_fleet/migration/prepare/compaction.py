"""Compact on green what blue has compacted: then green keeps the values as blue does, also without retention."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.polling import wait_until
from pulsar_fleet.cluster.text import counted

log = logging.getLogger(__name__)

_SECONDS = 600.0
_POLL_SECONDS = 0.5


async def compact(green: AdminClient, partitions: Sequence[TopicName]) -> None:
    """Compact these partitions and wait for the end, at most ten minutes; a second call compacts what came since.

    The cursor of the compaction holds what is written later, and the compacted ledger what is deleted from the log.

    :raises PreconditionFailed: a compaction failed or has not ended.
    """
    if not partitions:
        return
    await asyncio.gather(*(_begin(green, topic) for topic in partitions))
    await wait_until(
        lambda: _progress(green, partitions),
        seconds=_SECONDS,
        poll_seconds=_POLL_SECONDS,
        progress=log.debug,
        missed=f"{green.connection.name} has not compacted every copy, whose readers would lack values; nothing was "
        "flagged",
    )
    log.info("%s: %d partitions compacted, first %s", green.connection.name, len(partitions), partitions[0])


async def _progress(green: AdminClient, partitions: Sequence[TopicName]) -> tuple[bool, str]:
    documents = await asyncio.gather(*(green.get(f"/{topic.path}/compaction") for topic in partitions))
    states = dict(zip(partitions, documents, strict=True))
    for topic, document in states.items():
        if document["status"] == "ERROR":
            raise PreconditionFailed(
                f"{topic} was not compacted on {green.connection.name}: {document.get('lastError') or 'ERROR'}. Its "
                "readers would lack values there; nothing was flagged. Check the log of its broker, then run again.",
                cluster=green.connection.name,
            )
    waiting = [topic for topic, document in states.items() if document["status"] != "SUCCESS"]
    return not waiting, f"{len(waiting)} of {counted(len(partitions), 'partition')} left"


async def _begin(green: AdminClient, topic: TopicName) -> None:
    try:
        await green.put(f"/{topic.path}/compaction")
    except Conflict:
        log.info("%s is being compacted already", topic)
