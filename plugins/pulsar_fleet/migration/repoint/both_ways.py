"""Let green replicate to blue what applications will write there, so that they can return; and end that again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pulsar_fleet.clients.store import Publication, publications
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.text import command_line, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import (
    allow_cluster,
    begin_replication,
    disallow_cluster,
    end_replication,
    own_lists_without,
    register_cluster,
)
from pulsar_fleet.links.partition_stats import internal_stats_documents, required_internal_stats, stats_of
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import replicated_up_to
from pulsar_fleet.migration.artefacts import BOTH_WAYS, DEPARTURE, MOVEMENT
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.termination import end_on_green
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.prepare.freeze import recreate_missing
from pulsar_fleet.migration.prepare.target import prepare_deleted, read_reserved_subscriptions
from pulsar_fleet.migration.subscriptions.transfer import CursorTransfer
from pulsar_fleet.snapshot.resources import read_partition_counts

_LINKED_SECONDS = 60.0
_CONCURRENT_PARTITIONS = 16
_MOST = 5
_MOST_LOOKED_AT, _AT_ONCE = 1_000, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Before(Document):
    """What green had of blue before the run.

    :param clusters: to which it replicated the namespace.
    :param topics: those with a list of their own that did not name blue.
    :param allowed: whether the tenant's namespaces might replicate to blue.
    :param ends: topic → its last entry when an abort found that blue had all of it, and ended the replication.
    """

    clusters: tuple[str, ...]
    topics: tuple[TopicName, ...]
    allowed: bool
    ends: Mapping[str, str] = field(default_factory=dict)


async def replicate_back(sides: Sides, run: Run, moves: Moves) -> None:
    """Let green replicate these namespaces to blue, and wait until every link is connected in both directions.

    First what green's broker has deleted as inactive since is made again. Nothing is sent yet: nobody has written to
    green, and copies are not sent back. A second call changes nothing.

    :raises PreconditionFailed: a link is not connected after a minute. No client was moved.
    """
    async with sides.open() as (blue, green):
        for move in moves.moves:
            await recreate_missing(blue, move.namespace, move.topics, green)
        await prepare_deleted(blue, green, run, moves.moves)
        await register_cluster(green, moves.blue, sides.blue)
        tenants = {move.namespace.tenant: await green.tenant(move.namespace.tenant) for move in moves.moves}
        allowed = {name: moves.blue in ((row or {}).get("allowedClusters") or ()) for name, row in tenants.items()}
        begun = begun_back(run)
        for move in moves.moves:
            if (before := begun.get(str(move.namespace))) is None:
                document = await green.namespace(move.namespace)
                before = Before(
                    clusters=tuple((document or {}).get("replication_clusters") or ()),
                    topics=await own_lists_without(green, move.namespace, moves.blue),
                    allowed=allowed[move.namespace.tenant],
                )
                # Stored first: an abort ends what this run has begun, and nothing else.
                _store(run, {str(move.namespace): before})
            await allow_cluster(green, move.namespace.tenant, moves.blue)
            await begin_replication(green, moves.green, move.namespace, moves.blue, before.topics)
        # Nobody writes to what its owner has ended, and blue takes no producer of a replicator for it.
        partitions = [topic for move in moves.moves for topic in move.partitions if topic not in move.ended]
        await _wait_linked(blue, partitions, moves.green)
        await _wait_linked(green, partitions, moves.blue)


def begun_back(run: Run) -> dict[str, Before]:
    """Namespaces that the run lets green replicate to blue, each with what was there before."""
    return {name: Before.from_json(document) for name, document in (run.stored(BOTH_WAYS) or {}).items()}


def _store(run: Run, rows: Mapping[str, Before]) -> None:
    changed = {**begun_back(run), **rows}
    run.artefacts.write_json(run.id, BOTH_WAYS, {name: before.to_json() for name, before in changed.items()})


async def _wait_linked(admin: AdminClient, topics: Sequence[TopicName], cluster: str) -> None:
    """Reading the statistics loads a topic, and starts its replicator."""
    end, waiting = time.monotonic() + _LINKED_SECONDS, list(topics)
    while True:
        answers = await stats_of(admin, waiting, precise=False)
        waiting = [
            topic
            for topic, stats in answers.items()
            # A partition that nobody has used yet.
            if not isinstance(stats, NotFound)
            and (isinstance(stats, FleetError) or not stats.replication_connected.get(cluster))
        ]
        if not waiting:
            return
        if time.monotonic() > end:
            raise PreconditionFailed(
                f"{admin.connection.name} is not connected to {cluster} for {listed(waiting, _MOST)}: no client was "
                "moved. Repair that link, then clear this task; or undo the run.",
                cluster=admin.connection.name,
            )
        await asyncio.sleep(0.5)


async def set_reserved(sides: Sides, run: Run, moves: Moves) -> None:
    """Set the subscriptions that the run has made on green, at its earliest message, to where they are on blue.

    By the place of one message each: a map by content would read everything that was copied. What its owner has
    terminated on blue is terminated on green.
    """
    slots, own = asyncio.Semaphore(_CONCURRENT_PARTITIONS), {topic for move in moves.moves for topic in move.partitions}
    async with sides.open() as (blue, green):
        transfer = CursorTransfer(blue, green)

        async def follow(topic: TopicName, names: Sequence[str]) -> None:
            async with slots:
                await transfer.follow(topic, names, {}, written=False)

        reserved = read_reserved_subscriptions(run)
        await asyncio.gather(*(follow(topic, names) for topic, names in reserved.items() if topic in own))
        if failed := await end_on_green(green, [topic for move in moves.moves for topic in move.ended]):
            topic, why = next(iter(failed.items()))
            raise PreconditionFailed(f"{topic}: {why}. No client was moved. Terminate it there, then clear this task.")


async def require_returned(sides: Sides, run: Run, moves: Moves) -> None:
    """Refuse to undo a run whose applications are on green, or have written there what blue does not have yet.

    :raises PreconditionFailed: nothing was undone.
    """
    if not moves.move_clients:
        return
    published = publications()
    for one in published:
        if _is_led_to_green(one, moves):
            raise PreconditionFailed(f"{one.text()}: nothing was undone. {_lead_back(one, sides)} Then abort again.")
    group = (run.stored(MOVEMENT) or {}).get("group")
    if may_have_led(run) and group not in {one.group for one in published}:
        raise PreconditionFailed(
            f"The applications of {group} were led to {moves.green}, and this process can read no connection document "
            "that says that they were led back: nothing was undone. Undo it where the documents are."
        )
    async with sides.open() as (blue, green):
        unsent = list[TopicName]()
        for topic, internal in (await _written_back(green, run, moves)).items():
            entries = Ledgers.of(internal)
            confirmed = replicated_up_to(entries, internal, moves.blue) or 0
            # Copies of what blue's applications write now follow behind.
            if await _holds_own(blue, green, topic, entries, confirmed):
                unsent.append(topic)
    if unsent:
        raise PreconditionFailed(
            f"{moves.blue} has not confirmed every message of {listed(unsent, _MOST)} on {moves.green}, where "
            "applications have written: nothing was undone. Abort again when it has; if it does not come to that, "
            "repair the replication between both.",
            cluster=sides.green.name,
        )


def may_have_led(run: Run) -> bool:
    """Whether the run may have led applications to green: who was connected is stored right before it publishes."""
    return run.stored(DEPARTURE) is not None


def _is_led_to_green(one: Publication, moves: Moves) -> bool:
    return one.cluster == moves.green and not {str(move.namespace) for move in moves.moves}.isdisjoint(one.namespaces)


def _lead_back(one: Publication, sides: Sides) -> str:
    if one.run:
        return f"Lead them back first: {command_line('return-clients', one.run)}."
    named = (word for name in one.namespaces for word in ("--namespaces", name))
    words = (sides.green.argument, sides.blue.argument, "--group", one.group, *named)
    return f"Lead them back first, with their positions: {command_line('move-clients', *words)}."


async def _written_back(green: AdminClient, run: Run, moves: Moves) -> dict[TopicName, JsonObject]:
    """The topics of green into which applications may have written, with their `internalStats`; refuses a client there.

    Where nobody was led to green a link that never connected must not keep the run. Left out is what an earlier try has
    found settled, and what its owner has ended.
    """
    topics, settled = list[TopicName](), dict[str, str]()
    for move in moves.moves if may_have_led(run) else ():
        before = begun_back(run).get(str(move.namespace))
        if before and await green.namespace(move.namespace) is not None:
            settled |= before.ends
            counts = await read_partition_counts(green, move.namespace)
            stored = [part for topic, count in counts.items() if topic.persistent for part in topic.partitions(count)]
            topics += [topic for topic in stored if topic not in move.ended]
    used, exist = list[str](), list[TopicName]()
    for topic, stats in (await stats_of(green, topics, precise=False)).items():
        if isinstance(stats, NotFound):
            continue
        if isinstance(stats, FleetError):
            raise stats
        used += [f"{client} on {topic}" for client in stats.clients]
        exist.append(topic)
    if used:
        raise PreconditionFailed(
            f"{listed(used, _MOST)}: connected to {moves.green} still, and what it writes there would stay there. "
            f"Restart it with the address of {moves.blue}, then abort again.",
            cluster=green.connection.name,
        )
    found = await required_internal_stats(green, exist)
    return {topic: row for topic, row in found.items() if settled.get(str(topic)) != str(row["lastConfirmedEntry"])}


async def _holds_own(blue: AdminClient, green: AdminClient, topic: TopicName, entries: Ledgers, begin: int) -> bool:
    """Whether a producer of green, and no replicator, has written one of these entries. Looks at the first thousand."""
    copies, end = Copies(blue, green, topic, Ledgers(()), entries), min(len(entries), begin + _MOST_LOOKED_AT)
    for start in range(begin, end, _AT_ONCE):
        chunk = range(start, min(start + _AT_ONCE, end))
        if True in await asyncio.gather(*(copies.is_original(index) for index in chunk)):
            return True
    return False


async def settle_back(green: AdminClient, run: Run, moves: Moves) -> None:
    """Wait until blue has confirmed everything of green, and store where that ends; call it when blue sends no more.

    :raises PreconditionFailed: it has not after a minute, or a client has come. Nothing was removed from green.
    """
    waiting = await _written_back(green, run, moves)
    end, before = time.monotonic() + _LINKED_SECONDS, begun_back(run)
    while waiting:
        settled = {topic: row for topic, row in waiting.items() if _has_all(row, moves.blue)}
        for topic, row in settled.items():
            own = before[str(topic.namespace)]
            before[str(topic.namespace)] = replace(own, ends={**own.ends, str(topic): str(row["lastConfirmedEntry"])})
        _store(run, before)
        unsent = [topic for topic in waiting if topic not in settled]
        if unsent and time.monotonic() > end:
            raise PreconditionFailed(
                f"{moves.blue} has not confirmed every message of {listed(unsent, _MOST)} on {moves.green}: nothing is "
                f"removed from there, and {moves.green} replicates to {moves.blue} still. Repair that link, then abort "
                "again.",
                cluster=green.connection.name,
            )
        await asyncio.sleep(0.5 if unsent else 0)
        waiting = await required_internal_stats(green, unsent)


def _has_all(internal: JsonObject, cluster: str) -> bool:
    entries = Ledgers.of(internal)
    return (replicated_up_to(entries, internal, cluster) or 0) >= len(entries)


async def require_unwritten(blue: AdminClient, green: AdminClient, run: Run) -> None:
    """Refuse to remove from green what was written there since `settle_back`: blue does not have it."""
    written = list[str]()
    for before in begun_back(run).values():
        for topic, stats in (await internal_stats_documents(green, map(TopicName.parse, before.ends))).items():
            if isinstance(stats, NotFound):
                continue
            if isinstance(stats, FleetError):
                raise stats
            entries, end = Ledgers.of(stats), Position.parse(before.ends[str(topic)])
            if await _holds_own(blue, green, topic, entries, entries.index_after(end)):
                written.append(str(topic))
    if written:
        raise PreconditionFailed(
            f"{listed(written, _MOST)}: somebody has written there while this run was undone. Nothing more is removed "
            "from that cluster. Find out who. When these messages are read, delete the topics there, then abort again.",
            cluster=green.connection.name,
        )


async def end_back(green: AdminClient, run: Run, moves: Moves) -> tuple[list[str], list[str]]:
    """End what `replicate_back` began: the namespaces, and what goes on. A second call ends what is left."""
    ended, remaining, before = list[str](), list[str](), begun_back(run)
    begun = [move.namespace for move in moves.moves if str(move.namespace) in before]
    begun = [name for name in begun if await green.namespace(name) is not None]
    for name in begun:
        own = before[str(name)]
        try:
            if await end_replication(green, moves.green, name, moves.blue, own.clusters, own.topics):
                ended.append(f"{name} to {moves.blue}")
        except PreconditionFailed as error:
            remaining.append(str(error))
    # The broker refuses it while another namespace of the tenant replicates.
    for tenant in dict.fromkeys(name.tenant for name in begun if not before[str(name)].allowed):
        await disallow_cluster(green, tenant, moves.blue)
    return ended, remaining


def forget_back(run: Run) -> None:
    """Forget what was there before, when everything is undone: a run that begins again reads it then."""
    if begun_back(run):
        run.artefacts.write_json(run.id, BOTH_WAYS, {})
