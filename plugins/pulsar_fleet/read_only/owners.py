"""Which broker owns a topic, what namespaces brokers own, and wait until a namespace is on its own brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import SYSTEM_NAMESPACES, NamespaceName, TopicName
from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.planning.diff import isolation_value
from pulsar_fleet.read_only.isolation import brokers_of, destinations, is_among
from pulsar_fleet.read_only.state import Brokers

_POLL_SECONDS = 0.5
_AGAIN_SECONDS = 10.0
"""After this time a bundle that is elsewhere is unloaded again."""
_FOLLOWING = ("ModularLoadManagerImpl", "ExtensibleLoadManagerImpl")
"""Load managers that follow isolation policies."""

Progress = Callable[[int, int], None]
Move = Callable[[str, str, Sequence[TopicName]], Awaitable[None]]


async def read_brokers(
    admin: AdminClient,
    namespace: NamespaceName,
    wanted: Sequence[str],
    configurations: Mapping[str, Mapping[str, Json]],
) -> Brokers:
    """The isolation policies, and what the wanted brokers own: one call, and one for each of them.

    :param configurations: by broker, of all that are alive.
    """
    live = tuple(configurations)
    if not wanted:
        return Brokers(live=live)
    managers = {broker: _load_manager(configuration) for broker, configuration in configurations.items()}
    chosen = brokers_of(wanted, live)
    counts = await asyncio.gather(*(_other_bundles(admin, broker, namespace) for broker in chosen))
    policies = await admin.isolation_policies()
    return Brokers(
        live=live,
        wanted=tuple(wanted),
        policies={name: isolation_value(policy) for name, policy in policies.items()},
        unable={broker: manager for broker, manager in managers.items() if manager not in _FOLLOWING},
        bundles=dict(zip(chosen, counts, strict=True)),
    )


def _load_manager(configuration: Mapping[str, Json]) -> str:
    if str(configuration.get("isRunningStandalone")) == "true":
        return "standalone"
    if str(configuration.get("loadBalancerEnabled")) == "false":
        return "none, since loadBalancerEnabled is false"
    return str(configuration.get("loadManagerClassName")).rpartition(".")[2]


async def _other_bundles(admin: AdminClient, broker: str, namespace: NamespaceName) -> int:
    names = [bundle.rpartition("/")[0] for bundle in await admin.owned_bundles(broker)]
    # Each broker has a namespace of its own for health checks: `pulsar/host:port`.
    own = {f"{tenant}/{broker}" for tenant in ("pulsar", await admin.cluster_name())}
    return sum(name != str(namespace) and name not in own and name not in SYSTEM_NAMESPACES for name in names)


async def confirm_owners(
    admin: AdminClient,
    brokers: Sequence[str],
    topics: Sequence[TopicName],
    move: Move,
    *,
    seconds: float,
    progress: Progress | None = None,
) -> int:
    """Wait until every topic or partition is on one of the brokers; the number of bundles that were moved.

    What the brokers report of a policy compares another text than their load manager does (observed), so each topic
    is looked up. A bundle that is elsewhere is unloaded to a named broker: without one, a load manager may give it to
    its last broker again, against the policy, until that has reported its load (observed: more than a minute).

    :param move: called with a bundle, the broker that it is to be unloaded to, and its topics.
    :raises PreconditionFailed: a topic is elsewhere after `seconds`.
    """
    began = time.monotonic()
    moved: set[str] = set()
    waiting, unloaded = list(topics), began - _AGAIN_SECONDS
    while True:
        owners = await asyncio.gather(*(_owner(admin, topic) for topic in waiting))
        elsewhere = {topic: owner for topic, owner in zip(waiting, owners, strict=True) if not is_among(brokers, owner)}
        waiting = list(elsewhere)
        if progress:
            progress(len(topics) - len(waiting), len(topics))
        if not waiting:
            return len(moved)
        now = time.monotonic()
        if now > began + seconds:
            raise _elsewhere(admin, brokers, topics, elsewhere, seconds)
        if now >= unloaded + _AGAIN_SECONDS:
            unloaded = now
            members = await _bundles(admin, [topic for topic in waiting if elsewhere[topic]])
            for bundle, broker in destinations(members, brokers_of(brokers, await admin.brokers())).items():
                await move(bundle, broker, members[bundle])
                moved.add(bundle)
        await asyncio.sleep(_POLL_SECONDS)


async def _owner(admin: AdminClient, topic: TopicName) -> str:
    """Its owner; empty while no broker takes it."""
    try:
        return await admin.owner(topic, answered_retry_seconds=0)
    except Unavailable:
        return ""


async def owners_of(admin: AdminClient, topics: Iterable[TopicName]) -> dict[TopicName, str]:
    """Topic or partition → the broker that owns it, empty if no broker takes it."""
    names = list(topics)
    return dict(zip(names, await asyncio.gather(*(_owner(admin, topic) for topic in names)), strict=True))


async def _bundles(admin: AdminClient, topics: Iterable[TopicName]) -> dict[str, list[TopicName]]:
    bundles: dict[str, list[TopicName]] = {}
    for topic in topics:
        bundles.setdefault(await admin.bundle(topic), []).append(topic)
    return bundles


def _elsewhere(
    admin: AdminClient,
    brokers: Sequence[str],
    topics: Sequence[TopicName],
    elsewhere: Mapping[TopicName, str],
    seconds: float,
) -> PreconditionFailed:
    topic, owner = next(iter(elsewhere.items()))
    where = f"is on {owner}" if owner else "is on no broker"
    return PreconditionFailed(
        f"{len(elsewhere)} of {counted(len(topics), 'topic')} are not on {listed(brokers)} after {seconds:.0f} s. "
        f"First {topic}: it {where}. Check that these brokers are alive and that nobody has changed the isolation "
        "policy, then run this step again.",
        cluster=admin.connection.name,
    )
