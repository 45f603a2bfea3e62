"""Load sources, link shadow topics, and confirm that every link is alive and that a reader gets messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import ledgers_in
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import PlanOutdated, PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import change_list
from pulsar_fleet.read_only.observe import shadow_topics_of
from pulsar_fleet.read_only.owners import owners_of
from pulsar_fleet.read_only.pair import Pair, shadow_list_call
from pulsar_fleet.read_only.recorded_calls import send_recorded

if TYPE_CHECKING:
    import pulsar

_POLL_SECONDS = 0.5
_READ_TIMEOUT_MS = 10_000
_UNSEEN = 1
"""Entries at the end of an open ledger that a shadow topic may get only with the next one."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedServing(Document):
    """What was confirmed of shadow topics.

    :param links: topics or partitions whose link is alive.
    :param read: of these, those from which a reader got a message; the others have none yet.
    :param calls: admin calls.
    :param sent: broker → the bytes that it has sent to subscriptions of the sources it owns, and of the shadow topics,
        since they were loaded.
    """

    topics: int
    links: int
    read: int
    calls: int
    seconds: float
    sent: Mapping[str, tuple[int, int]] = field(default_factory=dict)


async def load_sources(admin: AdminClient, pairs: Sequence[Pair]) -> None:
    """Load every topic and partition of the sources; one call for each, and one to read it back.

    A shadow topic that is opened before its source was ever loaded has no ledger: clients of it time out (observed).

    :raises PreconditionFailed: a source has no ledger although it was loaded.
    """
    for pair in pairs:
        for source, _ in pair.stored:
            await admin.stats(source, precise=False)
            if not ledgers_in(await admin.internal_info(source)):
                raise PreconditionFailed(
                    f"{source} has no ledger although it was loaded, so its shadow topic could not be opened. Look at "
                    "the broker's log, then run this step again.",
                    cluster=admin.connection.name,
                )


async def change_shadow_list(admin: AdminClient, pair: Pair, run: Run, *, links: bool, again: bool = False) -> bool:
    """Link the shadow topic, or end its link; the other shadow topics of the source stay. Whether the list was stored.

    :param again: store the list although it has the shadow topic: the replicators of new partitions start (observed).
    """

    async def read() -> Collection[str]:
        return await shadow_topics_of(admin, pair.source)

    async def write(before: list[str], after: list[str]) -> None:
        call, resource = shadow_list_call(pair.source, after), f"shadow topics of {pair.source}"
        await send_recorded(admin, run, call, resource=resource, before=list(before), after=list(after))

    shadow = [str(pair.shadow)]
    return await change_list(read, write, add=shadow if links else (), remove=() if links else shadow, again=again)


async def require_linked(admin: AdminClient, pairs: Sequence[Pair]) -> None:
    """Return if every shadow topic is in the list of its source; a replicator stays connected without it (observed).

    :raises PlanOutdated: one is not.
    """
    for pair in pairs:
        if str(pair.shadow) not in (listed := await shadow_topics_of(admin, pair.source)):
            raise PlanOutdated(
                f"{pair.shadow} is not in the list of shadow topics of {pair.source}, which is {list(listed)}: "
                "somebody has stored that list since it was linked, so its readers get no new messages. Start a "
                "new run with the same topics, which links what is not linked.",
                cluster=admin.connection.name,
            )


async def confirm_links(
    admin: AdminClient, pairs: Sequence[Pair], *, seconds: float, progress: Progress | None = None
) -> int:
    """Wait until the replicator of every link is connected to its shadow topic; the number of links.

    The statistics of the source say nothing about it; those of the shadow topic name the producer (observed).

    :raises PreconditionFailed: a link is not alive after `seconds`.
    """
    links = [link for pair in pairs for link in pair.stored]
    waiting, end = links, time.monotonic() + seconds
    while True:
        alive = await asyncio.gather(*(is_alive(admin, *link) for link in waiting))
        waiting = [link for link, works in zip(waiting, alive, strict=True) if not works]
        if progress:
            progress(len(links) - len(waiting), len(links))
        if not waiting:
            return len(links)
        if time.monotonic() > end:
            source, shadow = waiting[0]
            raise PreconditionFailed(
                f"{len(waiting)} of {len(links)} links are not alive after {seconds:.0f} s. First {shadow}: no "
                f"replicator of {source} is connected. Look for the name of the topic in the log of its broker, then "
                "run this step again.",
                cluster=admin.connection.name,
            )
        await asyncio.sleep(_POLL_SECONDS)


async def is_alive(admin: AdminClient, source: TopicName, shadow: TopicName) -> bool:
    """Whether the source's replicator is connected to the shadow topic. It loads the shadow topic."""
    stats = await admin.stats(shadow, precise=False)
    name = f"pulsar.repl-{source}-->{shadow}"
    return any(producer.get("producerName") == name for producer in stats.get("publishers") or ())


async def sent_by_broker(admin: AdminClient, pairs: Sequence[Pair]) -> dict[str, tuple[int, int]]:
    """Broker → bytes sent from the sources and from the shadow topics; two calls for each topic or partition."""
    sent: dict[str, list[int]] = {}
    for pair in pairs:
        for side, topics in enumerate(zip(*pair.stored, strict=True)):
            for topic, owner in (await owners_of(admin, topics)).items():
                stats = await admin.stats(topic, precise=False)
                sent.setdefault(owner, [0, 0])[side] += int(stats.get("bytesOutCounter") or 0)
    return {broker: (counts[0], counts[1]) for broker, counts in sorted(sent.items())}


async def confirm_reading(admin: AdminClient, pairs: Sequence[Pair]) -> int:
    """Read the first message of every shadow topic and partition whose source has some; the number of those read.

    :raises PreconditionFailed: a reader gets nothing within 10 s.
    """
    stored = [link for pair in pairs for link in pair.stored]
    statistics = [await admin.internal_stats(source) for source, _ in stored]
    filled = [
        shadow
        for (_, shadow), stats in zip(stored, statistics, strict=True)
        if int(stats.get("numberOfEntries") or 0) > _UNSEEN
    ]
    if filled:
        await asyncio.to_thread(_read_first, admin, filled)
    return len(filled)


def _read_first(admin: AdminClient, topics: Sequence[TopicName]) -> None:
    import pulsar

    client = open_client(admin.connection)
    try:
        for topic in topics:
            _read_one(client, topic, admin.connection.name)
    except pulsar.PulsarException as error:
        raise PreconditionFailed(
            f"No reader can be opened on a shadow topic of {admin.connection.name}: {error}. Check that our role may "
            "consume there, then run this step again.",
            cluster=admin.connection.name,
        ) from error
    finally:
        client.close()


def _read_one(client: pulsar.Client, topic: TopicName, cluster: str) -> None:
    import pulsar

    reader = client.create_reader(
        str(topic), pulsar.MessageId.earliest, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    try:
        reader.read_next(timeout_millis=_READ_TIMEOUT_MS)
    except pulsar.Timeout as error:
        raise PreconditionFailed(
            f"A reader of {topic} gets no message, although its source has some. Unload {topic} and run this step "
            "again: a shadow topic that was opened before its source has no ledgers.",
            cluster=cluster,
        ) from error
    finally:
        reader.close()
