"""Read before a switch: that green can take the clients, and who they are."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.migration.clients import Roster, clients_of
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.topic_stats import required_stats


async def require_green(green: AdminClient, move: Move) -> None:
    """`Refused` unless green answers, has every topic of the namespace, and does not redirect anybody itself.

    A cluster that does not answer is `Transient`. Nothing has been changed for this namespace then.
    """
    policies = await green.namespace(move.namespace)
    partitioned, topics = await asyncio.gather(green.partitioned_topics(move.namespace), green.topics(move.namespace))
    there = {*partitioned, *topics}
    missing = [topic for topic in move.topics if topic not in there]
    if policies is None or missing:
        what = "the namespace" if policies is None else f"{len(missing)} topics, {missing[0]} among them,"
        raise Refused(
            f"{green.connection.name} lacks {what} of {move.namespace}: blue would send its clients to nothing. "
            "Nothing was flagged. Clear the task prepare_green of this run, then this one.",
            cluster=green.connection.name,
        )
    if policies.get("migrated"):
        raise Refused(
            f"{move.namespace} is flagged as migrated on {green.connection.name}: clients would be sent back and "
            "forth. Nothing was flagged on blue. Clear that flag, then run again.",
            cluster=green.connection.name,
        )


async def count_clients(blue: AdminClient, move: Move) -> Roster:
    """Who is connected to each partition; this loads them all, which nothing can do once the flag is set."""
    found = await required_stats(blue, move.partitions, precise=False)
    return {topic: clients_of(topic, stats) for topic, stats in found.items()}
