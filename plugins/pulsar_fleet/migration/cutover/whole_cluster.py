"""The flag of a whole cluster, which a broker of Pulsar 3.0 has instead of one for each namespace.

Every namespace is prepared by itself; the flag is set once, when the producers of the last one are quiesced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.cutover.redirect import Redirect, set_cluster_flag
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.scope import namespaces_besides

log = logging.getLogger(__name__)

Result = TypeVar("Result")
_END = 2**63 - 1
_RECONNECT_SECONDS = 20.0
_RECONNECT_POLL_SECONDS = 0.5
_ATTEMPT_SECONDS = 5.0
"""A consumer of a Failover subscription begins to read a second after it connected (observed)."""


class ClusterFlag:
    """The flag of blue, which is set when every namespace that waits for it has called `set`.

    :param moves: of the run; blue may have no other namespace.
    :param waiting: how many of them are still to be cut over.
    """

    def __init__(self, blue: AdminClient, moves: Sequence[Move], redirect: Redirect, *, waiting: int) -> None:
        self._blue, self._moves, self._redirect, self._waiting = blue, moves, redirect, waiting
        self._held: list[Callable[[], None]] = []
        self._is_set = asyncio.Event()

    async def require_all(self) -> None:
        """`PreconditionFailed` if blue has a namespace that does not move: the flag would terminate its topics."""
        names = {move.namespace for move in self._moves}
        if besides := await namespaces_besides(self._blue, names):
            raise PreconditionFailed(
                f"{self._blue.connection.name} has {counted(len(besides), 'namespace')} that this run does not move: "
                f"{listed(besides)}. The flag of the cluster would terminate their topics, so nothing was flagged. "
                "Delete them if nobody uses them, and clear the task; otherwise abort the run, and start it again with "
                "every namespace.",
                cluster=self._blue.connection.name,
            )

    async def set(self, require_held: Callable[[], None]) -> None:
        """Wait until every namespace has come here, then set the flag, unless an earlier attempt did.

        :param require_held: raises an error if the producers of the namespace are not throttled any more.
        """
        self._held.append(require_held)
        if len(self._held) == self._waiting:
            if not await redirects_every_topic(self._blue):
                await self.require_all()
                for require in self._held:
                    require()
                await set_cluster_flag(self._blue, self._redirect, migrated=True)
            self._is_set.set()
        await self._is_set.wait()


async def together(cut_over: Callable[[Move], Awaitable[Result]], moves: Sequence[Move]) -> list[Result]:
    """Cut over all of these at once; when one fails, the others stop before its error is raised."""
    tasks = [asyncio.ensure_future(cut_over(move)) for move in moves]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in sorted(failures, key=lambda error: isinstance(error, asyncio.CancelledError)):
        raise failure
    return [result for result in results if not isinstance(result, BaseException)]


async def reconnect_consumers(blue: AdminClient, partitions: Sequence[TopicName]) -> None:
    """Disconnect consumers that have read everything, so that blue redirects them when they connect again.

    A broker of Pulsar 3.0 redirects a consumer that acknowledges the last message or reads behind it; one that waits
    for messages at the termination stays (observed: 9 of 9). A reset of its cursor to the end, where it is,
    disconnects it, and delivers nothing again. One with a backlog is left alone; the drain sees to what is left.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _RECONNECT_SECONDS
    attempted: dict[tuple[TopicName, str], float] = {}
    while (now := loop.time()) < end:
        waiting = await waiting_subscriptions(blue, partitions)
        if not waiting:
            return
        due = [key for key in waiting if now - attempted.get(key, -_ATTEMPT_SECONDS) >= _ATTEMPT_SECONDS]
        if due:
            log.info("%s: consumers of %s are reconnected", blue.connection.name, counted(len(due), "subscription"))
        attempted |= dict.fromkeys(due, now)
        await asyncio.gather(*(set_to_end(blue, topic, name) for topic, name in due))
        await asyncio.sleep(_RECONNECT_POLL_SECONDS)
    log.warning("%s: consumers that have read everything are still connected", blue.connection.name)


async def waiting_subscriptions(blue: AdminClient, partitions: Sequence[TopicName]) -> list[tuple[TopicName, str]]:
    """The subscriptions whose connected consumers have nothing more to read; two calls for each topic at most."""
    statistics = await stats_of(blue, partitions, precise=True)
    return [
        (topic, name)
        for topic, stats in statistics.items()
        if isinstance(stats, TopicStats)
        for name, subscription in stats.subscriptions.items()
        if subscription.durable and subscription.consumers and not subscription.backlog
    ]


async def set_to_end(blue: AdminClient, topic: TopicName, subscription: str) -> None:
    """Reset the cursor to the end, which disconnects its consumers."""
    await blue.post(
        f"{topic.subscription_path(subscription)}/resetcursor",
        {"ledgerId": _END, "entryId": _END, "partitionIndex": -1, "batchIndex": -1},
    )
