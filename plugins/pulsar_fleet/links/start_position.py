"""Where a replicator begins to read."""

from __future__ import annotations

from datetime import datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, NotFound
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics.cursors import cursors_in_stats
from pulsar_fleet.cluster.statistics.system_cursors import replicator_cursor
from pulsar_fleet.snapshot.resources import read_clusters_in_effect

EARLIEST, LATEST = "earliest", "latest"


async def copy_from(source: AdminClient, topic: TopicName, cluster: str, since: datetime | None = None) -> None:
    """Let the replicator to `cluster` begin in what is stored; call it before replication begins.

    It creates the replicator's cursor, which would begin at the newest message. The topic must stay loaded until
    replication begins: a topic that is loaded without it removes the cursor (observed). Where the topic replicates
    to the cluster already, it stays where it is: the call would set it back, and everything would be sent twice
    (observed on 4.2.4). That of a replicator which is ending is set back.

    :param topic: a plain topic or a partition.
    :param since: begin at the first message that was published then or later; None: at the first stored message.
    """
    name = replicator_cursor(cluster)
    try:
        stored = await source.internal_stats(topic)
    except NotFound:
        # A partition that nobody has used yet.
        await source.create_subscription(topic, name, EARLIEST)
        return
    if name in cursors_in_stats(stored) and cluster in await read_clusters_in_effect(source, topic.parent):
        return
    # Observed on 4.2.4: a terminated topic that never had a message has no ledger when it is loaded again, and the
    # broker never answers the call that sets a cursor to its earliest position.
    first = EARLIEST if stored.get("ledgers") else LATEST
    position = first if since is None else await _first_since(source, topic, since)
    try:
        await source.create_subscription(topic, name, position)
    except Conflict:
        if name in cursors_in_stats(await source.internal_stats(topic)):
            return
        # Replication ended since the topic was loaded: the cursor is gone, its name is still listed (observed).
        await source.delete_subscription(topic, name)
        await source.create_subscription(topic, name, position)


async def _first_since(source: AdminClient, topic: TopicName, since: datetime) -> Position | str:
    """The position of the first message published at a time or later; after the last one if there is none."""
    try:
        answer = await source.get(f"/{topic.path}/messageid/{int(since.timestamp() * 1000)}")
    except NotFound:
        # A partition that nobody has used yet.
        return EARLIEST
    return Position(int(answer["ledgerId"]), int(answer["entryId"]))
