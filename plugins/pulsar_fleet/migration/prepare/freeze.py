"""Freeze blue while namespaces move: turn off load shedding, bundle splits and the deletion of inactive topics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import ORIGINAL_SETTINGS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.prepare.inactive_topics import recreate_missing
from pulsar_fleet.migration.prepare.original_settings import (
    FROZEN_SETTINGS,
    REPLICATION_START,
    OriginalSettings,
    never_deleting,
)
from pulsar_fleet.migration.prepare.overrides import INACTIVE, RATE, override
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

_CONFIRM_SECONDS = 10.0
_OVERRIDDEN = (*FROZEN_SETTINGS, REPLICATION_START[0])


async def freeze_blue(sides: Sides, run: Run, moves: Moves) -> Reference:
    """Store blue's settings, then stop everything on blue that could unload or delete a topic.

    Inactive topics and partitions that were deleted before are created again.

    A second call keeps the settings that the first call stored: it does not store this run's overrides as originals.
    """
    async with sides.open() as (blue, green):
        reference = run.artefacts.find(run.id, ORIGINAL_SETTINGS)
        if reference is None:
            settings = await read_original_settings(blue, [move.namespace for move in moves.moves])
            reference = run.artefacts.write_json(run.id, ORIGINAL_SETTINGS, settings.to_json())
        original = OriginalSettings.from_json(run.artefacts.read_json(reference))
        await freeze(blue, original, frozen_settings(moves))
        for move in moves.moves:
            await recreate_missing(blue, move.namespace, move.topics, green)
            run.ledger.enter_phase(run.id, str(move.namespace), Phase.FROZEN)
    return reference


def frozen_settings(moves: Moves) -> dict[str, str]:
    """The dynamic settings that these moves override on blue."""
    replicated = any(move.strategy is Strategy.REPLICATE for move in moves.moves)
    return {**FROZEN_SETTINGS, **dict([REPLICATION_START] if replicated else ())}


async def read_original_settings(blue: AdminClient, namespaces: Iterable[NamespaceName]) -> OriginalSettings:
    """Read everything that the migration is going to override. Call it once, before the first override."""
    names = list(namespaces)
    own_name, overrides = await blue.cluster_name(), await blue.dynamic_overrides()
    policies = await asyncio.gather(*(_policies(blue, name) for name in names))
    rates = [(document.get("publishMaxMessageRate") or {}).get(own_name) for document in policies]
    topics = await _topics_with_own_policies(blue, names)
    return OriginalSettings(
        dynamic={key: overrides.get(key) for key in _OVERRIDDEN},
        effective=await _effective(blue),
        publish_rates={str(name): rate for name, rate in zip(names, rates, strict=True)},
        replication={
            str(name): list(document.get("replication_clusters") or [])
            for name, document in zip(names, policies, strict=True)
        },
        allowed={
            tenant: list((await blue.tenant(tenant) or {}).get("allowedClusters") or ())
            for tenant in {name.tenant for name in names}
        },
        inactive={
            str(name): document.get("inactive_topic_policies") for name, document in zip(names, policies, strict=True)
        },
        topic_rates=await _local(blue, topics, RATE),
        topic_inactive=await _local(blue, topics, INACTIVE),
    )


def find_original_settings(run: Run) -> OriginalSettings | None:
    """The settings of blue that a run stored; None before it froze blue."""
    document = run.stored(ORIGINAL_SETTINGS)
    return OriginalSettings.from_json(document) if document else None


async def freeze(blue: AdminClient, original: OriginalSettings, settings: Mapping[str, str]) -> None:
    """Stop what could unload or delete a topic: dynamic settings, and policies of the namespaces. Idempotent.

    A namespace without inactive-topic policies gets policies that delete nothing: they override each broker's setting.

    :raises PreconditionFailed: a broker did not apply a value within 10 s (the broker accepts any text with 200).
    """
    overrides = await blue.dynamic_overrides()
    for key, value in settings.items():
        if overrides.get(key) != value:
            log.info("blue: %s = %s (was %s)", key, value, overrides.get(key, "not overridden"))
            await blue.set_dynamic(key, value)
    await asyncio.gather(*(_keep_inactive_topics(blue, name, original) for name in original.namespaces))
    for broker in await blue.brokers():
        await confirm_settings(blue, broker, settings)


async def confirm_settings(blue: AdminClient, broker: str, settings: Mapping[str, str]) -> None:
    """Wait until a broker reports these values; `PreconditionFailed` after 10 s."""
    waiting = dict(settings)
    try:
        async with asyncio.timeout(_CONFIRM_SECONDS):
            while waiting:
                effective = await blue.runtime_configuration(broker)
                waiting = {key: value for key, value in waiting.items() if effective.get(key) != value}
                await asyncio.sleep(0.1 if waiting else 0)
    except TimeoutError as error:
        raise PreconditionFailed(
            f"Broker {broker} of {blue.connection.name} did not apply {waiting} within {_CONFIRM_SECONDS:.0f} s. "
            "Read its log, then run this step again."
        ) from error


async def _keep_inactive_topics(blue: AdminClient, name: NamespaceName, original: OriginalSettings) -> None:
    await override(blue, name, INACTIVE, never_deleting(original.inactive[str(name)]))
    for topic, value in original.own_inactive(name).items():
        await override(blue, topic, INACTIVE, never_deleting(value))


async def _policies(blue: AdminClient, name: NamespaceName) -> JsonObject:
    policies = await blue.namespace(name)
    if policies is None:
        raise NotFound(f"Namespace {name} does not exist on {blue.connection.name}; nothing was changed.")
    return policies


async def _effective(blue: AdminClient) -> dict[str, dict[str, str]]:
    brokers = await blue.brokers()
    configurations = await asyncio.gather(*(blue.runtime_configuration(broker) for broker in brokers))
    return {
        broker: {key: settings[key] for key in _OVERRIDDEN if key in settings}
        for broker, settings in zip(brokers, configurations, strict=True)
    }


async def _topics_with_own_policies(blue: AdminClient, names: Iterable[NamespaceName]) -> dict[str, set[TopicName]]:
    """Policy → topics with a value of their own, local or global: one pass per namespace, no call per topic."""
    topics: dict[str, set[TopicName]] = {RATE: set(), INACTIVE: set()}
    async with TopicPolicyReader(blue, None) as reader:
        for name in names:
            for state in await reader.read(name):
                if state.policies.get("publishRate"):
                    topics[RATE].add(TopicName.parse(state.topic))
                if state.policies.get("inactiveTopicPolicies"):
                    topics[INACTIVE].add(TopicName.parse(state.topic))
    return topics


async def _local(blue: AdminClient, topics: Mapping[str, set[TopicName]], policy: str) -> dict[str, JsonObject | None]:
    names = sorted(topics[policy], key=str)
    values = await asyncio.gather(*(blue.get(f"/{topic.path}/{policy}") for topic in names))
    return {str(topic): value for topic, value in zip(names, values, strict=True)}
