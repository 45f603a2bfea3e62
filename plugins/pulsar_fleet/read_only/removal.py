"""Take shadow topics away, in the only order in which their sources lose nothing; each step can be repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.call import Call, bare
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import ledgers_in
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.planning.changes.clusters import isolation_path
from pulsar_fleet.planning.diff import isolation_value
from pulsar_fleet.preflight.context import blocker
from pulsar_fleet.preflight.findings import Finding, Planned, blockers_first
from pulsar_fleet.read_only.isolation import is_own, policy_name
from pulsar_fleet.read_only.links import change_shadow_list
from pulsar_fleet.read_only.observe import partitions_of, properties_of, shadow_topics_of, source_in
from pulsar_fleet.read_only.pair import (
    Pair,
    removal_calls,
    retirement_calls,
    stand_in_of,
    storing_calls,
    topic_deletion,
)
from pulsar_fleet.read_only.plan import READ_ONLY, ReadOnlyPlan, described
from pulsar_fleet.read_only.recorded_calls import send_recorded, step_result
from pulsar_fleet.read_only.request import Request

_SECONDS = 30.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPlan(ReadOnlyPlan):
    """What a run takes away from one cluster.

    :param empties: whether the namespace is deleted with the last of its topics.
    :param releases: whether its isolation policy is deleted with it.
    """

    VERB = "no longer served"

    empties: bool = False
    releases: bool = False

    def changes(self) -> tuple[str, ...]:
        """What changes, a line each."""
        return (
            *(f"take {pair.shadow} away" for pair in self.pairs),
            *([f"delete the namespace {self.namespace}"] if self.empties else ()),
            *(["delete its isolation policy"] if self.releases else ()),
        )

    def calls(self) -> list[Call]:
        """Every call that changes or loads something, in the order in which they are sent."""
        calls = [call for pair in self.pairs for call in removal_calls(pair)]
        calls += [_deletion(self.namespace)] if self.empties else []
        return [*calls, _release_call(self.cluster, self.namespace)] if self.releases else calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """A shadow topic that is named to be taken away.

    :param partitions: None of a topic that is missing.
    :param follows: the topic whose ledgers it shares; empty of an ordinary topic.
    :param linked: the shadow topics of its source.
    :param stand_in: partitions of the empty topic that an earlier removal left, None without one.
    :param readers: connected consumers and readers.
    """

    source: TopicName
    topic: TopicName
    partitions: int | None
    follows: str
    linked: tuple[str, ...]
    stand_in: int | None
    readers: int

    @property
    def is_ours(self) -> bool:
        """Whether it serves this source."""
        return self.partitions is not None and self.follows == str(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read of one cluster.

    :param document: the policies of the read-only namespace, None if it is missing.
    :param others: its topics that this run does not name.
    :param policies: isolation policies by name, without the options of their last write.
    :param deletes_shadows_alone: whether every broker keeps the ledgers of a source when its shadow topic is deleted.
    """

    cluster: str
    document: JsonObject | None
    shadows: tuple[Shadow, ...]
    others: tuple[str, ...]
    policies: Mapping[str, JsonObject]
    deletes_shadows_alone: bool


async def plan(admin: AdminClient, request: Request) -> Planned[RemovalPlan]:
    """Read the cluster, check every shadow topic, and plan what is taken away; it loads the shadow topics.

    Calls: five, and one for each broker; up to six for each shadow topic, and one for each of its partitions.
    """
    read = await find(admin, request)
    return described(plan_removal(read, request), check_removal(read))


async def find(admin: AdminClient, request: Request) -> Found:
    """Read what is taken away; nothing is changed."""
    document = await admin.namespace(request.namespace)
    return Found(
        cluster=await admin.cluster_name(),
        document=document,
        shadows=tuple(await asyncio.gather(*(_shadow(admin, source, request) for source in request.topics))),
        others=await _others(admin, request) if document else (),
        policies={name: isolation_value(policy) for name, policy in (await admin.isolation_policies()).items()},
        deletes_shadows_alone=await admin.deletes_shadows_alone(),
    )


async def _shadow(admin: AdminClient, source: TopicName, request: Request) -> Shadow:
    topic = request.shadow(source)
    partitions = await partitions_of(admin, topic)
    missing = partitions is None
    return Shadow(
        source=source,
        topic=topic,
        partitions=partitions,
        follows="" if missing else source_in(await properties_of(admin, topic)),
        linked=() if await partitions_of(admin, source) is None else await shadow_topics_of(admin, source),
        stand_in=await partitions_of(admin, stand_in_of(topic)),
        readers=0 if missing else await _readers(admin, topic.partitions(partitions or 0)),
    )


async def _others(admin: AdminClient, request: Request) -> tuple[str, ...]:
    shadows = [request.shadow(topic) for topic in request.topics]
    ours = {*shadows, *map(stand_in_of, shadows)}
    topics = {*await admin.topics(request.namespace), *await admin.partitioned_topics(request.namespace)}
    return tuple(sorted(str(topic) for topic in topics if not ours & {topic, topic.parent}))


async def _readers(admin: AdminClient, stored: Sequence[TopicName]) -> int:
    """The number of connected consumers and readers; it loads the topic."""
    statistics = [await admin.stats(partition, precise=False) for partition in stored]
    return sum(
        len(subscription.get("consumers") or ())
        for stats in statistics
        for subscription in (stats.get("subscriptions") or {}).values()
    )


def plan_removal(read: Found, request: Request) -> RemovalPlan:
    """Plan to take shadow topics away; a second plan after a complete run has none."""
    retires = not read.deletes_shadows_alone
    empties = not read.others and READ_ONLY in ((read.document or {}).get("properties") or {})
    policy = read.policies.get(policy_name(request.namespace))
    return RemovalPlan(
        cluster=read.cluster,
        namespace=request.namespace,
        pairs=tuple(
            Pair(
                source=shadow.source,
                shadow=shadow.topic,
                partitions=(shadow.partitions if shadow.is_ours else shadow.stand_in) or 0,
                linked=tuple(name for name in shadow.linked if name != str(shadow.topic)),
                links=str(shadow.topic) in shadow.linked,
                retires=retires,
                stand_in=retires or shadow.stand_in is not None,
            )
            for shadow in read.shadows
            if shadow.is_ours or (shadow.partitions is None and shadow.stand_in is not None)
        ),
        empties=empties,
        releases=policy is not None and is_own(request.namespace, policy) and (empties or read.document is None),
    )


def check_removal(read: Found) -> tuple[Finding, ...]:
    """What prevents taking shadow topics away; those that are missing already are no finding."""
    findings = []
    for shadow in read.shadows:
        name = str(shadow.topic)
        if shadow.partitions is None:
            continue
        if not shadow.is_ours:
            what = f"shadow topic of {shadow.follows}" if shadow.follows else "not a shadow topic"
            findings.append(
                blocker(
                    "shadow-of-other-source",
                    name,
                    what,
                    "This run would delete a topic that serves something else.",
                    "correct 'topics' or 'namespace'.",
                )
            )
        elif shadow.readers:
            findings.append(
                blocker(
                    "shadow-has-readers",
                    name,
                    f"{shadow.readers} connected consumers and readers",
                    "They would get no more messages.",
                    "let the applications read the source or another shadow topic first.",
                )
            )
    return blockers_first(findings)


async def remove_topics(admin: AdminClient, planned: Planned[RemovalPlan], run: Run) -> StepResult:
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
    return step_result(admin, began, calls, len(stored.pairs), kept)


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
    await send_recorded(admin, run, _deletion(namespace), resource=f"namespace {namespace}", before=document)
    return True


async def release_brokers(admin: AdminClient, namespace: NamespaceName, run: Run) -> bool:
    """Delete the isolation policy of a namespace that is gone; whether it was deleted."""
    if await admin.namespace(namespace) is not None:
        return False
    name = policy_name(namespace)
    policy = (await admin.isolation_policies()).get(name)
    if policy is None or not is_own(namespace, policy):
        return False
    call = _release_call(await admin.cluster_name(), namespace)
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


def _deletion(namespace: NamespaceName) -> Call:
    return bare("DELETE", f"/namespaces/{namespace.path}")


def _release_call(cluster: str, namespace: NamespaceName) -> Call:
    """Delete the isolation policy of the namespace: its brokers serve other namespaces again."""
    return bare("DELETE", isolation_path(cluster, policy_name(namespace)))
