"""Take shadow topics away in the only order in which their sources lose nothing.

A broker that deletes a shadow topic deletes every ledger in its list, also after the link has ended, and although the
source still needs them (measured with 4.2.4: 0 of 20 messages were left). So the shadow topic first follows an empty
topic, drops the ledgers of its source, and stores that; only a list without a common ledger is deleted with its topic.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pulsar_fleet.cluster.admin.call import Call, bare
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadows.guard import ledgers_in
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.diff import isolation_value
from pulsar_fleet.read_only.isolation import is_own, policy_name
from pulsar_fleet.read_only.links import change_shadow_list
from pulsar_fleet.read_only.observe import partitions_of
from pulsar_fleet.read_only.pair import (
    Pair,
    retirement_calls,
    stand_in_of,
    storing_calls,
    topic_deletion,
)
from pulsar_fleet.read_only.plan import READ_ONLY, release_call
from pulsar_fleet.read_only.recorded_calls import send_recorded

_SECONDS = 30.0
_POLL_SECONDS = 0.2


async def remove_pair(admin: AdminClient, pair: Pair, run: Run) -> None:
    """Unlink, retire and delete one shadow topic; a second call after a crash does what is left.

    :raises PreconditionFailed: the replicator does not end, or the shadow topic still shares ledgers: nothing of the
        source was deleted, and the shadow topic stays.
    """
    shadow, stand_in = pair.shadow, stand_in_of(pair.shadow)
    if await partitions_of(admin, shadow) is not None:
        if await partitions_of(admin, pair.source) is not None:
            await _unlink(admin, pair, run)
            if await _common_ledgers(admin, pair):
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
