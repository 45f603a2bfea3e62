"""Remediate incidents: each remedy reads the cluster before it acts, does one thing, and reports before and after."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import stored_redirect
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.redaction import without_user_info
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.ledger.rows import NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import (
    Redirect,
    set_cluster_flag,
    set_flag,
    set_to_end,
    store_redirect,
    waiting_subscriptions,
)
from pulsar_fleet.migration.cutover.termination import check_periods, read_terminations, require_loaded, wait_terminated
from pulsar_fleet.migration.drain.detect import missing_grants
from pulsar_fleet.migration.drain.poll import read_partitions
from pulsar_fleet.migration.drain.state import Incident, IncidentKind, Remedy
from pulsar_fleet.migration.facts import Absence
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.preflight.redirect_probe import redirect_of
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import OriginalSettings, Throttle


async def load_unloaded(sides: Sides, run: Run, moves: Moves) -> None:
    """Load the partitions that blue answers as already migrated: their cursors and bounds cannot be read otherwise.

    As the drain does: the flag of their namespace is cleared for a moment, and the remedy is recorded; after some
    attempts, or where it fails, they stay unloaded. One call for each partition.
    """
    before = find_original_settings(run)
    if before is None:
        return
    async with sides.open() as (blue, green):
        for move in moves.moves:
            incident = await _incident(blue, move) if move.strategy.redirects else None
            if incident and may_attempt(incident, attempts_of(run), time.time()):
                redirect = redirect_of(sides, run)
                context = RemedyContext(blue=blue, green=green, move=move, redirect=redirect, before=before, run=run)
                await remediate(incident, context)


async def _incident(blue: AdminClient, move: Move) -> Incident | None:
    states = await read_partitions(blue, move.partitions, time.time(), together=True)
    unloaded = [str(topic) for topic, state in states.items() if state.absence is Absence.UNLOADED]
    if not unloaded:
        return None
    return Incident(
        kind=IncidentKind.UNLOADED,
        namespace=str(move.namespace),
        subject=unloaded[0],
        sentence=f"{blue.connection.name} has unloaded {listed(unloaded)} under the flag: nothing of it can be read.",
        remedy=Remedy.RELOAD,
        topics=tuple(unloaded),
    )


log = logging.getLogger(__name__)

MAX_ATTEMPTS = 2
ATTEMPT_INTERVAL_SECONDS = 30.0
MAX_NAMESPACE_ATTEMPTS = 12
"""Remedies of any kind: a namespace that needs more of them does not recover."""
PREFIX = "remedy:"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A remedy that was attempted: of which incident, in which namespace, when (seconds since 1970)."""

    incident: str
    namespace: str
    at: float


def may_attempt(incident: Incident, attempts: Sequence[Attempt], now: float) -> bool:
    """Whether the remedy may be attempted (again) now, without an operator."""
    return incident.is_automatic and not is_exhausted(incident, attempts) and not _is_too_soon(incident, attempts, now)


def is_exhausted(incident: Incident, attempts: Sequence[Attempt]) -> bool:
    """Whether the remedy was attempted too often, so that only an operator can go on."""
    same = sum(attempt.incident == incident.id for attempt in attempts)
    in_namespace = sum(attempt.namespace == incident.namespace for attempt in attempts)
    return incident.is_automatic and (same >= MAX_ATTEMPTS or in_namespace >= MAX_NAMESPACE_ATTEMPTS)


def _is_too_soon(incident: Incident, attempts: Sequence[Attempt], now: float) -> bool:
    return any(attempt.incident == incident.id and now - attempt.at < ATTEMPT_INTERVAL_SECONDS for attempt in attempts)


def attempts_of(run: Run) -> tuple[Attempt, ...]:
    """The remedies that this run has attempted, from the ledger: also those of a process that died."""
    return tuple(
        Attempt(change.change_id.removeprefix(PREFIX), change.resource, change.at.timestamp())
        for change in run.ledger.changes(run.id)
        if change.change_id.startswith(PREFIX)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyContext:
    """What the remedies of one namespace need."""

    blue: AdminClient
    green: AdminClient
    move: Move
    redirect: Redirect
    before: OriginalSettings
    run: Run


@dataclass(frozen=True, slots=True)
class RemedyResult:
    """What a remedy changed, in words and as values."""

    text: str
    before: Json
    after: Json


async def remediate(incident: Incident, context: RemedyContext) -> RemedyResult | None:
    """Remediate an incident and record it; a failure is recorded too, and returns None instead of raising."""
    result, outcome = None, "failed"
    try:
        _require_own_flag(incident, context.run, str(context.move.namespace))
        _require_namespace_flag(incident, context)
        result = recorded = await _REMEDIES[incident.remedy](incident, context)
        outcome = "applied"
        log.info("%s %s", incident.sentence, result.text)
    except FleetError as error:
        log.warning("%s: %s", incident.id, error)
        recorded = RemedyResult(str(error), None, None)
    cluster, namespace = context.blue.connection.name, str(context.move.namespace)
    _record(context.run, cluster, namespace, incident.id, incident.remedy.value, recorded, outcome)
    return result


def _require_own_flag(incident: Incident, run: Run, namespace: str) -> None:
    """A failback or an abort clears the flag on purpose: setting it again would terminate the topics that it opened."""
    phase = run.ledger.last_phase(namespace)
    if incident.remedy in (Remedy.SET_FLAG, Remedy.RELOAD) and phase in (Phase.REOPENED, Phase.ABORTED):
        raise PreconditionFailed(f"{namespace} is {phase} by another run, so its flag was not set again.")


def _require_namespace_flag(incident: Incident, context: RemedyContext) -> None:
    """Without the cluster's flag clients of every namespace would hang, and it unloads into an unreadable topic."""
    move, green = context.move, context.green.connection.name
    if move.strategy.flags_cluster and incident.remedy in (Remedy.RELOAD, Remedy.UNLOAD):
        raise PreconditionFailed(
            f"{move.namespace} moved with the flag of the whole cluster, so nothing was unloaded and the flag stays. "
            f"Its messages are on {green} too; connect the applications of this topic to {green} and restart them."
        )


def record_moved_bundles(run: Run, blue: str, namespace: str, bundles: Sequence[str]) -> None:
    """Record as a remedy that a cutover had to move bundles to another broker."""
    text = f"{', '.join(bundles)}: their brokers did not check the flag; moved to one that does, with the flag off."
    result = RemedyResult(text, list(bundles), None)
    _record(run, blue, namespace, f"{IncidentKind.NOT_TERMINATED}:{namespace}", "move bundles", result, "applied")


async def _unload(incident: Incident, context: RemedyContext) -> RemedyResult:
    topic = TopicName.parse(incident.subject)
    stats = TopicStats.of(topic, await context.blue.stats(topic))
    backlog = {name: subscription.backlog for name, subscription in stats.subscriptions.items() if subscription.backlog}
    if backlog:
        raise PreconditionFailed(f"{topic} was not unloaded: that would strand {backlog} unread entries.")
    await context.blue.put(f"/{topic.path}/unload")
    return RemedyResult("It had no backlog, so it was unloaded; its producers can go to green.", backlog, {})


async def _reload(incident: Incident, context: RemedyContext) -> RemedyResult:
    """Clear the flag while every partition is loaded, and set it again.

    Under the flag a loaded topic serves its backlog. A partition that was never terminated accepts messages while the
    flag is off, so producers are throttled until it is terminated.
    """
    unterminated = (await read_terminations(context.blue, context.move)).waiting
    fenced = [TopicName.parse(topic) for topic in incident.topics] if incident.kind is IncidentKind.FENCED else []
    name = context.move.namespace
    async with AsyncExitStack() as stack:
        if unterminated:
            await (await stack.enter_async_context(Throttle(context.blue, name, context.before))).apply()
        await _load_without_flag(context, fenced)
        waiting = await _wait_terminated(context) if unterminated else ()
    return RemedyResult(
        "The flag was cleared for a moment, every topic was loaded, and the flag was set again: the backlog on "
        f"{context.blue.connection.name} can be read there.",
        {"unserved": list(incident.topics)},
        {"terminated": len(unterminated) - len(waiting), "open": len(waiting)},
    )


async def _wait_terminated(context: RemedyContext) -> tuple[TopicName, ...]:
    periods = await check_periods(context.blue, context.run)
    return (await wait_terminated(context.blue, context.move, periods.until_terminated)).waiting


async def _load_without_flag(context: RemedyContext, fenced: list[TopicName]) -> None:
    try:
        await set_flag(context.blue, context.move.namespace, migrated=False)
        for topic in fenced:
            await context.blue.put(f"/{topic.path}/unload")
        await require_loaded(context.blue, list(context.move.partitions))
    finally:
        # Without the flag clients that start through blue hang, so it is set again also after a failed load.
        await set_flag(context.blue, context.move.namespace, migrated=True)


async def _set_flag(_incident: Incident, context: RemedyContext) -> RemedyResult:
    stored = await store_redirect(context.blue, await context.blue.cluster_name(), context.redirect)
    await require_loaded(context.blue, list(context.move.partitions))
    if context.move.strategy.flags_cluster:
        await set_cluster_flag(context.blue, context.redirect, migrated=True)
    else:
        await set_flag(context.blue, context.move.namespace, migrated=True)
    return RemedyResult("The flag is set again.", {"migrated": False}, {"migrated": True, "stored": stored})


async def _store_redirect(_incident: Incident, context: RemedyContext) -> RemedyResult:
    cluster = await context.blue.cluster_name()
    before = without_user_info(await stored_redirect(context.blue, cluster))
    await store_redirect(context.blue, cluster, context.redirect)
    return RemedyResult("The address is stored again.", before, context.redirect.document)


async def _grant(_incident: Incident, context: RemedyContext) -> RemedyResult:
    name = context.move.namespace
    blue, green = await context.blue.namespace(name) or {}, await context.green.namespace(name) or {}
    grants = missing_grants(name, blue, green)
    for grant in grants:
        await context.green.send(grant.call)
    roles = ", ".join(sorted({grant.role for grant in grants}))
    calls = [grant.call.text() for grant in grants]
    return RemedyResult(
        f"{roles} have the permissions of {context.blue.connection.name} on {context.green.connection.name}.",
        green.get("auth_policies"),
        calls,
    )


async def _reconnect(incident: Incident, context: RemedyContext) -> RemedyResult:
    (topic,) = map(TopicName.parse, incident.topics)
    name = incident.subject.removeprefix(f"{topic} ")
    if (topic, name) not in await waiting_subscriptions(context.blue, [topic]):
        return RemedyResult("Its consumers have left, or have more to read; nothing was changed.", None, None)
    await set_to_end(context.blue, topic, name)
    return RemedyResult("Its cursor was set to the end, where it was: its consumers connect again.", None, None)


def _record(
    run: Run, cluster: str, namespace: str, incident: str, action: str, result: RemedyResult, outcome: str
) -> None:
    change = NewChange(
        change_id=f"{PREFIX}{incident}",
        cluster=cluster,
        resource=namespace,
        action=action,
        hazard="reversible",
        before=result.before,
        after=result.after,
        outcome=outcome,
        detail=result.text,
    )
    run.ledger.record(run.id, new_changes=(change,))


_REMEDIES: Mapping[Remedy, Callable[[Incident, RemedyContext], Awaitable[RemedyResult]]] = {
    Remedy.UNLOAD: _unload,
    Remedy.RELOAD: _reload,
    Remedy.SET_FLAG: _set_flag,
    Remedy.STORE_REDIRECT: _store_redirect,
    Remedy.GRANT: _grant,
    Remedy.RECONNECT: _reconnect,
}
