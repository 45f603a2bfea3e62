"""The steps of serving topics read-only, in the order of the DAG, and of taking them away; each can be repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from pulsar_fleet.cluster.admin.call import Call, bare
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import is_infinite, ledgers_in
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.planning.diff import isolation_value
from pulsar_fleet.planning.plan import Action
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding, Planned, count_line
from pulsar_fleet.read_only.checks import check_removal, check_serving, check_setup
from pulsar_fleet.read_only.isolation import is_own, policy_name
from pulsar_fleet.read_only.links import (
    ConfirmedServing,
    Progress,
    change_shadow_list,
    confirm_links,
    confirm_reading,
    load_sources,
    require_linked,
    sent_by_broker,
)
from pulsar_fleet.read_only.observe import observe, partitions_of, with_own_policies
from pulsar_fleet.read_only.owners import confirm_owners
from pulsar_fleet.read_only.pair import (
    Pair,
    retirement_calls,
    stand_in_of,
    storing_calls,
    topic_deletion,
)
from pulsar_fleet.read_only.plan import READ_ONLY, ReadOnlyPlan, move_call, plan_removal, plan_serving, release_call
from pulsar_fleet.read_only.recorded_calls import apply_recorded, send_recorded
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Observed

_SECONDS = 30.0
_POLL_SECONDS = 0.2


async def remove_pair(admin: AdminClient, pair: Pair, run: Run, *, retires: bool) -> None:
    """Unlink, retire and delete one shadow topic; a second call after a crash does what is left.

    A broker that deletes a shadow topic deletes every ledger in its list, also after the link has ended, and although
    the source still needs them (measured with 4.2.4: 0 of 20 messages were left). So the shadow topic first follows an
    empty topic, drops the ledgers of its source, and stores that; only a list without a common ledger is deleted with
    its topic.

    Brokers of 5.0 delete no ledger of the source, and let no shadow topic follow another one (measured with 5.0.1). The
    empty topic that an earlier attempt left is deleted there too.

    :param retires: whether a broker deletes ledgers of the source.
    :raises PreconditionFailed: the replicator does not end, or the shadow topic still shares ledgers: nothing of the
        source was deleted, and the shadow topic stays.
    """
    shadow, stand_in = pair.shadow, stand_in_of(pair.shadow)
    if await partitions_of(admin, shadow) is not None:
        if await partitions_of(admin, pair.source) is not None:
            await _unlink(admin, pair, run)
            if retires and await _common_ledgers(admin, pair):
                await _retire(admin, pair, run)
        deletion = topic_deletion(shadow, pair.partitions)
        await send_recorded(admin, run, deletion, resource=f"topic {shadow}", before=str(pair.source))
    if await partitions_of(admin, stand_in) is not None:
        await send_recorded(admin, run, topic_deletion(stand_in, pair.partitions), resource=f"topic {stand_in}")


async def remove_namespace(admin: AdminClient, namespace: NamespaceName, run: Run) -> bool:
    """Delete the read-only namespace if no topic is left in it; whether it was deleted."""
    document = await admin.namespace(namespace)
    if document is None or READ_ONLY not in (document.get("properties") or {}):
        return False
    if await admin.topics(namespace) or await admin.partitioned_topics(namespace):
        return False
    await send_recorded(
        admin, run, bare("DELETE", f"/namespaces/{namespace.path}"), resource=f"namespace {namespace}", before=document
    )
    return True


async def release_brokers(admin: AdminClient, namespace: NamespaceName, run: Run) -> bool:
    """Delete the isolation policy of a namespace that is gone; whether it was deleted."""
    if await admin.namespace(namespace) is not None:
        return False
    name = policy_name(namespace)
    policy = (await admin.isolation_policies()).get(name)
    if policy is None or not is_own(namespace, policy):
        return False
    call = release_call(await admin.cluster_name(), namespace)
    await send_recorded(admin, run, call, resource=f"isolation policy {name}", before=isolation_value(policy))
    return True


async def _unlink(admin: AdminClient, pair: Pair, run: Run) -> None:
    """End the link. The replicator goes on until its source is unloaded (observed)."""
    await change_shadow_list(admin, pair, run, links=False)
    if not await _replicators(admin, pair):
        return
    await send_recorded(admin, run, bare("PUT", f"/{pair.source.path}/unload"), resource=f"topic {pair.source}")

    async def ended() -> bool:
        return not await _replicators(admin, pair)

    if not await _becomes(ended):
        raise PreconditionFailed(
            f"The replicator of {pair.source} is still connected to {pair.shadow} {_SECONDS:.0f} s after the link was "
            "ended and the source was unloaded. Nothing was deleted; run this step again.",
            cluster=admin.connection.name,
        )


async def _replicators(admin: AdminClient, pair: Pair) -> int:
    statistics = [await admin.stats(shadow, precise=False) for _, shadow in pair.stored]
    return sum(len(stats.get("publishers") or ()) for stats in statistics)


async def _retire(admin: AdminClient, pair: Pair, run: Run) -> None:
    for call in retirement_calls(pair):
        await _send(admin, run, pair, call)

    async def dropped() -> bool:
        lists = [ledgers_in(await admin.internal_stats(shadow)) for _, shadow in pair.stored]
        needed = await _ledgers(admin, pair.source, pair.partitions)
        return not any(ledgers & needed for ledgers in lists)

    if await _becomes(dropped):
        for call in storing_calls(pair):
            await _send(admin, run, pair, call)
    if common := await _common_ledgers(admin, pair):
        raise PreconditionFailed(
            f"{pair.shadow} still shares the ledgers {sorted(common)} with {pair.source}: data of {pair.source} would "
            "be deleted with it. It serves nobody any more and does no harm; run this step again.",
            cluster=admin.connection.name,
        )


async def _send(admin: AdminClient, run: Run, pair: Pair, call: Call) -> None:
    """Load a topic, or send a recorded call; the empty topic may exist since an earlier attempt."""
    if call.method == "GET":
        await admin.get(call.path)
        return
    with suppress(Conflict):
        await send_recorded(admin, run, call, resource=f"topic {pair.shadow}", after=call.body)


async def _common_ledgers(admin: AdminClient, pair: Pair) -> set[int]:
    """The ledgers that are in the stored lists of both topics."""
    own = await _ledgers(admin, pair.shadow, pair.partitions)
    return own & await _ledgers(admin, pair.source, pair.partitions)


async def _ledgers(admin: AdminClient, topic: TopicName, partitions: int) -> set[int]:
    lists = [ledgers_in(await admin.internal_info(partition)) for partition in topic.partitions(partitions)]
    return {ledger for ledgers in lists for ledger in ledgers}


async def _becomes(condition: Callable[[], Awaitable[bool]]) -> bool:
    end = time.monotonic() + _SECONDS
    while not (true := await condition()) and time.monotonic() < end:
        await asyncio.sleep(_POLL_SECONDS)
    return true


CONFIRM_SECONDS = 60.0


async def plan(admin: AdminClient, request: Request) -> Planned[ReadOnlyPlan]:
    """Read the cluster, check every topic, and plan what is missing or is taken away; it loads the sources.

    Calls: one for each broker, up to eight for each topic, three for each of its partitions; two, and one pass over the
    topic policies, for each namespace of a source.
    """
    observed = await observe(admin, request)
    return plan_for(observed if request.remove else await with_own_policies(admin, observed), request)


def plan_for(observed: Observed, request: Request, *, follows: bool = False) -> Planned[ReadOnlyPlan]:
    """The plan for what was read of a cluster.

    :param follows: it is served already: no right is taken, and a migration that copies the namespace is no reason.
    """
    if request.remove:
        return _described(plan_removal(observed, request), check_removal(observed, request))
    check = check_serving if follows else check_setup
    return _described(plan_serving(observed, request, revokes=not follows), check(observed, request))


async def create_topics(admin: AdminClient, planned: Planned[ReadOnlyPlan], run: Run) -> StepResult:
    """Load the sources that are linked next, then make the namespace and the shadow topics as their sources are.

    :raises Unavailable: a change failed, and a second call may succeed.
    :raises InvalidRequest: a change failed, was refused, or found another value than the plan was made from.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    await load_sources(admin, stored.linking)
    if not stored.contents.empty:
        # Partitions cannot be taken from a topic; a shadow topic with all of them can be taken away.
        allow = {change.id for change in stored.contents.changes if change.action is Action.GROW}
        await apply_recorded(admin, stored.contents, run, "contents", allow=allow)
    return _result(admin, began, calls, len(stored.contents.changes))


async def confirm_brokers(
    admin: AdminClient,
    planned: Planned[ReadOnlyPlan],
    run: Run,
    *,
    seconds: float = CONFIRM_SECONDS,
    progress: Progress | None = None,
) -> StepResult:
    """Where the namespace has brokers of its own: wait until each shadow topic or partition is on one of them.

    Bundles that are elsewhere are unloaded. A second call moves nothing.

    :raises PreconditionFailed: a topic is elsewhere after `seconds`; the message names it and its broker.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    if not stored.brokers:
        return _result(admin, began, calls, 0)

    async def move(bundle: str, broker: str, topics: Sequence[TopicName]) -> None:
        resource, before = f"bundle {stored.namespace}/{bundle}", await admin.owner(topics[0])
        call = move_call(stored.namespace, bundle, broker)
        await send_recorded(admin, run, call, resource=resource, before=before, after=broker)

    topics = [shadow for pair in stored.pairs for _, shadow in pair.stored]
    moved = await confirm_owners(admin, stored.brokers, topics, move, seconds=seconds, progress=progress)
    return _result(admin, began, calls, moved)


async def link_topics(admin: AdminClient, planned: Planned[ReadOnlyPlan], run: Run) -> StepResult:
    """Link the shadow topics that are not linked, after a last look at the retention of their namespace.

    The list of each source is read again: shadow topics that others have linked since the plan stay in it.

    :raises PreconditionFailed: the namespace does not keep everything.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    document = await admin.namespace(stored.namespace) or {}
    if not is_infinite(document.get("retention_policies")):
        raise PreconditionFailed(
            f"The retention of {stored.namespace} is {document.get('retention_policies')}, not -1/-1: data of the "
            "sources would be deleted. Nothing was linked; set it, then run this step again.",
            cluster=admin.connection.name,
        )
    linked = [await change_shadow_list(admin, pair, run, links=True, again=pair.links) for pair in stored.pairs]
    return _result(admin, began, calls, sum(linked))


async def confirm(
    admin: AdminClient,
    planned: Planned[ReadOnlyPlan],
    *,
    seconds: float = CONFIRM_SECONDS,
    progress: Progress | None = None,
) -> ConfirmedServing:
    """Wait until every link is alive, and read a message from each shadow topic whose source has some.

    :raises PreconditionFailed: a link is not alive in time, or a reader gets nothing; the message says what to do.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    await require_linked(admin, stored.pairs)
    links = await confirm_links(admin, stored.pairs, seconds=seconds, progress=progress)
    read = await confirm_reading(admin, stored.pairs)
    sent = await sent_by_broker(admin, stored.pairs)
    return ConfirmedServing(
        topics=len(stored.pairs),
        links=links,
        read=read,
        sent=sent,
        calls=admin.calls - calls,
        seconds=round(time.monotonic() - began, 1),
    )


async def remove_topics(admin: AdminClient, planned: Planned[ReadOnlyPlan], run: Run) -> StepResult:
    """Take the shadow topics away, one after the other, then the namespace if nothing is left in it.

    :raises FleetError: a shadow topic could not be taken away; those after it were not touched, no source lost data.
    """
    stored, began, calls = planned.plan, time.monotonic(), admin.calls
    # Not as planned: brokers may have been upgraded since, and those of 5.0 refuse the retirement.
    retires = not await admin.deletes_shadows_alone()
    for pair in stored.pairs:
        await remove_pair(admin, pair, run, retires=retires)
    kept: list[str] = []
    if not await remove_namespace(admin, stored.namespace, run) and await admin.namespace(stored.namespace):
        kept.append(f"the namespace {stored.namespace}: topics are left in it, or this procedure did not create it")
    await release_brokers(admin, stored.namespace, run)
    return _result(admin, began, calls, len(stored.pairs), kept)


def call_lines(stored: ReadOnlyPlan) -> list[str]:
    """Every call that changes or loads something, in its order, as a person would send it."""
    return [call_text(stored.cluster, call) for call in stored.calls()]


def _described(plan: ReadOnlyPlan, findings: Sequence[Finding]) -> Planned[ReadOnlyPlan]:
    lines = call_lines(plan)
    verb = "no longer served" if plan.remove else "served"
    headline = (
        f"{counted(len(plan.pairs), 'topic')} {verb} read-only in {plan.namespace} on {plan.cluster}: "
        f"{counted(len(plan.changes()), 'change')}, {counted(len(lines), 'call')}; {count_line(findings)}."
    )
    cost = ["\n".join(["**What it costs**", "", *(f"* {line}" for line in plan.cost)])] if plan.cost else []
    text = "\n\n".join([headline, *cost, "\n".join(["**The calls**, in their order:", "", "```", *lines, "```"])])
    return Planned(plan=plan, findings=tuple(findings), headline=headline, text=text)


def _result(admin: AdminClient, began: float, calls: int, changes: int, kept: Sequence[str] = ()) -> StepResult:
    return StepResult(
        changes=changes,
        calls=admin.calls - calls,
        seconds=round(time.monotonic() - began, 1),
        kept=tuple(kept),
    )
