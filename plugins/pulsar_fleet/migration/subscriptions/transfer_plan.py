"""What a switch will do to the subscriptions of what is replicated, told before it happens; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors
from pulsar_fleet.migration.artefacts import PLACEMENTS
from pulsar_fleet.migration.model import Moves, Strategy
from pulsar_fleet.migration.subscriptions.cursors import Singles, carries

_MOST = 100
_BY_BATCH_INDEX = "acknowledgmentAtBatchIndexLevelEnabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What becomes of one subscription of one partition if the switch were now; in entries.

    :param consumers: with any, it reads to the end on blue and goes on behind that on green.
    :param alone: acknowledged one by one, behind an entry that is not.
    :param carried: these are acknowledged on green too; else they come again.
    """

    topic: str
    subscription: str
    consumers: int
    unread: int
    alone: int
    carried: bool

    @property
    def redelivered(self) -> int:
        """Entries that come again."""
        return 0 if self.carried or self.consumers else self.alone

    def text(self) -> str:
        """One line for the plan."""
        if self.consumers:
            what = f"its {self.consumers} consumers read the {self.unread:,} unread entries on blue, then go to green"
        elif self.alone:
            again = "acknowledged on green too" if self.carried else "**delivered again**"
            what = (
                f"continues on green with {self.unread:,} unread entries; {self.alone:,} acknowledged singly: {again}"
            )
        else:
            what = f"continues on green with {self.unread:,} unread entries"
        return f"* `{self.subscription}` on `{self.topic}`: {what}"


def planned(topic: TopicName, subscriptions: Mapping[str, SubscriptionCursor], singles: Singles) -> tuple[Planned, ...]:
    """The subscriptions of one partition, by name."""
    return tuple(
        Planned(
            topic=str(topic),
            subscription=name,
            consumers=one.consumers,
            unread=len(one.unread),
            alone=len(one.alone),
            carried=carries(singles, one),
        )
        for name, one in sorted(subscriptions.items())
    )


def placements_text(plans: Sequence[Planned], *, hidden: bool) -> str:
    """Markdown: every subscription, how many entries come again, and what cannot be seen."""
    if not plans:
        return ""
    again = sum(one.redelivered for one in plans)
    unseen = (
        "Brokers of blue keep acknowledgments of single messages within a batch, and show them to nobody: a batch of "
        "which only some messages were acknowledged comes again as a whole."
        if hidden
        else "A batch of which only some messages were acknowledged comes again as a whole, as on every reconnect."
    )
    shown = [one.text() for one in plans[:_MOST]]
    if len(plans) > _MOST:
        shown.append(f"* … and {len(plans) - _MOST:,} more subscriptions, all in {PLACEMENTS}")
    return "\n".join([*shown, f"* In all {again:,} entries come again. {unseen}"])


async def plan_placements(blue: AdminClient, run: Run, moves: Moves, singles: Singles = Singles.CARRY) -> Reference:
    """Look at the subscriptions of what will be replicated and keep the plan. Two calls a partition, no change."""
    topics = [topic for move in moves.moves if move.strategy is Strategy.REPLICATE for topic in move.partitions]
    found = await asyncio.gather(*(_plan(blue, topic, singles) for topic in topics))
    plans = [one for each in found for one in each]
    settings = [await blue.runtime_configuration(broker) for broker in await blue.brokers()] if topics else []
    hidden = _is_on(settings)
    document: JsonObject = {
        "schema_version": 1,
        "plans": [{**asdict(one), "redelivered": one.redelivered} for one in plans],
        "hidden_batch_acknowledgments": hidden,
        "text": placements_text(plans, hidden=hidden),
    }
    return run.artefacts.write_json(run.id, PLACEMENTS, document)


async def _plan(blue: AdminClient, topic: TopicName, singles: Singles) -> tuple[Planned, ...]:
    stats, held = await asyncio.gather(blue.stats(topic, precise=False), blue.internal_stats(topic))
    return planned(topic, subscription_cursors(Ledgers.of(held), TopicStats.of(topic, stats), held), singles)


def _is_on(brokers: Iterable[Mapping[str, str]]) -> bool:
    return any(settings.get(_BY_BATCH_INDEX) == "true" for settings in brokers)
