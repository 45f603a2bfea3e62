"""Find the links whose replicator is connected and sends nothing, and start them again.

A broker that replicates topics with schemas to other clusters may hand the schema of one of their messages to a message
of a shadow topic. Its namespace accepts no schema from clients, so the replicator never continues (observed with 4.2.4;
the code of 3.0 and 4.0 does the same). If it accepted it, readers would decode messages with another topic's schema.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import cursors_in_stats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.read_only.links import is_alive
from pulsar_fleet.read_only.recorded_calls import send_recorded

STOPPED_SECONDS = 10.0
"""A replicator that is only slow or limited sends something in this time."""

Link = tuple[TopicName, TopicName]
"""A source or its partition, and the shadow topic or its partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many entries a replicator has sent since its source was loaded, and how many are left."""

    sent: int
    unsent: int


async def progress_of(admin: AdminClient, link: Link) -> Progress:
    """What a link has sent: one call. The statistics of the source say nothing of it, those of its ledger do."""
    source, shadow = link
    stats = await admin.internal_stats(source)
    cursor = cursors_in_stats(stats).get(f"pulsar.repl-{shadow}")
    sent = cursor.consumed if cursor else int(stats["entriesAddedCounter"])
    return Progress(sent=sent, unsent=max(0, int(stats["entriesAddedCounter"]) - sent))


async def stopped_links(
    admin: AdminClient, links: Sequence[Link], *, seconds: float = STOPPED_SECONDS
) -> tuple[Link, ...]:
    """The links that are connected, have entries to send, and send none for `seconds`.

    It waits only if entries are unsent. Calls: one for each link, two more for each with unsent entries.
    """
    first = {link: await progress_of(admin, link) for link in links}
    waiting = {link: progress for link, progress in first.items() if progress.unsent}
    if not waiting:
        return ()
    await asyncio.sleep(seconds)
    stopped = []
    for link, before in waiting.items():
        now = await progress_of(admin, link)
        if now.unsent and now.sent == before.sent and await is_alive(admin, *link):
            stopped.append(link)
    return tuple(stopped)


async def restart_links(admin: AdminClient, links: Sequence[Link], run: Run) -> None:
    """Unload the sources: each gets a new replicator, and a new ledger, by which its shadow topic has all messages.

    Clients of a source reconnect at once, as after every unload. A second call unloads again.
    """
    for source, shadow in links:
        await send_recorded(admin, run, bare("PUT", f"/{source.path}/unload"), resource=f"topic {source}")
        await is_alive(admin, source, shadow)
        await admin.stats(source, precise=False)
