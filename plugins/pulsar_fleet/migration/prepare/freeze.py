"""Keep blue still while namespaces move, and put everything back afterwards, whatever happened in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import BEFORE
from pulsar_fleet.migration.prepare.original_settings import (
    DELETION,
    FROZEN_SETTINGS,
    REPLICATION_START,
    Frozen,
    never_deleting,
)
from pulsar_fleet.migration.prepare.overrides import INACTIVE, RATE, lift, override
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

_CONFIRM_SECONDS = 10.0
_REMEMBERED = (*FROZEN_SETTINGS, REPLICATION_START[0])


async def remember(blue: AdminClient, namespaces: Iterable[NamespaceName]) -> Frozen:
    """Read everything that the migration is going to override. Call it once, before the first override."""
    names = list(namespaces)
    own_name, overrides = await blue.cluster_name(), await blue.dynamic_overrides()
    policies = await asyncio.gather(*(_policies(blue, name) for name in names))
    rates = [(found.get("publishMaxMessageRate") or {}).get(own_name) for found in policies]
    topics = await _topics_with_own(blue, names)
    return Frozen(
        dynamic={key: overrides.get(key) for key in _REMEMBERED},
        effective=await _effective(blue),
        publish_rates={str(name): rate for name, rate in zip(names, rates, strict=True)},
        replication={
            str(name): list(found.get("replication_clusters") or [])
            for name, found in zip(names, policies, strict=True)
        },
        allowed={tenant: await _allowed(blue, tenant) for tenant in {name.tenant for name in names}},
        inactive={str(name): found.get("inactive_topic_policies") for name, found in zip(names, policies, strict=True)},
        topic_rates=await _local(blue, topics, RATE),
        topic_inactive=await _local(blue, topics, INACTIVE),
    )


def known_before(run: Run) -> Frozen | None:
    """What a run remembers of blue; None before it was held still."""
    kept = run.artefacts.find(run.id, BEFORE)
    return Frozen.from_json(run.artefacts.read_json(kept)) if kept else None


async def freeze(blue: AdminClient, before: Frozen, settings: Mapping[str, str]) -> None:
    """Stop what could unload or delete a topic: dynamic settings, and the policies of what moves. Again does nothing.

    A namespace without inactive-topic policies gets some that delete nothing: they beat every broker's own setting.

    :raises Refused: a broker did not take a value within 10 s (the broker accepts any text with 200).
    """
    overrides = await blue.dynamic_overrides()
    for key, value in settings.items():
        if overrides.get(key) != value:
            log.info("blue: %s = %s (was %s)", key, value, overrides.get(key, "not overridden"))
            await blue.set_dynamic(key, value)
    await asyncio.gather(*(_keep_topics(blue, name, before) for name in before.namespaces))
    for broker in await blue.brokers():
        await _confirm(blue, broker, settings)


async def thaw(blue: AdminClient, before: Frozen, *, keep_topics: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Put back what `remember` read; returns what had to be put back. Again changes nothing and returns nothing.

    :param keep_topics: namespaces whose inactive topics must not be deleted yet; with any, blue deletes none.
    :raises Refused: after everything was tried; the message lists what is not as it was. `Unavailable` when the cluster
        gave no answer, so that trying again may do.
    """
    restored: list[str] = []
    failures: list[FleetError] = []
    groups = [_settings(blue, before, keep=frozenset({DELETION} if keep_topics else ()))]
    groups += [_policies_of(blue, before, name, keep=str(name) in keep_topics) for name in before.namespaces]
    await asyncio.gather(*(_try_each(group, restored, failures) for group in groups))
    if failures:
        listed = "\n".join(f"  {failure}" for failure in failures)
        kind = Unavailable if all(isinstance(failure, Unavailable) for failure in failures) else PreconditionFailed
        raise kind(
            f"{len(failures)} of blue's settings could not be put back ({len(restored)} were). blue still holds what "
            f"the migration overrode: run this step again, or set them by hand.\n{listed}",
            cluster=blue.connection.name,
        )
    return tuple(restored)


Restoring = AsyncIterator[Awaitable[tuple[str, ...]]]


async def _try_each(group: Restoring, restored: list[str], failures: list[FleetError]) -> None:
    """One after the other: setters of one namespace must not meet. A failure does not keep the rest from its turn."""
    async for action in group:
        try:
            restored += await action
        except NotFound as error:
            log.warning("nothing to put back: %s", error)
        except FleetError as error:
            failures.append(error)


async def _settings(blue: AdminClient, before: Frozen, *, keep: frozenset[str]) -> Restoring:
    wanted = {key: value for key, value in before.dynamic.items() if key not in keep}
    try:
        overrides = await blue.dynamic_overrides()
    except FleetError as error:
        yield _fail(error)
        return
    for key, value in wanted.items():
        if overrides.get(key) != value:
            yield _restore_setting(blue, key, value)
    for broker, effective in before.effective.items():
        yield _confirm_restored(blue, broker, {key: effective[key] for key in wanted if key in effective})


async def _fail(error: FleetError) -> tuple[str, ...]:
    raise error


async def _restore_setting(blue: AdminClient, key: str, value: str | None) -> tuple[str, ...]:
    await (blue.unset_dynamic(key) if value is None else blue.set_dynamic(key, value))
    return (key,)


async def _confirm_restored(blue: AdminClient, broker: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    # A broker that is gone has nothing to restore; one that starts later reads the overrides itself.
    if broker in await blue.brokers():
        await _confirm(blue, broker, settings)
    return ()


async def _policies_of(blue: AdminClient, before: Frozen, name: NamespaceName, *, keep: bool) -> Restoring:
    yield lift(blue, name, before)
    if keep:
        return
    if str(name) in before.inactive:
        yield _restore(blue, name, before.inactive[str(name)])
    for topic, value in before.own_inactive(name).items():
        yield _restore(blue, topic, value)


async def _restore(blue: AdminClient, owner: NamespaceName | TopicName, value: JsonObject | None) -> tuple[str, ...]:
    return (f"{INACTIVE} of {owner}",) if await override(blue, owner, INACTIVE, value) else ()


async def _keep_topics(blue: AdminClient, name: NamespaceName, before: Frozen) -> None:
    await override(blue, name, INACTIVE, never_deleting(before.inactive[str(name)]))
    for topic, value in before.own_inactive(name).items():
        await override(blue, topic, INACTIVE, never_deleting(value))


async def _policies(blue: AdminClient, name: NamespaceName) -> JsonObject:
    found = await blue.namespace(name)
    if found is None:
        raise NotFound(f"Namespace {name} does not exist on {blue.connection.name}; nothing was changed.")
    return found


async def _allowed(blue: AdminClient, tenant: str) -> list[str]:
    return list((await blue.tenant(tenant) or {}).get("allowedClusters") or ())


async def _effective(blue: AdminClient) -> dict[str, dict[str, str]]:
    brokers = await blue.brokers()
    found = await asyncio.gather(*(blue.runtime_configuration(broker) for broker in brokers))
    return {
        broker: {key: settings[key] for key in _REMEMBERED if key in settings}
        for broker, settings in zip(brokers, found, strict=True)
    }


async def _topics_with_own(blue: AdminClient, names: Iterable[NamespaceName]) -> dict[str, set[TopicName]]:
    """Policy → topics that have one of their own, local or global: one pass per namespace, no call per topic."""
    found: dict[str, set[TopicName]] = {RATE: set(), INACTIVE: set()}
    async with TopicPolicyReader(blue, None) as reader:
        for name in names:
            for state in await reader.read(name):
                if state.policies.get("publishRate"):
                    found[RATE].add(TopicName.parse(state.topic))
                if state.policies.get("inactiveTopicPolicies"):
                    found[INACTIVE].add(TopicName.parse(state.topic))
    return found


async def _local(blue: AdminClient, topics: Mapping[str, set[TopicName]], policy: str) -> dict[str, JsonObject | None]:
    names = sorted(topics[policy], key=str)
    values = await asyncio.gather(*(blue.get(f"/{topic.path}/{policy}") for topic in names))
    return {str(topic): value for topic, value in zip(names, values, strict=True)}


async def _confirm(blue: AdminClient, broker: str, settings: Mapping[str, str]) -> None:
    waiting = dict(settings)
    try:
        async with asyncio.timeout(_CONFIRM_SECONDS):
            while waiting:
                effective = await blue.runtime_configuration(broker)
                waiting = {key: value for key, value in waiting.items() if effective.get(key) != value}
                await asyncio.sleep(0.1 if waiting else 0)
    except TimeoutError as error:
        raise PreconditionFailed(
            f"Broker {broker} of {blue.connection.name} did not take {waiting} within {_CONFIRM_SECONDS:.0f} s. "
            "Look at its log, then run this step again."
        ) from error
