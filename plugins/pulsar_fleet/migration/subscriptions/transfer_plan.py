"""What a cutover will do to the subscriptions of replicated topics, reported before it happens; changes nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.cursor_setting import MAX_CARRIED
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors
from pulsar_fleet.migration.artefacts import CURSOR_TRANSFERS
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.unread_brokers import BrokerSettings, read_settings

_MAX_LISTED = 100
_BY_BATCH_INDEX = "acknowledgmentAtBatchIndexLevelEnabled"


class IndividuallyAcknowledged(StrEnum):
    """What happens to entries that a subscription acknowledged individually, beyond its mark-delete position."""

    CARRY = "carry"
    """They are acknowledged on green too."""

    REDELIVER = "redeliver"
    """Green delivers them again; their number is reported before and after the cutover."""


def carries(policy: IndividuallyAcknowledged, cursor: SubscriptionCursor) -> bool:
    """Whether its individual acknowledgments are repeated on green; otherwise their entries are redelivered."""
    return policy is IndividuallyAcknowledged.CARRY and len(cursor.individually_acknowledged) <= MAX_CARRIED


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTransfer:
    """What would happen to one subscription of one partition at a cutover now; in entries.

    :param consumers: with any, it reads its backlog on blue and continues behind that on green.
    :param individually_acknowledged: acknowledged beyond the mark-delete position.
    :param carried: these are acknowledged on green too; otherwise they are redelivered.
    :param repeated: where its owner connects it to green, what it acknowledges on blue between two polls, at its
        present rate; None where it is redirected.
    """

    topic: str
    subscription: str
    consumers: int
    unread: int
    individually_acknowledged: int
    carried: bool
    repeated: int | None = None

    @property
    def redelivered(self) -> int:
        """Entries that green delivers again."""
        if self.repeated is not None:
            return self.repeated + self.individually_acknowledged
        return 0 if self.carried or self.consumers else self.individually_acknowledged

    def text(self, blue: str, green: str) -> str:
        """One line for the plan, with the names of both clusters."""
        if self.repeated is not None:
            rate = f"about {counted(self.repeated, 'entry')} acknowledged in the {POLL_SECONDS:.0f} s before it leaves"
            alone = counted(self.individually_acknowledged, "individually acknowledged entry")
            action = f"gets again {rate}, and {alone}" if self.redelivered else "gets nothing again at its present rate"
        elif self.consumers:
            unread = counted(self.unread, "unread entry")
            action = f"{counted(self.consumers, 'consumer')} first on {blue}, with {unread}, then on {green}"
        elif self.individually_acknowledged:
            result = f"acknowledged on {green} too" if self.carried else "**redelivered**"
            action = (
                f"continues on {green} with {counted(self.unread, 'unread entry')}; "
                f"{counted(self.individually_acknowledged, 'individually acknowledged entry')} {result}"
            )
        else:
            action = f"continues on {green} with {counted(self.unread, 'unread entry')}"
        return f"* `{self.subscription}` on `{self.topic}`: {action}"


def plan_cursors(
    topic: TopicName,
    cursors: Mapping[str, SubscriptionCursor],
    policy: IndividuallyAcknowledged,
    rates: Mapping[str, float] | None = None,
) -> tuple[PlannedTransfer, ...]:
    """The subscriptions of one partition, by name.

    :param rates: entries that each reads in a second, where their owners connect them to green; None for a redirect.
    """
    return tuple(
        PlannedTransfer(
            topic=str(topic),
            subscription=name,
            consumers=cursor.consumers,
            unread=len(cursor.unread),
            individually_acknowledged=len(cursor.individually_acknowledged),
            carried=rates is None and carries(policy, cursor),
            repeated=None if rates is None else math.ceil(rates[name] * POLL_SECONDS),
        )
        for name, cursor in sorted(cursors.items())
    )


def transfers_text(plans: Sequence[PlannedTransfer], blue: str, green: str, *, batch_index: bool) -> str:
    """Markdown: every subscription, and how many entries are redelivered.

    :param batch_index: blue acknowledges single messages within a batch.
    """
    if not plans:
        return ""
    redelivered = sum(plan.redelivered for plan in plans)
    batches = (
        f"The brokers of {blue} keep acknowledgments of single messages within a batch, and no call returns them: a "
        "batch of which only some messages were acknowledged is redelivered as a whole."
        if batch_index
        else "A batch of which only some messages were acknowledged is redelivered as a whole, as on every reconnect."
    )
    lines = [plan.text(blue, green) for plan in plans[:_MAX_LISTED]]
    if len(plans) > _MAX_LISTED:
        lines.append(f"* … and {len(plans) - _MAX_LISTED:,} more subscriptions, all in {CURSOR_TRANSFERS}")
    return "\n".join([*lines, f"* Redelivered in total: {counted(redelivered, 'entry')}. {batches}"])


async def plan_transfers(
    blue: AdminClient,
    run: Run,
    moves: Moves,
    individually_acknowledged: IndividuallyAcknowledged = IndividuallyAcknowledged.CARRY,
) -> Reference:
    """Read the subscriptions that will be replicated and store the plan. Two calls for each partition."""
    # Of applications that moved before green has the positions already.
    copied = [move for move in moves.moves if move.strategy.copies and not move.strategy.is_moved_before]
    topics = [(topic, move.strategy.redirects) for move in copied for topic in move.partitions]
    partitions = await asyncio.gather(
        *(_plan(blue, topic, individually_acknowledged, redirects=redirects) for topic, redirects in topics)
    )
    plans = [plan for partition in partitions for plan in partition]
    brokers = await read_settings(blue, run) if topics else BrokerSettings({})
    # Of a broker that is accepted as unknown the worse is said.
    batch_index = bool(brokers.unread) or any(
        settings.get(_BY_BATCH_INDEX) == "true" for settings in brokers.settings.values()
    )
    document: JsonObject = {
        "schema_version": 1,
        "plans": [{**asdict(plan), "redelivered": plan.redelivered} for plan in plans],
        "hidden_batch_acknowledgments": batch_index,
        "text": transfers_text(plans, moves.blue, moves.green, batch_index=batch_index),
    }
    return run.artefacts.write_json(run.id, CURSOR_TRANSFERS, document)


async def _plan(
    blue: AdminClient, topic: TopicName, policy: IndividuallyAcknowledged, *, redirects: bool
) -> tuple[PlannedTransfer, ...]:
    try:
        document, internal = await asyncio.gather(blue.stats(topic, precise=False), blue.internal_stats(topic))
    except NotFound:
        # An inactive partition that the broker has deleted has no subscription.
        return ()
    stats = TopicStats.of(topic, document)
    rates = None if redirects else {name: subscription.read_rate for name, subscription in stats.subscriptions.items()}
    return plan_cursors(topic, subscription_cursors(Ledgers.of(internal), stats, internal), policy, rates)
