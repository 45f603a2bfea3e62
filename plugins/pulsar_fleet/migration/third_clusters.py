"""Other clusters that replicate into a namespace that moves: held at its cut-over, then led to the new cluster.

A replicator that stands still has a cursor behind the last entry that the old cluster has stored. One to the new
cluster that begins behind it sends the rest: nothing is lost, nothing comes twice, and the order of each producer stays
(observed, 3.0.7 to 5.0.1).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.polling import all_ended
from pulsar_fleet.cluster.runs.overrides import HELD_REPLICATION, NamespaceOverrides, overrides_in
from pulsar_fleet.cluster.statistics import cursors_in_stats, replicator_cursor
from pulsar_fleet.cluster.text import listed as listed_texts
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import (
    allow_cluster,
    allow_in_namespace,
    own_lists,
    register_cluster,
    replace_cluster,
    wait_ended,
)
from pulsar_fleet.links.partition_stats import required_internal_stats, required_stats
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import read_terminations
from pulsar_fleet.migration.model import Move, Moves
from pulsar_fleet.migration.prepare.freeze import store_record
from pulsar_fleet.migration.prepare.lease import leave_on, renew_on
from pulsar_fleet.migration.prepare.overrides import REPLICATOR_RATE, OriginalSettings, override
from pulsar_fleet.migration.prepare.restore import restore_original_settings
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

_STILL_SECONDS, _LINKED_SECONDS = 30.0, 60.0
_POLL_SECONDS = 0.3
_UNCHANGED_SECONDS = 2.0
"""Each application of a rate lets one more entry pass, and brokers apply an update of policies a moment later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThirdLists:
    """To which clusters another cluster replicates a namespace.

    :param clusters: the list of the namespace.
    :param own: topic → a list of its own, which counts instead.
    """

    clusters: frozenset[str]
    own: Mapping[TopicName, frozenset[str]]

    def names(self, cluster: str) -> bool:
        """Whether one of its lists names a cluster."""
        return cluster in self.clusters or any(cluster in clusters for clusters in self.own.values())

    def sends(self, topic: TopicName, *, to: str, but: str) -> bool:
        """Whether a topic replicates to one cluster `but` not to another."""
        return to in (clusters := self.own.get(topic, self.clusters)) and but not in clusters


async def read_lists(third: AdminClient, namespace: NamespaceName) -> ThirdLists | None:
    """The lists of a namespace on another cluster, None without the namespace; one pass over its topic policies."""
    document = await third.namespace(namespace)
    if document is None:
        return None
    clusters = frozenset(document.get("replication_clusters") or ())
    return ThirdLists(clusters=clusters, own=await own_lists(third, namespace))


async def read_third_clusters(
    sides: Sides, names: Sequence[NamespaceName]
) -> dict[str, dict[NamespaceName, ThirdLists]]:
    """Third cluster by its own name → the lists of those of the namespaces that it has.

    :raises InvalidRequest: one of them is blue or green.
    :raises Unavailable: one does not answer.
    """
    if not sides.thirds:
        return {}
    async with sides.open() as pair, sides.open_thirds() as thirds:
        own = {await admin.cluster_name(): admin.connection.argument for admin in pair}
        for cluster, third in thirds.items():
            if cluster in own:
                raise InvalidRequest(
                    f"{third.connection.argument!r} in 'third_clusters' leads to {cluster!r}, as {own[cluster]!r} "
                    "does: name only further clusters. Nothing has been changed."
                )
        read = {
            cluster: zip(names, await asyncio.gather(*(read_lists(third, name) for name in names)), strict=True)
            for cluster, third in thirds.items()
        }
    return {cluster: {name: lists for name, lists in rows if lists} for cluster, rows in read.items()}


@dataclass(frozen=True, slots=True)
class _Progress:
    """The last entry that a cluster has confirmed, and whether that is all that was sent to it."""

    position: Position
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """What another cluster replicates into the cluster that a namespace leaves.

    :param name: the other cluster's own name.
    :param old: the own name of the cluster that the namespace leaves; `new`: of the one to which it moves.
    :param partitions: those of its topics that it replicates to `old` and not to `new`.
    :param own: topics with lists of their own among them.
    """

    third: AdminClient
    name: str
    namespace: NamespaceName
    old: str
    new: str
    partitions: tuple[TopicName, ...]
    own: tuple[TopicName, ...]

    @classmethod
    async def find(cls, third: AdminClient, name: str, namespace: NamespaceName, *, old: str, new: str) -> Self | None:
        """What it replicates to `old` now; None if nothing."""
        lists = await read_lists(third, namespace)
        if lists is None or not lists.names(old):
            return None
        # What goes to both is none of the run's: to set the cursor of a replicator that works would skip or repeat.
        sent = [topic for topic in await _topics(third, namespace) if lists.sends(topic.parent, to=old, but=new)]
        if not sent and new in lists.clusters:
            return None
        return cls(
            third=third,
            name=name,
            namespace=namespace,
            old=old,
            new=new,
            partitions=tuple(sent),
            own=tuple(sorted({topic.parent for topic in sent if topic.parent in lists.own})),
        )

    async def hold(self, run: Run, new: Sides) -> None:
        """Let its replicators stand still, and wait until `old` has confirmed what they have sent.

        What is held is recorded on the third cluster first, under a lease of the run there: `restore` lifts it,
        whatever becomes of this process. A second call goes on.

        :raises PreconditionFailed: another run has the namespace there, or the replicators do not stand still. They are
            held then: the caller lifts that.
        """
        third, namespace = self.third, self.namespace
        await self._require_other_store(run)
        await register_cluster(third, self.new, new.green)
        await allow_cluster(third, namespace.tenant, self.new)
        await allow_in_namespace(third, self.name, namespace, [self.new])
        await self.renew(run)
        record = await self._record(run)
        owners = (TopicName.parse(topic) for topic in record.topic_replicator_rates)
        await asyncio.gather(*(override(third, owner, REPLICATOR_RATE, HELD_REPLICATION) for owner in owners))
        await override(third, namespace, REPLICATOR_RATE, HELD_REPLICATION)
        await self.positions()
        log.info("%s: %s holds its replication to %s", namespace, self.name, self.old)

    async def renew(self, run: Run) -> None:
        """Take or renew the lease of the run on the third cluster: what is held without one is lifted by others."""
        await renew_on(self.third, run, [str(self.namespace)])

    async def positions(self, *, unconfirmed: bool = False) -> dict[TopicName, Position]:
        """Partition → the last entry that `old` has confirmed, once its replicator stands still.

        :param unconfirmed: accept after 30 s what was sent and not confirmed: a replicator that followed the redirect
            can wait without end. At most one entry a partition comes twice.
        :raises PreconditionFailed: a replicator does not stand still within 30 s; the message names its partition.
        """
        end, since = time.monotonic() + _STILL_SECONDS, time.monotonic()
        before = await self._progress()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now, seconds = await self._progress(), time.monotonic()
            moving = [topic for topic in self.partitions if now[topic] is None or now[topic] != before[topic]]
            open_ = [topic for topic, progress in now.items() if progress and not progress.confirmed]
            before = now
            since = seconds if moving else since
            accepted = not open_ or (unconfirmed and seconds > end)
            if accepted and seconds - since >= _UNCHANGED_SECONDS:
                for topic in open_:
                    log.warning("%s has not confirmed the last entry of %s: it may come twice", self.old, topic)
                return {topic: progress.position for topic, progress in now.items() if progress}
            if seconds > end + _UNCHANGED_SECONDS * unconfirmed and (moving or open_):
                raise PreconditionFailed(
                    f"{self.name} still replicates {(moving or open_)[0]} to {self.old} {_STILL_SECONDS:.0f} s after "
                    f"its replicators were held, or {self.old} has not confirmed everything. Check the replication of "
                    "that topic, then run again.",
                    cluster=self.name,
                )

    async def _progress(self) -> dict[TopicName, _Progress | None]:
        """Partition → what `old` has of it; None without a replicator yet."""
        name, progress = replicator_cursor(self.old), dict[TopicName, _Progress | None]()
        for topic, internal in (await required_internal_stats(self.third, self.partitions)).items():
            cursor, ledgers = cursors_in_stats(internal).get(name), Ledgers.of(internal)
            sent = cursor and cursor.read and ledgers.index_after(Position(cursor.read.ledger, cursor.read.entry - 1))
            confirmed = cursor is not None and sent == ledgers.index_after(cursor.mark_delete)
            progress[topic] = _Progress(cursor.mark_delete, confirmed) if cursor else None
        return progress

    async def lead(self) -> None:
        """Let the held replication go on to `new`, behind what `old` has; a second call goes on.

        :raises PreconditionFailed: a replicator does not stand still, one to `old` does not end, or one to `new` has
            begun elsewhere.
        """
        # A client of the third cluster may have made a topic or a partition since the hold.
        latest = await Incoming.find(self.third, self.name, self.namespace, old=self.old, new=self.new)
        await (latest or self)._lead()

    async def _lead(self) -> None:
        positions = await self.positions(unconfirmed=True)
        await asyncio.gather(*(self._begin(topic, position) for topic, position in positions.items()))
        # In one write: with both in the list, what a held replicator sends now and then would go to both.
        await replace_cluster(self.third, self.name, self.namespace, self.old, self.new, self.own)
        await self._require_begun(positions)
        listed = (await self.third.namespace(self.namespace) or {}).get("replication_clusters") or ()
        await wait_ended(self.third, self.name, self.namespace, self.old, only=self.own if self.old in listed else ())
        log.info("%s: %s replicates to %s instead of %s", self.namespace, self.name, self.new, self.old)

    async def _begin(self, topic: TopicName, position: Position) -> None:
        """Let the replicator of a partition to `new` begin behind a position."""
        name = replicator_cursor(self.new)
        existing = cursors_in_stats(await self.third.internal_stats(topic)).get(name)
        if existing and existing.mark_delete == position:
            return
        begin = Position(position.ledger, position.entry + 1)
        # Of an earlier replication a cursor may be left, or only its name (observed).
        with suppress(NotFound):
            await self.third.delete_subscription(topic, name)
        await self.third.create_subscription(topic, name, begin)

    async def _require_begun(self, positions: Mapping[TopicName, Position]) -> None:
        """Refuse a replicator to `new` that began behind its position: a topic loaded again drops the cursor."""
        name, lost = replicator_cursor(self.new), []
        for topic, internal in (await required_internal_stats(self.third, [*positions])).items():
            cursor, ledgers = cursors_in_stats(internal).get(name), Ledgers.of(internal)
            # Under the hold a replicator sends an entry when it starts, and one more when the rate is applied.
            if cursor and ledgers.index_after(cursor.mark_delete) > ledgers.index_after(positions[topic]) + 2:
                lost.append(f"{topic} from {cursor.mark_delete} on, not from {positions[topic]} on")
        if lost:
            raise PreconditionFailed(
                f"{self.name} replicates {listed_texts(lost)}, to {self.new}: it loaded the topic again while its "
                f"replication was led on. {self.new} lacks the messages in between: publish them there again, "
                f"{self.name} has them. Everything else is led on; then run again.",
                cluster=self.name,
            )

    async def _require_other_store(self, run: Run) -> None:
        """Refuse a cluster that has what the run has recorded on `old` before: they share a configuration store."""
        record = overrides_in(await self.third.namespace(self.namespace) or {})
        if record and record.run == run.id and not record.holds_replication:
            raise PreconditionFailed(
                f"{self.namespace} on {self.name} has what this run has stored on {self.old}: the two share a "
                f"configuration store, so {self.name} cannot take {self.old} out of a list without {self.old} deleting "
                f"its topics. No client was redirected. Undo what the run has done: pulsar-fleet abort {run.id}",
                cluster=self.name,
            )

    async def _record(self, run: Run) -> NamespaceOverrides:
        """Record on the third cluster what is overridden there."""
        third, namespace = self.third, self.namespace
        document = await third.namespace(namespace) or {}
        if current := overrides_in(document):
            if current.run != run.id:
                raise PreconditionFailed(
                    f"{namespace} on {self.name} has overrides of the run {current.run!r}: finish that run, or restore "
                    f"what it left (pulsar-fleet restore {third.connection.argument}). No client was redirected.",
                    cluster=self.name,
                )
            return current
        async with TopicPolicyReader(third, None) as reader:
            states = await reader.read(namespace)
        with_rates = sorted({state.topic for state in states if state.policies.get(REPLICATOR_RATE)})
        rates = [await third.get(f"/{TopicName.parse(topic).path}/{REPLICATOR_RATE}") for topic in with_rates]
        record = NamespaceOverrides(
            run=run.id,
            since=datetime.now(UTC).isoformat(timespec="seconds"),
            cluster=self.name,
            replicates_to="",
            publish_rate=(document.get("publishMaxMessageRate") or {}).get(self.name),
            inactive=document.get("inactive_topic_policies"),
            replication=list(document.get("replication_clusters") or []),
            holds_replication=True,
            replicator_rate=(document.get(REPLICATOR_RATE) or {}).get(self.name),
            topic_replicator_rates=dict(zip(with_rates, rates, strict=True)),
        )
        await store_record(third, namespace, record)
        return record


async def restore_thirds(sides: Sides, run: Run, moves: Moves) -> tuple[str, ...]:
    """Lift what a run holds on third clusters, as `go_on` does; returns what had to be restored.

    Every cluster is tried, then the first failure is raised: what is held on that one stays held.
    """
    if not sides.thirds:
        return ()

    async def of_cluster(connection: ClusterConnection) -> list[str]:
        async with sides.open_third(connection) as (cluster, third):
            going = (
                go_on(third, cluster, run, move, blue=blue, old=moves.blue, new=moves.green) for move in moves.moves
            )
            return [line for lines in await all_ended(*going) for line in lines]

    async with sides.open() as (blue, _):
        restored = await all_ended(*map(of_cluster, sides.thirds))
    return tuple(line for lines in restored for line in lines)


async def go_on(
    third: AdminClient, cluster: str, run: Run, move: Move, *, blue: AdminClient, old: str, new: str
) -> tuple[str, ...]:
    """Lift what a run holds on another cluster, and give up its lease there; returns what had to be restored.

    Once `old` has terminated a partition for the migration, the replication is led to `new` first. Until then the
    namespace can stay on `old`, flagged or not, and its replication with it. What cannot be led on, or is not known,
    stays held: a second call does what is left.
    """
    namespace = move.namespace
    record = overrides_in(await third.namespace(namespace) or {})
    if record is None or record.run != run.id or not record.holds_replication:
        return ()
    if (await read_terminations(blue, move)).by_migration:
        if incoming := await Incoming.find(third, cluster, namespace, old=old, new=new):
            await incoming.lead()
        else:
            # An attempt may have ended between the change of the list and the end of the replicators.
            await wait_ended(third, cluster, namespace, old)
    original = OriginalSettings.recorded({str(namespace): record})
    restored = await restore_original_settings(third, run.id, original, brokers=False)
    await leave_on(third, run, [str(namespace)])
    return tuple(f"{line} on {third.connection.name}" for line in restored)


async def wait_linked(third: AdminClient, cluster: str, namespace: NamespaceName, *, old: str, new: str) -> None:
    """Wait until all that another cluster replicates to `new` and not to `old` is connected; call it after `go_on`.

    :raises PreconditionFailed: a partition is not after a minute; the message names it.
    """
    lists = await read_lists(third, namespace)
    if lists is None or not lists.names(new):
        return
    led = [topic for topic in await _topics(third, namespace) if lists.sends(topic.parent, to=new, but=old)]
    end = time.monotonic() + _LINKED_SECONDS
    while unlinked := [
        topic
        for topic, stats in (await required_stats(third, led, precise=False)).items()
        if not stats.replication_connected.get(new)
    ]:
        if time.monotonic() > end:
            raise PreconditionFailed(
                f"{cluster} does not replicate {unlinked[0]} to {new} {_LINKED_SECONDS:.0f} s after its list names it. "
                f"Nothing is lost: {cluster} keeps what it has not sent. Check the address and the credentials of "
                f"{new} in the cluster data on {cluster}, then run again.",
                cluster=cluster,
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _topics(third: AdminClient, namespace: NamespaceName) -> list[TopicName]:
    """Its partitions and plain topics; brokers make a partition at its first use, and delete one that is inactive."""
    return [topic for topic in await third.topics(namespace) if topic.persistent and not topic.is_system]
