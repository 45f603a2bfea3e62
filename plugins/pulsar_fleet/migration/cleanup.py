"""Clean up on blue when all of a namespace has arrived on green (PIP-188, item 9); only after the verdict."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.cursors import cursors_in_stats
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.rows import NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.model import Move, Moves, Strategy
from pulsar_fleet.migration.prepare.replication import end_replication
from pulsar_fleet.migration.stats.read import stats_of
from pulsar_fleet.migration.subscriptions.checkpoint import known_placed
from pulsar_fleet.snapshot.documents import cursors_of


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


async def _one(blue: AdminClient, topic: TopicName, stats: TopicStats | FleetError) -> Remains:
    if isinstance(stats, Conflict | NotFound):
        return await _not_served(blue, topic)
    if isinstance(stats, FleetError):
        raise stats
    durable = sorted(name for name, subscription in stats.subscriptions.items() if subscription.durable)
    names = tuple(f"{topic} · {name}" for name in durable)
    return Remains(names, tuple(f"{client} on {topic}" for client in stats.clients), (str(topic),))


async def _not_served(blue: AdminClient, topic: TopicName) -> Remains:
    try:
        info = await blue.internal_info(topic, patience=0)
    except (NotFound, Unavailable):
        # A broker answers 500 about a topic that is gone, as it does in trouble.
        if topic in await blue.topics(topic.namespace):
            raise
        return Remains()
    return Remains(tuple(f"{topic} · {one.name}" for one in cursors_of(topic, info)), (), (str(topic),))


log = logging.getLogger(__name__)

PROVEN = frozenset({"equal", "drained"})
RECREATED_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was removed from blue for one namespace, and what is left there."""

    subscriptions: int
    topics: int
    left: Remains

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"subscriptions": self.subscriptions, "topics": self.topics, "left": self.left.to_json()}


def require_verdict(run: Run, move: Move) -> None:
    """`PreconditionFailed` unless this run has proven that nothing of the namespace is on blue alone."""
    found = {verdict.scope: verdict.verdict for verdict in run.ledger.verdicts(run.id)}
    if found.get(str(move.namespace)) not in PROVEN:
        raise PreconditionFailed(
            f"{move.namespace} has the verdict {found.get(str(move.namespace))!r} in this run: nothing is removed from "
            "blue before it is proven. Clear the task verify_messages."
        )


async def finish(
    blue: AdminClient, move: Move, run: Run, moves: Moves, *, replication: Sequence[str], remove_topics: bool
) -> Cleaned:
    """End replication, remove from blue the subscriptions that were carried to green, and its topics if wanted.

    A consumer that still found such a subscription would read what green gives it again. Again changes nothing.

    :param replication: clusters that the namespace replicated to before the run: those it goes on with.
    :param remove_topics: consumers that subscribe by pattern lose a topic on green when it disappears here, and nobody
        can come through blue any more to a partitioned one: only when all applications name green.
    :raises Refused: there is no verdict, somebody is still connected to a topic, or a topic came back.
    """
    require_verdict(run, move)
    if move.strategy is Strategy.REPLICATE:
        await end_replication(blue, moves.blue, move.namespace, moves.green, replication)
    carried = [one for each in known_placed(run, str(move.namespace)).values() for one in each.placed]
    removed = [
        await _remove_subscription(blue, TopicName.parse(one.topic), one.subscription, moves.blue, run)
        for one in carried
    ]
    topics = await _remove_topics(blue, move, moves.blue, run) if remove_topics else 0
    return Cleaned(sum(removed), topics, await remains_of(blue, move))


async def _remove_subscription(blue: AdminClient, topic: TopicName, name: str, own: str, run: Run) -> int:
    try:
        cursor = cursors_in_stats(await blue.internal_stats(topic)).get(name)
    except NotFound:
        return 0
    except Conflict:
        # Unloaded under the flag, which nothing can change while it is set; it is counted as left.
        log.warning("%s is not served any more: subscription %r stays on blue", topic, name)
        return 0
    if cursor is None:
        return 0
    await blue.delete_subscription(topic, name)
    before = {"markDeletePosition": str(cursor.mark_delete)}
    detail = "continues on green, where it was placed at the switch"
    _record(run, own, f"subscription:{topic}:{name}", f"{topic} · {name}", "remove subscription", before, detail)
    return 1


async def _remove_topics(blue: AdminClient, move: Move, own: str, run: Run) -> int:
    left = await remains_of(blue, move)
    if not left.nothing_lives:
        raise PreconditionFailed(f"No topic of {move.namespace} was removed. {left.text(own)}")
    held = {TopicName.parse(text).parent for text in left.topics}
    for topic in sorted(held):
        await remove_topic(blue, topic, move.topics[topic])
        _record(run, own, f"topic:{topic}", str(topic), "remove topic", {"partitions": move.topics[topic]}, "")
    await require_gone(blue, move.topics, seconds=RECREATED_SECONDS if held else 0)
    return len(held)


async def remove_topic(admin: AdminClient, topic: TopicName, partitions: int, *, force: bool = False) -> None:
    """Delete a topic with all its partitions; one that is gone already is left alone.

    :raises Conflict: it has subscriptions or clients, which `force` would drop.
    """
    path = f"/{topic.path}/partitions" if partitions else f"/{topic.path}"
    try:
        await admin.delete(path, force=force)
    except NotFound:
        return


async def require_gone(admin: AdminClient, topics: Mapping[TopicName, int], *, seconds: float) -> None:
    """`PreconditionFailed` when a removed topic is there again within `seconds`: a client or the replicator created
    it.
    """
    await asyncio.sleep(seconds)
    names = {topic.namespace for topic in topics}
    listed = [topic for name in names for topic in (*await admin.topics(name), *await admin.partitioned_topics(name))]
    if back := sorted({topic.parent for topic in listed} & topics.keys()):
        raise PreconditionFailed(
            f"{len(back)} removed topics are on {admin.connection.name} again, {back[0]} among them: somebody creates "
            "them. Switch automatic topic creation off for the namespace there, then run again.",
            cluster=admin.connection.name,
        )


def _record(run: Run, own: str, change_id: str, resource: str, action: str, before: JsonObject, detail: str) -> None:
    removed = NewChange(
        change_id=change_id[:250],
        cluster=own,
        resource=resource,
        action=action,
        hazard="irreversible",
        before=before,
        after=None,
        outcome="applied",
        detail=detail or None,
    )
    run.ledger.record(run.id, made=(removed,))
