"""Clean up on blue when all of a namespace has arrived on green."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.resources import by_name
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.phases import Strategy
from pulsar_fleet.migration.replicate import set_replication
from pulsar_fleet.records.ledger import Ledger
from pulsar_fleet.records.rows import NewChange


async def finish(
    blue: AdminClient, move: Move, *, own: str, replication: Sequence[str], ledger: Ledger, run: str
) -> int:
    """End replication and remove the carried subscriptions from blue; returns how many were removed.

    A consumer that still found them on blue would read there what green gives it again. Call it only after the verdict.
    Again changes nothing.
    """
    if move.strategy is not Strategy.REPLICATE:
        return 0
    await set_replication(blue, own, move.namespace, replication or [own])
    removed = 0
    for topic, clients in move.partitions.items():
        for name, consumers in clients.consumers.items():
            if consumers == 0:
                removed += await _remove(blue, topic, name, own, ledger, run)
    return removed


async def _remove(blue: AdminClient, topic: TopicName, name: str, own: str, ledger: Ledger, run: str) -> int:
    cursor = by_name((await blue.internal_stats(topic))["cursors"]).get(name)
    if cursor is None:
        return 0
    await blue.delete_subscription(topic, name)
    removed = NewChange(
        change_id=f"subscription:{topic}:{name}",
        cluster=own,
        resource=f"{topic} · {name}",
        action="remove subscription",
        hazard="irreversible",
        before={"markDeletePosition": cursor["markDeletePosition"]},
        after=None,
        outcome="applied",
        detail="continues on green, where it was placed at the switch",
    )
    ledger.record(run, made=(removed,))
    return 1
