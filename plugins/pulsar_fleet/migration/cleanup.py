"""Clean up on blue when everything of a namespace is on green (PIP-188, item 9); only after the verdict."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.scalable_topics import ScalableTopics
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats, cursors_in_stats
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.cluster.versions import REDIRECTS_WITHOUT_WAITING
from pulsar_fleet.ledger.rows import PROVEN, NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import end_replication, replace_cluster, share_store
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import incomplete_text, unterminated
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.subscriptions.checkpoint import stored_transfers
from pulsar_fleet.migration.unread_brokers import accepted_as_unread
from pulsar_fleet.snapshot.resources import subscriptions_in_info

log = logging.getLogger(__name__)

RECREATED_SECONDS = 3.0
_CONTINUES = "continues on the new cluster, at the position where the cut-over set it"


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is left on blue.

    :param subscriptions: `topic · subscription`.
    :param clients: one text for each connected client.
    :param topics: partitions that exist; terminated partitions redirect the clients that connect to blue.
    :param loaded: those of them that blue serves: a subscription that is created there reads what they store.
    :param scalable: scalable topics, which no run moves.
    """

    subscriptions: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    scalable: tuple[str, ...] = ()

    @property
    def is_unused(self) -> bool:
        """Whether no subscription, no client and no scalable topic is left: only terminated topics, if any."""
        return not (self.subscriptions or self.clients or self.scalable)

    def to_json(self) -> JsonObject:
        """As a JSON object, with counts and the first names of each kind."""
        return {
            "subscriptions": len(self.subscriptions),
            "clients": len(self.clients),
            "topics": len(self.topics),
            "first": [*self.subscriptions[:3], *self.clients[:3], *self.scalable[:3]],
            "is_unused": self.is_unused,
        }

    def text(self, cluster: str, *, redirects: bool = True) -> str:
        """A sentence for the report.

        :param redirects: clients that connect to the cluster are redirected.
        """
        if not self.is_unused:
            left = f"{counted(len(self.subscriptions), 'subscription')} and {counted(len(self.clients), 'client')}"
            more = f", and {counted(len(self.scalable), 'scalable topic')} that no run moves," if self.scalable else ""
            first = (*self.subscriptions, *self.clients, *self.scalable)[0]
            return f"{cluster} is still in use: {left}{more} are left there, first {first}."
        topics = counted(len(self.topics), "terminated topic")
        if not redirects:
            return (
                f"No unread message and no client is left on {cluster}; {topics} left there refuse producers, and "
                f"redirect no consumer: one that starts there gets nothing new, and with a new subscription from the "
                "earliest message everything that is stored there."
            )
        terminated = f"; {topics} left there to redirect clients" if self.topics else ""
        return (
            f"No subscription and no client is left on {cluster}{terminated}. Applications connect through {cluster} "
            f"until their configuration names the other cluster: keep it running until then.{self._again(cluster)}"
        )

    def _again(self, cluster: str) -> str:
        if not self.loaded:
            return ""
        return (
            f" {cluster} still serves {len(self.loaded)} of them: an application that restarts through it, with a "
            "subscription from the earliest message, gets again what they store, each time. Connect it to the other "
            "cluster before it restarts."
        )


async def read_leftovers(blue: AdminClient, move: Move) -> Leftovers:
    """Read the partitions of a namespace: a call for each topic, two more for each partition that is not served.

    A partition that is not loaded has no clients. Where subscriptions are kept, one without a backlog is not left.
    """
    kept = move.strategy.keeps_subscriptions
    answers = await stats_of(blue, move.partitions, precise=kept)
    parts = await asyncio.gather(*(_leftovers_of(blue, topic, stats, read=kept) for topic, stats in answers.items()))
    return Leftovers(
        tuple(subscription for part in parts for subscription in part.subscriptions),
        tuple(client for part in parts for client in part.clients),
        tuple(topic for part in parts for topic in part.topics),
        tuple(topic for part in parts for topic in part.loaded),
        await (await ScalableTopics.of(blue)).names(move.namespace),
    )


async def _leftovers_of(
    blue: AdminClient, topic: TopicName, stats: TopicStats | FleetError, *, read: bool
) -> Leftovers:
    if isinstance(stats, Conflict | NotFound):
        return await _leftovers_of_unloaded(blue, topic)
    if isinstance(stats, FleetError):
        raise stats
    durable = sorted(
        name
        for name, subscription in stats.subscriptions.items()
        if subscription.durable and (subscription.backlog or not read)
    )
    names = tuple(f"{topic} · {name}" for name in durable)
    clients = tuple(f"{client} on {topic}" for client in stats.clients)
    return Leftovers(names, clients, (str(topic),), (str(topic),))


async def _leftovers_of_unloaded(blue: AdminClient, topic: TopicName) -> Leftovers:
    try:
        info = await blue.internal_info(topic, answered_retry_seconds=0)
    except (NotFound, Unavailable):
        # The broker answers 500 for a topic that does not exist, as it does for its own failures.
        if topic in await blue.topics(topic.namespace):
            raise
        return Leftovers()
    names = tuple(f"{topic} · {subscription.name}" for subscription in subscriptions_in_info(topic, info))
    return Leftovers(names, (), (str(topic),))


@dataclass(frozen=True, slots=True)
class NamespaceCleanUp:
    """What was removed from blue for one namespace, and what is left there."""

    subscriptions: int
    topics: int
    leftovers: Leftovers

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {"subscriptions": self.subscriptions, "topics": self.topics, "left": self.leftovers.to_json()}


async def clean_up_blue(
    sides: Sides,
    run: Run,
    moves: Moves,
    original: OriginalSettings,
    *,
    remove_topics: bool = False,
    unload: bool = True,
) -> dict[str, JsonObject]:
    """End replication and remove from blue what continues on green; only after the verdict. Results by namespace.

    The phase is FINISHED when no subscription and no client is left on blue, else CLEANED; the ledger stores what is
    left. Of a namespace with an unterminated partition nothing is removed: its phase is INCOMPLETE.

    :param remove_topics: see `clean_up_namespace`.
    :param unload: whether terminated topics are unloaded, see `unload_read`.
    :raises PreconditionFailed: a namespace is incomplete; all others are cleaned up.
    """
    results: dict[str, JsonObject] = {}
    incomplete: list[str] = []
    async with sides.open() as (blue, green):
        unsettled = {
            topic: cause for topic, cause in (await unterminated(blue, green, run, moves.moves)).items() if cause
        }
        unloads = unload and not remove_topics and await redirects_at_once(blue, run)
        for move in moves.moves:
            name = str(move.namespace)
            if left := {topic: cause for topic, cause in unsettled.items() if topic in move.partitions}:
                incomplete.append(incomplete_text(move, left, moves.blue))
                run.ledger.enter_phase(run.id, name, Phase.INCOMPLETE, {"unterminated": sorted(map(str, left))})
                continue
            result = await clean_up_namespace(
                blue, green, move, run, moves, original, remove_topics=remove_topics, unload=unloads
            )
            results[name] = {
                **result.to_json(),
                "text": result.leftovers.text(moves.blue, redirects=move.strategy.redirects),
            }
            log.info("%s", results[name]["text"])
            phase = Phase.FINISHED if result.leftovers.is_unused else Phase.CLEANED
            run.ledger.enter_phase(run.id, name, phase, results[name])
    if incomplete:
        raise PreconditionFailed("\n".join(incomplete), cluster=moves.blue)
    return results


async def clean_up_namespace(
    blue: AdminClient,
    green: AdminClient,
    move: Move,
    run: Run,
    moves: Moves,
    original: OriginalSettings,
    *,
    remove_topics: bool,
    unload: bool,
) -> NamespaceCleanUp:
    """End replication, remove from blue the subscriptions that were transferred to green, and its topics on request.

    A consumer that reads such a subscription on blue would get messages that green delivers again. Idempotent. Where
    the strategy keeps subscriptions, they are set to their end instead of removed.

    :param original: with the lists of clusters before the run, to which blue goes on replicating.
    :param unload: unload the topics of which nothing is left to read.
    :param remove_topics: consumers that subscribe by pattern lose a topic on green when it is deleted here, and clients
        cannot reach a partitioned topic through blue any more: only when all applications name green.
    :raises PreconditionFailed: there is no verdict, a client is still connected, or a topic was recreated.
    """
    require_verdict(run, move)
    if move.strategy.copies:
        clusters = original.replication[str(move.namespace)]
        lists: Collection[TopicName] = original.own_lists(move.namespace)
        if move.strategy.is_moved_before:
            # It has replicated to green before the run, for a return that is over.
            clusters, lists = [name for name in clusters if name != moves.green], move.stored_topics
        await end_replication(blue, moves.blue, move.namespace, moves.green, clusters, lists)
    await _end_outgoing(blue, move, moves, original.own_lists(move.namespace))
    topics = stored_transfers(run, str(move.namespace)).values()
    finish = _skip_backlog if move.strategy.keeps_subscriptions else _remove_subscription
    removed = [
        await finish(blue, TopicName.parse(cursor.topic), cursor.subscription, moves.blue, run)
        for topic in topics
        for cursor in topic.cursors
    ]
    shared = await share_store(blue, green, move.namespace)
    if shared:
        # With blue alone in the list that both read, green looks as if it replicated to blue. Blue stays allowed, so
        # that it keeps its topics (observed on 4.2.4).
        await replace_cluster(green, moves.green, move.namespace, moves.blue, moves.green)
    removed_topics = await _remove_topics(blue, move, moves.blue, run, shared=shared) if remove_topics else 0
    if unload and not move.strategy.keeps_subscriptions:
        await unload_read(blue, move.partitions)
    return NamespaceCleanUp(sum(removed), removed_topics, await read_leftovers(blue, move))


async def _end_outgoing(blue: AdminClient, move: Move, moves: Moves, own: Mapping[TopicName, Sequence[str]]) -> None:
    """End the replication to third clusters that have everything of blue: green has their names in its list.

    Brokers refuse to remove a topic that is replicated, which a failback has to do. One that may lack something keeps
    its place in the list: a later call ends it.

    :param own: topics with lists of their own, which count instead.
    """
    listed = {*((await blue.namespace(move.namespace) or {}).get("replication_clusters") or ())}
    thirds = sorted(listed - {moves.blue, moves.green})
    statistics = await stats_of(blue, move.partitions) if thirds else {}
    for cluster in thirds:
        waiting = [
            str(topic)
            for topic, stats in statistics.items()
            if cluster in own.get(topic.parent, listed)
            and (not isinstance(stats, TopicStats) or stats.replication_backlog.get(cluster, 1))
        ]
        if waiting:
            log.warning("%s: %s may lack messages of %s, so it stays in its list", moves.blue, cluster, waiting[0])
            continue
        await end_replication(blue, moves.blue, move.namespace, cluster, (), move.stored_topics)


async def redirects_at_once(blue: AdminClient, run: Run) -> bool:
    """Whether every broker redirects clients of unloaded topics without waiting, by its version: a call for each.

    Others stand still for 30 s when about as many such clients connect at once as they have cores (observed, 4.0.7). A
    broker that does not tell its version, or was accepted as unread, may be of any.
    """
    if accepted_as_unread(run):
        return False
    try:
        versions = await asyncio.gather(*(blue.version(broker) for broker in await blue.brokers()))
    except FleetError as error:
        log.warning("%s: the versions of its brokers are unknown: %s", blue.connection.name, error)
        return False
    return all(map(REDIRECTS_WITHOUT_WAITING.holds, versions))


async def unload_read(blue: AdminClient, partitions: Collection[TopicName], *, terminated: bool = False) -> None:
    """Unload the terminated partitions of which nothing is left to read.

    A loaded one accepts a subscription that does not exist any more, delivers everything that is stored to it, and
    redirects it then: an application that restarts would get all messages again, each time (observed, 4.0 to 5.0). An
    unloaded one is not loaded under the flag: its clients are redirected when they connect. Nothing can be read from it
    any more, so proofs come before. Calls: one for each topic, one for each partition; a second call changes nothing.

    :param terminated: find out which of them are: one that is not would never be, since it is not loaded again.
    """
    statistics = await stats_of(blue, partitions)
    read = [topic for topic, stats in statistics.items() if isinstance(stats, TopicStats) and _is_read(stats)]
    if terminated:
        others = await without_termination(blue, read)
        read = [topic for topic in read if topic not in others]
    await asyncio.gather(*(blue.put(f"/{topic.path}/unload") for topic in read))


async def without_termination(blue: AdminClient, partitions: Sequence[TopicName]) -> list[TopicName]:
    """Those that are not terminated; one of which that cannot be read is none of them. A call for each."""

    async def is_open(topic: TopicName) -> bool:
        try:
            return "terminatedPosition" not in await blue.internal_info(topic, answered_retry_seconds=0)
        except FleetError:
            return False

    found = await asyncio.gather(*map(is_open, partitions))
    return [topic for topic, is_open in zip(partitions, found, strict=True) if is_open]


def _is_read(stats: TopicStats) -> bool:
    """Whether neither a subscription nor another cluster lacks a message of it."""
    unread = any(subscription.backlog for subscription in stats.subscriptions.values())
    return not unread and not any(stats.replication_backlog.values())


def require_verdict(run: Run, move: Move) -> None:
    """`PreconditionFailed` unless this run has verified that no message of the namespace is on blue only."""
    verdicts = {stored.scope: stored.verdict for stored in run.ledger.verdicts(run.id)}
    verdict = verdicts.get(str(move.namespace))
    if verdict not in PROVEN:
        raise PreconditionFailed(
            f"{move.namespace} has the verdict {verdict!r} in this run: nothing is removed before it is verified. "
            "Clear the task verify_messages."
        )


async def _remove_subscription(blue: AdminClient, topic: TopicName, name: str, own: str, run: Run) -> int:
    try:
        cursor = cursors_in_stats(await blue.internal_stats(topic)).get(name)
    except NotFound:
        return 0
    except Conflict:
        # Unloaded under the flag: it cannot be changed while the flag is set. If it exists, it counts as left.
        return 0
    if cursor is None:
        return 0
    await blue.delete_subscription(topic, name)
    before = {"markDeletePosition": str(cursor.mark_delete)}
    _record(run, own, f"subscription:{topic}:{name}", f"{topic} · {name}", "remove subscription", before, _CONTINUES)
    return 1


async def _skip_backlog(blue: AdminClient, topic: TopicName, name: str, own: str, run: Run) -> int:
    """Set a subscription to its end; 1 if it was elsewhere."""
    try:
        stats = TopicStats.of(topic, await blue.stats(topic, precise=True))
    except NotFound:
        return 0
    subscription = stats.subscriptions.get(name)
    if subscription is None or not subscription.backlog:
        return 0
    await blue.post(f"{topic.subscription_path(name)}/skip_all")
    before = {"backlog": subscription.backlog}
    _record(run, own, f"subscription:{topic}:{name}", f"{topic} · {name}", "skip the backlog", before, _CONTINUES)
    return 1


async def _remove_topics(blue: AdminClient, move: Move, own: str, run: Run, *, shared: bool) -> int:
    leftovers = await read_leftovers(blue, move)
    if not leftovers.is_unused:
        raise PreconditionFailed(f"No topic of {move.namespace} was removed. {leftovers.text(own)}")
    topics = {TopicName.parse(text).parent for text in leftovers.topics}
    for topic in sorted(topics):
        await remove_topic(blue, topic, move.topics[topic], shared=shared)
        _record(run, own, f"topic:{topic}", str(topic), "remove topic", {"partitions": move.topics[topic]}, "")
    await require_gone(blue, move.topics, seconds=RECREATED_SECONDS if topics else 0, shared=shared)
    return len(topics)


async def remove_topic(
    admin: AdminClient, topic: TopicName, partitions: int, *, shared: bool, force: bool = False
) -> None:
    """Delete a topic with all its partitions; a topic that does not exist is no error.

    :param shared: another cluster has the same configuration store, and goes on with the topic. To delete the number of
        partitions deletes it for both: each partition is deleted alone, and the number stays.
    :raises Conflict: it has subscriptions or clients, which `force` would drop.
    """
    paths = [f"/{topic.path}/partitions" if partitions else f"/{topic.path}"]
    if partitions and shared:
        paths = [f"/{partition.path}" for partition in topic.partitions(partitions)]
    for path in paths:
        with suppress(NotFound):
            await admin.delete(path, force=force)


async def require_gone(admin: AdminClient, topics: Mapping[TopicName, int], *, seconds: float, shared: bool) -> None:
    """Refuse with `PreconditionFailed` when a client or the replicator recreates a removed topic within `seconds`.

    :param shared: see `remove_topic`.
    """
    await asyncio.sleep(seconds)
    listed: list[TopicName] = []
    for name in {topic.namespace for topic in topics}:
        listed += [*await admin.topics(name), *(() if shared else await admin.partitioned_topics(name))]
    if back := sorted({topic.parent for topic in listed} & topics.keys()):
        raise PreconditionFailed(
            f"{len(back)} removed topics were recreated on {admin.connection.name}, first {back[0]}: turn automatic "
            "topic creation off for the namespace there, then run again.",
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
    run.ledger.record(run.id, new_changes=(removed,))
