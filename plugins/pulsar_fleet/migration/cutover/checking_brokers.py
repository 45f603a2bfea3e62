"""Which brokers of blue check the flag, how often, and how a topic gets to one that does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.unread_brokers import read_settings

log = logging.getLogger(__name__)

CHECK_PERIOD = "clusterMigrationCheckDurationSeconds"
SELDOM_SECONDS = 10
"""A longer period prolongs the publish pause, and a gate warns of it."""

_LOADED_SECONDS = 20.0
_MOST_MOVES = 5
_SLACK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CheckPeriods:
    """How often the brokers of blue check the flag.

    :param seconds: broker → seconds between two checks; 0 means that its migration check is off.
    :param unread: brokers of which it is unknown; a waiver has accepted that.
    """

    seconds: Mapping[str, float]
    unread: tuple[str, ...] = ()

    @property
    def longest(self) -> float:
        """In seconds; an unknown period counts as the longest that no gate warns of."""
        return max([*self.seconds.values(), *(SELDOM_SECONDS for _ in self.unread)])

    @property
    def until_terminated(self) -> float:
        """How many seconds a termination takes at most: two checks, and some time of a busy broker."""
        return 2 * self.longest + _SLACK_SECONDS


async def check_periods(blue: AdminClient, run: Run) -> CheckPeriods:
    """How often each broker checks the flag; the run says which brokers need not be read. One call for each broker."""
    brokers = await read_settings(blue, run)
    seconds = {broker: float(settings.get(CHECK_PERIOD) or 0) for broker, settings in brokers.settings.items()}
    return CheckPeriods(seconds, brokers.unread)


async def move_to_checking_brokers(
    blue: AdminClient, move: Move, topics: Sequence[TopicName], periods: CheckPeriods
) -> tuple[str, ...]:
    """Move the bundles of these partitions to a broker that checks the flag; none if there is no such broker.

    The flag is off meanwhile, since a bundle that moves under it strands its topics, and set again at the end.
    Producers must be throttled. Terminated topics move without harm (observed: 4–7 duplicates for each moved topic,
    0 lost).
    """
    checking = sorted(broker for broker, seconds in periods.seconds.items() if seconds > 0)
    not_checking = sorted(broker for broker, seconds in periods.seconds.items() if seconds <= 0)
    if not checking or not not_checking:
        return ()
    bundles = sorted({f"{move.namespace.path}/{await blue.bundle(topic)}" for topic in topics})
    log.warning(
        "%s: %s do not check the flag; bundles %s are moved to %s", move.namespace, not_checking, bundles, checking[0]
    )
    await set_flag(blue, move.namespace, migrated=False)
    try:
        await _move(blue, bundles, topics, checking[0])
    finally:
        await set_flag(blue, move.namespace, migrated=True)
    return tuple(bundle.rpartition("/")[2] for bundle in bundles)


async def _move(blue: AdminClient, bundles: Sequence[str], topics: Sequence[TopicName], broker: str) -> None:
    """Let a broker serve these bundles (`tenant/namespace/begin_end`), and load the topics.

    A busy cluster may give a bundle to another broker than the one that is asked for (observed): it is moved again.
    """
    waiting = list(bundles)
    for _ in range(_MOST_MOVES):
        for bundle in waiting:
            await blue.put(f"/namespaces/{bundle}/unload", destinationBroker=broker)
        # What is not served resists behind the flag, and is named there: the others must not wait for it.
        for topic, error in (await load_all(blue, topics)).items():
            log.warning("%s is not served: %s", topic, error)
        owned = await blue.owned_bundles(broker)
        if not (waiting := [bundle for bundle in waiting if bundle not in owned]):
            return
        log.warning("%s did not get the bundles %s", broker, waiting)


async def load_all(admin: AdminClient, topics: Sequence[TopicName]) -> dict[TopicName, FleetError]:
    """Load every partition that exists and wait until each is served; returns those that are not. The flag must be off.

    A broker may act on the flag for a moment after it was cleared: a `Conflict` is repeated for 20 s, another error is
    the answer.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _LOADED_SECONDS
    unserved: dict[TopicName, FleetError] = {}
    waiting = list(topics)
    while waiting:
        answers = await stats_of(admin, waiting, precise=False, together=False)
        errors = {
            topic: answer
            for topic, answer in answers.items()
            if isinstance(answer, FleetError) and not isinstance(answer, NotFound)
        }
        waiting = [topic for topic, error in errors.items() if isinstance(error, Conflict) and loop.time() < end]
        unserved |= {topic: error for topic, error in errors.items() if topic not in waiting}
        await asyncio.sleep(0.2 if waiting else 0)
    return unserved


async def require_loaded(admin: AdminClient, topics: Sequence[TopicName]) -> None:
    """Load every partition that exists; the flag must be off.

    :raises FleetError: the answer of a partition that is not served, when all others are.
    """
    for error in (await load_all(admin, topics)).values():
        raise error
