"""Forward acknowledgments: one pass over all links, or passes until stopped. Nothing is stored between two passes.

A pass reads both cursors, sends the difference and reads back, so one that is killed at any point leaves nothing but
acknowledgments that consumers have made, and the next pass sends the rest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.polling import all_ended
from pulsar_fleet.cluster.statistics import UNKNOWN_TYPE, TopicStats
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.protocol.acknowledgment import SubscriptionType, acknowledge_entries
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors
from pulsar_fleet.read_only.forwarding.request import Request
from pulsar_fleet.read_only.forwarding.results import (
    ForwardingPlan,
    ForwardingResult,
    State,
    SubscriptionResult,
    acknowledged,
    listed_entries,
    plan_forwarding,
)
from pulsar_fleet.read_only.forwarding.topics import Link, Links, read_links

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCursors:
    """The subscriptions of one link, by name.

    :param ledgers: of the source.
    :param listed: entries of the source that the shadow topic lists.
    """

    ledgers: Ledgers
    listed: Intervals
    shadow: Mapping[str, SubscriptionCursor]
    owner: Mapping[str, SubscriptionCursor]


async def read_link(admin: AdminClient, link: Link) -> LinkCursors:
    """Read both sides: four calls, which load the topics.

    The shadow topic is read first: what its subscriptions have acknowledged is in the source's list of ledgers then.
    Its cursors are read before their properties: a subscription that was recreated between the two calls lacks the
    property, so its new position is never read as that of the old one.
    """
    shadow_internal = await admin.internal_stats(link.shadow)
    shadow_stats = TopicStats.of(link.shadow, await admin.stats(link.shadow, precise=False))
    internal, stats = await asyncio.gather(admin.internal_stats(link.source), admin.stats(link.source, precise=False))
    ledgers = Ledgers.of(internal)
    return LinkCursors(
        ledgers=ledgers,
        listed=listed_entries(ledgers, Ledgers.of(shadow_internal)),
        shadow=subscription_cursors(ledgers, shadow_stats, shadow_internal),
        owner=subscription_cursors(ledgers, TopicStats.of(link.source, stats), internal),
    )


async def read_owner(admin: AdminClient, link: Link, name: str, ledgers: Ledgers) -> SubscriptionCursor | None:
    """One subscription of the source again, in the entry numbers of an earlier read: two calls."""
    internal, stats = await asyncio.gather(admin.internal_stats(link.source), admin.stats(link.source, precise=False))
    return subscription_cursors(ledgers, TopicStats.of(link.source, stats), internal).get(name)


PROCEDURE = "forward_acknowledgments"
LIST_SECONDS = 60.0
"""How often a forwarder lists the topics again, and looks whether messages expire on them."""
PROGRESS_SECONDS = 10.0
OUTAGE_SECONDS = 5.0
_CONFIRM_SECONDS = 5.0
_POLL_SECONDS = 0.05
_LINKS_AT_ONCE = 8


async def forward_once(admin: AdminClient, request: Request, links: Links | None = None) -> ForwardingResult:
    """One pass: carry what is missing, and read it back. A second pass sends nothing.

    What the cluster refuses for one topic or subscription is in the result, and the others are forwarded. Calls: those
    of `read_links`, four for each topic or partition, and three or more for each subscription with a difference.

    :raises FleetError: `NotFound` if the namespace does not exist, or the topics cannot be listed; `Unavailable` if the
        cluster does not answer, after every other topic was forwarded.
    """
    began, calls = time.monotonic(), admin.calls
    links = links or await read_links(admin, request)
    at_once = asyncio.Semaphore(_LINKS_AT_ONCE)

    async def forward(link: Link) -> tuple[list[SubscriptionResult], str]:
        async with at_once:
            return await _forward_link(admin, link, request)

    # Every link ends before an error is raised: a part of this pass must not run on beside the next.
    subscriptions: list[SubscriptionResult] = []
    problems = [*links.problems]
    for results, *problem in await all_ended(*map(forward, links.links)):
        subscriptions += results
        problems += filter(None, problem)
    return ForwardingResult(
        cluster=await admin.cluster_name(),
        subscriptions=tuple(subscriptions),
        problems=tuple(problems),
        calls=admin.calls - calls,
        seconds=round(time.monotonic() - began, 1),
    )


def refused_namespace(admin: AdminClient, request: Request, error: FleetError) -> ForwardingResult:
    """The result of a namespace that is not forwarded: it does not exist, or its topics may not be listed."""
    problem = f"{request.namespace} is not forwarded: {error}"
    return ForwardingResult(cluster=admin.connection.name, subscriptions=(), problems=(problem,))


async def forward_until_stopped(
    admin: AdminClient, request: Request, *, stopped: asyncio.Event, say: Callable[[str], None]
) -> ForwardingResult | None:
    """Pass after pass, also while the cluster does not answer or refuses a call; None if no pass was complete.

    :param say: receives a line every 10 s, and when something is wrong, was resolved, or the cluster does not answer.
    :raises FleetError: before the first complete pass: the namespace does not exist, or its topics may not be listed.
    """
    return await _Forwarder(admin, request, stopped, say).run()


class _Forwarder:
    def __init__(
        self, admin: AdminClient, request: Request, stopped: asyncio.Event, say: Callable[[str], None]
    ) -> None:
        self._admin = admin
        self._request = request
        self._stopped = stopped
        self._say = say
        self._links: Links | None = None
        self._listed = self._told = 0.0
        self._total: ForwardingResult | None = None
        self._unfinished: frozenset[str] = frozenset()
        self._outage = 0.0
        self._problems: tuple[str, ...] = ()

    async def run(self) -> ForwardingResult | None:
        while not self._stopped.is_set():
            try:
                result = await self._pass()
            except FleetError as error:
                if self._total is None and not isinstance(error, Unavailable):
                    raise
                self._begin_outage(error)
                await self._pause(OUTAGE_SECONDS)
            else:
                self._end_outage()
                self._total = result.after(self._total)
                # A subscription that is deleted and created again later has not been accepted.
                self._request = replace(self._request, accept_positions=())
                self._report(result)
                await self._pause(self._request.poll_seconds)
        return self._total

    async def _pass(self) -> ForwardingResult:
        if self._links is None or time.monotonic() - self._listed > LIST_SECONDS:
            self._links, self._listed = await read_links(self._admin, self._request), time.monotonic()
        result = await forward_once(self._admin, self._request, self._links)
        if result.problems != self._problems:
            # A topic may have been taken away: they are listed again.
            self._links, self._problems = None, result.problems
        return result

    def _report(self, result: ForwardingResult) -> None:
        stuck = {result.topic + result.subscription: result for result in result.subscriptions if _is_stuck(result)}
        unfinished = frozenset({*result.problems, *stuck})
        for key in sorted(unfinished - self._unfinished):
            self._say(stuck[key].text() if key in stuck else key)
        self._unfinished = unfinished
        if self._total and time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            self._say(self._total.headline())

    def _begin_outage(self, error: FleetError) -> None:
        if not self._outage:
            self._outage = time.monotonic()
            does = "does not answer" if isinstance(error, Unavailable) else "refuses a call"
            self._say(f"{self._admin.connection.name} {does}, its acknowledgments wait: {error}")

    def _end_outage(self) -> None:
        if self._outage:
            seconds, self._outage = time.monotonic() - self._outage, 0.0
            self._say(f"{self._admin.connection.name} answers again after {duration(seconds)}")

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except TimeoutError:
            return


def _is_stuck(result: SubscriptionResult) -> bool:
    return bool(result.reason) or result.state not in (State.FORWARDED, State.WAITING)


async def _forward_link(admin: AdminClient, link: Link, request: Request) -> tuple[list[SubscriptionResult], str]:
    """The results of its subscriptions, and why it is not forwarded; empty if it is."""
    try:
        cursors = await read_link(admin, link)
    except Unavailable:
        raise
    except FleetError as error:
        return [], f"{link.shadow} is not forwarded: {error}"
    names = [name for name in sorted(cursors.shadow) if request.covers(name)]
    return [await _forward_or_refused(admin, link, cursors, name, request) for name in names], ""


async def _forward_or_refused(
    admin: AdminClient, link: Link, cursors: LinkCursors, name: str, request: Request
) -> SubscriptionResult:
    try:
        return await _forward(admin, link, cursors, name, request)
    except Unavailable:
        raise
    except FleetError as error:
        # A subscription or topic that was created or taken away meanwhile is there, or not, in the next pass.
        state = State.WAITING if isinstance(error, Conflict | NotFound) else State.REFUSED
        return _result(link, name, cursors.shadow[name], cursors.owner.get(name), state, reason=str(error))


async def _forward(
    admin: AdminClient, link: Link, cursors: LinkCursors, name: str, request: Request
) -> SubscriptionResult:
    shadow, owner, ledgers = cursors.shadow[name], cursors.owner.get(name), cursors.ledgers
    if owner is None:
        if not request.create_missing:
            return _result(link, name, shadow, None, State.OWNER_MISSING)
        await create_forwarded(admin, link, name, shadow, ledgers)
        owner = await read_owner(admin, link, name, ledgers)
        if owner is None:
            return _result(link, name, shadow, None, State.WAITING, reason="it was created and is not visible yet")
    elif not await _is_forwarded(admin, link, cursors, name, request):
        plan = plan_forwarding(acknowledged(shadow), acknowledged(owner), cursors.listed)
        return _result(link, name, shadow, owner, State.POSITION_NOT_CONFIRMED, plan=plan)
    plan = plan_forwarding(acknowledged(shadow), acknowledged(owner), cursors.listed)
    if not plan.missing:
        return _result(link, name, shadow, owner, State.FORWARDED, plan=plan)
    try:
        reason = await send(admin, link, plan, ledgers, name, owner=owner, shadow=shadow)
    except FleetError as error:
        return _result(link, name, shadow, owner, State.REFUSED, plan=plan, reason=str(error))
    return await _confirmed(admin, link, cursors, name, plan, reason)


async def _is_forwarded(admin: AdminClient, link: Link, cursors: LinkCursors, name: str, request: Request) -> bool:
    """Whether the position on the shadow topic was reached by consumers: from the owner's position, or as accepted."""
    shadow, owner = cursors.shadow[name], cursors.owner[name]
    if FORWARDED_SINCE in shadow.properties:
        return True
    behind = not acknowledged(shadow).minus(acknowledged(owner))
    if behind or name in request.accept_positions:
        await mark_forwarded(admin, link.shadow, name, shadow, owner.cursor.mark_delete)
        return True
    return False


async def _confirmed(
    admin: AdminClient, link: Link, cursors: LinkCursors, name: str, plan: ForwardingPlan, reason: str
) -> SubscriptionResult:
    """Read the owner's subscription until it has what was sent, for 5 s at most."""
    shadow, end = cursors.shadow[name], time.monotonic() + _CONFIRM_SECONDS
    while True:
        owner = await read_owner(admin, link, name, cursors.ledgers)
        if owner is None:
            return _result(link, name, shadow, None, State.OWNER_MISSING)
        after = plan_forwarding(acknowledged(shadow), acknowledged(owner), cursors.listed)
        # Of a call that failed nothing is awaited; where only individual acknowledgments wait, the position is.
        sent = after.position is None if reason == EXCLUSIVE_IN_USE else bool(reason)
        if not after.missing or sent or time.monotonic() > end:
            break
        await asyncio.sleep(_POLL_SECONDS)
    state = State.WAITING if after.missing else State.FORWARDED
    forwarded = len(plan.missing.minus(after.missing))
    return _result(link, name, shadow, owner, state, plan=after, forwarded=forwarded, reason=reason)


def _result(
    link: Link,
    name: str,
    shadow: SubscriptionCursor,
    owner: SubscriptionCursor | None,
    state: State,
    *,
    plan: ForwardingPlan | None = None,
    forwarded: int = 0,
    reason: str = "",
) -> SubscriptionResult:
    return SubscriptionResult(
        topic=str(link.shadow),
        subscription=name,
        state=state,
        forwarded=forwarded,
        waiting=len(plan.missing) if plan else 0,
        ahead=plan.ahead if plan else 0,
        position=str(shadow.cursor.mark_delete),
        owner_position=str(owner.cursor.mark_delete) if owner else "",
        holes=len(shadow.individually_acknowledged),
        owner_holes=len(owner.individually_acknowledged) if owner else 0,
        reason=reason,
    )
