"""Restore on blue what a migration overrode; every restoration is tried, whatever fails in between."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Phase, is_reversible
from pulsar_fleet.migration.prepare.freeze import confirm_settings
from pulsar_fleet.migration.prepare.original_settings import DELETION, OriginalSettings
from pulsar_fleet.migration.prepare.overrides import INACTIVE, override, restore_publish_rates

log = logging.getLogger(__name__)


async def restore_blue(sides: Sides, run: Run, original: OriginalSettings, *, delete_topics: bool) -> tuple[str, ...]:
    """Restore what `freeze_blue` and `cut_over` overrode on blue; returns what had to be restored.

    :param delete_topics: let blue delete inactive topics again even after namespaces were cut over.
    :raises PreconditionFailed: a setting could not be restored; all were tried, the message lists the failures.
    """
    async with sides.open() as (blue, _green):
        keep = frozenset[str]() if delete_topics else await _cut_over_namespaces(blue, run, original)
        return await restore_original_settings(blue, original, keep_topics=keep)


async def _cut_over_namespaces(blue: AdminClient, run: Run, original: OriginalSettings) -> frozenset[str]:
    """Namespaces whose clients are on green, by the ledger or by the cluster: an attempt may have died in between."""
    by_ledger = {entry.namespace for entry in run.ledger.phases(run.id) if not is_reversible(Phase(entry.phase))}
    others = [name for name in original.namespaces if str(name) not in by_ledger]
    policies = await asyncio.gather(*(blue.namespace(name) for name in others), return_exceptions=True)
    # A namespace that cannot be read keeps its topics; `restore_original_settings` reports that it cannot be read.
    flagged = {
        str(name)
        for name, document in zip(others, policies, strict=True)
        if isinstance(document, BaseException) or (document or {}).get("migrated")
    }
    return frozenset(by_ledger | flagged)


async def restore_original_settings(
    blue: AdminClient, original: OriginalSettings, *, keep_topics: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Restore what `read_original_settings` read; returns what had to be restored, nothing on a second call.

    :param keep_topics: namespaces whose inactive topics must not be deleted yet; with any, blue deletes none.
    :raises PreconditionFailed: after everything was tried; the message lists what is not restored.
    :raises Unavailable: the cluster did not answer, so that a retry may succeed.
    """
    restored: list[str] = []
    failures: list[FleetError] = []
    groups = [_dynamic_settings(blue, original, keep=frozenset({DELETION} if keep_topics else ()))]
    groups += [_namespace_policies(blue, original, name, keep=str(name) in keep_topics) for name in original.namespaces]
    await asyncio.gather(*(_run_group(group, restored, failures) for group in groups))
    if failures:
        listed = "\n".join(f"  {failure}" for failure in failures)
        kind = Unavailable if all(isinstance(failure, Unavailable) for failure in failures) else PreconditionFailed
        raise kind(
            f"{len(failures)} of blue's settings could not be restored ({len(restored)} were). blue still has the "
            f"migration's overrides: run this step again, or restore them by hand.\n{listed}",
            cluster=blue.connection.name,
        )
    return tuple(restored)


Restorations = AsyncIterator[Awaitable[tuple[str, ...]]]


async def _run_group(group: Restorations, restored: list[str], failures: list[FleetError]) -> None:
    """Run restorations of one owner in sequence: its setters must not overlap. After a failure the rest is tried."""
    async for action in group:
        try:
            restored += await action
        except NotFound as error:
            log.warning("nothing to restore: %s", error)
        except FleetError as error:
            failures.append(error)


async def _dynamic_settings(blue: AdminClient, original: OriginalSettings, *, keep: frozenset[str]) -> Restorations:
    settings = {key: value for key, value in original.dynamic.items() if key not in keep}
    try:
        overrides = await blue.dynamic_overrides()
    except FleetError as error:
        yield _fail(error)
        return
    for key, value in settings.items():
        if overrides.get(key) != value:
            yield _restore_setting(blue, key, value)
    for broker, effective in original.effective.items():
        yield _confirm_restored(blue, broker, {key: effective[key] for key in settings if key in effective})


async def _fail(error: FleetError) -> tuple[str, ...]:
    raise error


async def _restore_setting(blue: AdminClient, key: str, value: str | None) -> tuple[str, ...]:
    await (blue.unset_dynamic(key) if value is None else blue.set_dynamic(key, value))
    return (key,)


async def _confirm_restored(blue: AdminClient, broker: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    # A broker that is gone has nothing to restore; a broker that starts later reads the overrides itself.
    if broker in await blue.brokers():
        await confirm_settings(blue, broker, settings)
    return ()


async def _namespace_policies(
    blue: AdminClient, original: OriginalSettings, name: NamespaceName, *, keep: bool
) -> Restorations:
    yield restore_publish_rates(blue, name, original)
    if keep:
        return
    if str(name) in original.inactive:
        yield _restore_policy(blue, name, original.inactive[str(name)])
    for topic, value in original.own_inactive(name).items():
        yield _restore_policy(blue, topic, value)


async def _restore_policy(
    blue: AdminClient, owner: NamespaceName | TopicName, value: JsonObject | None
) -> tuple[str, ...]:
    return (f"{INACTIVE} of {owner}",) if await override(blue, owner, INACTIVE, value) else ()
