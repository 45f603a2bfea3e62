"""Create on the other cluster the replicated subscriptions that it lacks, and set their flag."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.replication.failover.forecast import Forecast, SubscriptionForecast, TopicForecast


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSubscription(Document):
    """One subscription of a plain topic or partition that was changed on `to`.

    :param created_at: position of the first entry that it delivers; empty if it existed.
    :param flagged: it got the flag of a replicated subscription.
    """

    topic: str
    subscription: str
    created_at: str = ""
    flagged: bool = False


@dataclass(frozen=True, slots=True)
class Prepared(Document):
    """What was changed on `to`."""

    target: str
    subscriptions: tuple[PreparedSubscription, ...]


async def create_subscriptions(target: AdminClient, forecast: Forecast) -> Prepared:
    """Create what the forecast lacks on `to`, and set missing flags; only for subscriptions with the flag on `from`.

    One that has been created meanwhile keeps its position. A second call finds nothing to do.
    """
    changed = []
    for topic, subscription in forecast.subscriptions():
        if subscription.replicated:
            prepared = await _prepare(target, topic, subscription)
            changed += [prepared] if prepared.created_at or prepared.flagged else []
    return Prepared(forecast.target, tuple(changed))


async def _prepare(
    target: AdminClient, topic: TopicForecast, subscription: SubscriptionForecast
) -> PreparedSubscription:
    name, created_at = TopicName.parse(topic.topic), ""
    if subscription.create_at is not None:
        position = _position(topic, subscription.create_at)
        with suppress(Conflict):
            await target.create_subscription(name, subscription.subscription, position, subscription.properties)
            created_at = str(position)
    if not subscription.replicated_on_to:
        # The parameter `replicated` of the creation is lost when the topic is unloaded (observed).
        await target.post(f"{name.subscription_path(subscription.subscription)}/replicatedSubscriptionStatus", True)
    return PreparedSubscription(
        topic=topic.topic,
        subscription=subscription.subscription,
        created_at=created_at,
        flagged=not subscription.replicated_on_to,
    )


def _position(topic: TopicForecast, number: int) -> Position | str:
    """The position of an entry; of one past the last: where the next entry after the forecast lies."""
    if number == 0:
        return "earliest"
    if number < len(topic.entries_to):
        return topic.entries_to.at(number)
    last = topic.entries_to.at(number - 1)
    return Position(last.ledger, last.entry + 1)
