"""What of a moved namespace still lives on blue: a cluster is finished when nothing does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, Missing, Transient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.resources import cursors_of
from pulsar_fleet.migration.clients import clients_of
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.standing import OF_BROKERS
from pulsar_fleet.migration.topic_stats import stats_of


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left on blue.

    :param subscriptions: `topic · subscription`.
    :param clients: in words.
    :param topics: partitions that exist; closed ones redirect whoever comes through blue.
    """

    subscriptions: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()

    @property
    def nothing_lives(self) -> bool:
        """No subscription and no client: only closed topics, if any."""
        return not (self.subscriptions or self.clients)

    def to_json(self) -> JsonObject:
        """As a JSON object, with numbers and the first of each."""
        return {
            "subscriptions": len(self.subscriptions),
            "clients": len(self.clients),
            "topics": len(self.topics),
            "first": [*self.subscriptions[:3], *self.clients[:3]],
            "nothing_lives": self.nothing_lives,
        }

    def text(self, cluster: str) -> str:
        """A sentence for the report."""
        if not self.nothing_lives:
            first = next(iter((*self.subscriptions, *self.clients)))
            return (
                f"{cluster} is not finished: {len(self.subscriptions)} subscriptions and {len(self.clients)} clients "
                f"are left there, {first} among them."
            )
        closed = f"; its {len(self.topics)} closed topics stay, and redirect whoever comes" if self.topics else ""
        return (
            f"{cluster} is finished with it{closed}. Applications enter through {cluster} until their configuration "
            "names the other cluster: leave it running until then."
        )


async def remains_of(blue: AdminClient, move: Move) -> Remains:
    """Ask the partitions of a namespace: a call for each topic, two more for each partition that is not served.

    What is not loaded has no clients.
    """
    answers = await stats_of(blue, move.partitions, precise=False)
    found = await asyncio.gather(*(_one(blue, topic, stats) for topic, stats in answers.items()))
    return Remains(
        tuple(each for one in found for each in one.subscriptions),
        tuple(each for one in found for each in one.clients),
        tuple(each for one in found for each in one.topics),
    )


async def _one(blue: AdminClient, topic: TopicName, stats: JsonObject | FleetError) -> Remains:
    if isinstance(stats, Conflict | Missing):
        return await _not_served(blue, topic)
    if isinstance(stats, FleetError):
        raise stats
    subscriptions = (name for name, one in stats["subscriptions"].items() if one["isDurable"])
    names = tuple(f"{topic} · {name}" for name in sorted(subscriptions) if not name.startswith(OF_BROKERS))
    return Remains(names, tuple(f"{client} on {topic}" for client in clients_of(topic, stats)), (str(topic),))


async def _not_served(blue: AdminClient, topic: TopicName) -> Remains:
    try:
        info = await blue.internal_info(topic, patience=0)
    except (Missing, Transient):
        # A broker answers 500 about a topic that is gone, as it does in trouble.
        if topic in await blue.topics(topic.namespace):
            raise
        return Remains()
    return Remains(tuple(f"{topic} · {one.name}" for one in cursors_of(topic, info)), (), (str(topic),))
