"""Carry acknowledgments to the owner's subscription; no call moves it backwards or disconnects its consumers."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import UNKNOWN_TYPE
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.protocol.acknowledgment import SubscriptionType, acknowledge_entries
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.read_only.forwarding.plan import ForwardingPlan
from pulsar_fleet.read_only.forwarding.topics import Link

EXCLUSIVE_IN_USE = "the owner's consumer is connected, and the subscription is exclusive"
"""Why individual acknowledgments wait, while the position was sent."""
FORWARDED_SINCE = "pulsar-fleet.forwarded-since"
"""The property of a shadow topic's subscription whose acknowledgments are forwarded; one that is deleted and created
again lacks it. Its value is the mark-delete position on the owner's side when that began.
"""


async def send(
    admin: AdminClient,
    link: Link,
    plan: ForwardingPlan,
    ledgers: Ledgers,
    name: str,
    *,
    owner: SubscriptionCursor,
    shadow: SubscriptionCursor,
) -> str:
    """Send what the owner's subscription lacks; what prevented it, empty where nothing did.

    The position is sent by `expireMessages`, which marks everything up to an entry as acknowledged, keeps individual
    acknowledgments beyond it, does nothing where the subscription is further, and leaves consumers connected (observed,
    4.2.4). A reset would drop the individual acknowledgments and move a cursor backwards that has moved meanwhile.

    Individual acknowledgments are sent by a consumer of our own, for which an exclusive subscription has no place while
    the owner is connected.

    :raises FleetError: the cluster refused a call, so that a repetition would not help.
    """
    try:
        if plan.position is not None:
            last = ledgers.at(plan.position - 1)
            index = link.source.partition_index
            # A partition answers 412 without its own number.
            own = {} if index is None else {"partitionIndex": index}
            body: JsonObject = {"ledgerId": last.ledger, "entryId": last.entry, **own}
            await admin.post(f"{link.source.subscription_path(name)}/expireMessages", body)
        if plan.individual and owner.consumers and owner.type == SubscriptionType.EXCLUSIVE:
            return EXCLUSIVE_IN_USE
        if plan.individual:
            positions = [ledgers.at(number) for number in plan.individual]
            await asyncio.to_thread(
                acknowledge_entries, admin.connection, link.source, name, _type_of(owner.type, shadow.type), positions
            )
    except (Conflict, NotFound, Unavailable) as error:
        return str(error)
    return ""


def _type_of(owner: str, shadow: str) -> SubscriptionType:
    """The type of the consumer: that of the owner's consumers; where nobody remembers one, any type is accepted."""
    known = next((kind for kind in (owner, shadow) if kind != UNKNOWN_TYPE), SubscriptionType.SHARED.value)
    return SubscriptionType(known)


async def mark_forwarded(
    admin: AdminClient, shadow: TopicName, name: str, cursor: SubscriptionCursor, since: Position
) -> None:
    """Note on a shadow topic's subscription that it is forwarded; its other properties stay. One call."""
    properties = {**cursor.properties, FORWARDED_SINCE: str(since)}
    await admin.put(f"{shadow.subscription_path(name)}/properties", properties)


async def create_forwarded(
    admin: AdminClient, link: Link, name: str, cursor: SubscriptionCursor, ledgers: Ledgers
) -> None:
    """Create the owner's subscription at the position of the shadow topic's, which is noted as forwarded. Two calls.

    :raises FleetError: it was not created; unless that is unknown (`Unavailable`), nothing is noted then, since the
        owner may create it at another position.
    """
    # Noted first: a run that dies between the calls leaves a subscription that the next pass forwards to.
    await mark_forwarded(admin, link.shadow, name, cursor, cursor.cursor.mark_delete)
    try:
        await _create_at(admin, link, name, cursor, ledgers)
    except Unavailable:
        raise
    except FleetError:
        await admin.put(f"{link.shadow.subscription_path(name)}/properties", dict(cursor.properties))
        raise


async def _create_at(admin: AdminClient, link: Link, name: str, cursor: SubscriptionCursor, ledgers: Ledgers) -> None:
    number = cursor.mark_delete_index
    properties = {key: value for key, value in cursor.properties.items() if key != FORWARDED_SINCE}
    if not len(ledgers):
        await admin.create_subscription(link.source, name, properties=properties)
        return
    last = ledgers.at(len(ledgers) - 1)
    begin = ledgers.at(number) if number < len(ledgers) else Position(last.ledger, last.entry + 1)
    await admin.create_subscription(link.source, name, begin, properties)
