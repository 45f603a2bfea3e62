"""Settings of blue's brokers that are overridden while any run moves namespaces; the last run restores them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.runs.leases import BrokerOverrides, ClusterRuns
from pulsar_fleet.cluster.runs.overrides import FROZEN_SETTINGS
from pulsar_fleet.cluster.runs.state_topic import read_runs, update_runs
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.unread_brokers import BrokerSettings, read_settings

log = logging.getLogger(__name__)

_CONFIRM_SECONDS = 10.0


async def freeze_brokers(blue: AdminClient, run: Run) -> None:
    """Turn off load shedding and bundle splits for a run; the settings before are recorded on blue first. Idempotent.

    A broker that a waiver accepts as unknown is not asked whether it applies them.

    :raises PreconditionFailed: a broker did not apply a value within 10 s (the broker accepts any text with 200).
    """
    brokers = await read_settings(blue, run)

    async def join(runs: ClusterRuns) -> ClusterRuns:
        before = runs.brokers or await _settings_before(blue, brokers)
        return replace(runs, brokers=replace(before, runs=tuple(sorted({*before.runs, run.id}))))

    recorded = (await read_runs(blue)).brokers
    if recorded is None or run.id not in recorded.runs:
        await update_runs(blue, join)
    overrides, cluster = await blue.dynamic_overrides(), blue.connection.name
    for key, value in FROZEN_SETTINGS.items():
        if overrides.get(key) != value:
            log.info("%s: %s = %s (was %s)", cluster, key, value, overrides.get(key, "not overridden"))
            await blue.set_dynamic(key, value)
    for broker in brokers.settings:
        await _confirm(blue, broker, FROZEN_SETTINGS)
    if brokers.unread:
        log.warning(
            "%s: whether %s apply %s is not known", cluster, ", ".join(brokers.unread), ", ".join(FROZEN_SETTINGS)
        )


async def restore_brokers(blue: AdminClient, run_id: str) -> tuple[str, ...]:
    """Restore the settings of the brokers, unless another live run needs them; returns the names of the settings.

    Runs that lost their lease count as dead: the last live run restores what they left. A second call returns nothing.
    """
    restored: list[str] = []

    async def leave(runs: ClusterRuns) -> ClusterRuns:
        brokers = runs.brokers
        if brokers is None:
            return runs
        if others := runs.freezing(time.time(), besides=run_id):
            log.info("%s: settings of the brokers stay overridden for %s", blue.connection.name, ", ".join(others))
            return replace(runs, brokers=replace(brokers, runs=others))
        restored.extend(await _restore(blue, brokers))
        return replace(runs, brokers=None)

    if (await read_runs(blue)).brokers is not None:
        await update_runs(blue, leave)
    return tuple(restored)


async def _settings_before(blue: AdminClient, brokers: BrokerSettings) -> BrokerOverrides:
    overrides = await blue.dynamic_overrides()
    return BrokerOverrides(
        dynamic={key: overrides.get(key) for key in FROZEN_SETTINGS},
        effective={
            broker: {key: settings[key] for key in FROZEN_SETTINGS if key in settings}
            for broker, settings in brokers.settings.items()
        },
        runs=(),
    )


async def _restore(blue: AdminClient, before: BrokerOverrides) -> list[str]:
    overrides, restored = await blue.dynamic_overrides(), []
    for key, value in before.dynamic.items():
        if overrides.get(key) not in (value, FROZEN_SETTINGS.get(key)):
            log.info("%s: %s = %s was set by somebody else and stays", blue.connection.name, key, overrides.get(key))
        elif overrides.get(key) != value:
            await (blue.unset_dynamic(key) if value is None else blue.set_dynamic(key, value))
            restored.append(key)
    present = set(await blue.brokers())
    for broker, effective in before.effective.items():
        # A broker that is gone has nothing to restore; a broker that starts later reads the overrides itself.
        if broker in present:
            await _confirm(blue, broker, {key: effective[key] for key in restored if key in effective})
    return restored


async def _confirm(blue: AdminClient, broker: str, settings: Mapping[str, str]) -> None:
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
