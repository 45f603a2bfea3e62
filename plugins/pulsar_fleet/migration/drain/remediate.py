"""Treat incidents: each remedy looks again before it acts, does one thing, and says what was before and after."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.ledger.rows import NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.cutover.redirect import Redirect, set_flag, store_redirect, stored_redirect
from pulsar_fleet.migration.cutover.termination import check_periods, load_all, open_partitions, wait_terminated
from pulsar_fleet.migration.drain.incident import Incident, Kind, Treatment
from pulsar_fleet.migration.drain.permissions import lacking
from pulsar_fleet.migration.model import Move
from pulsar_fleet.migration.prepare.original_settings import Frozen
from pulsar_fleet.migration.prepare.overrides import lift, quiet

TRIES = 2
GAP_SECONDS = 30.0
NAMESPACE_TRIES = 12
"""Remedies of any kind: a namespace that needs more of them is not healing."""


@dataclass(frozen=True, slots=True)
class Treated:
    """A remedy that was tried: of which incident, in which namespace, when (seconds since 1970)."""

    incident: str
    namespace: str
    at: float


def may_treat(incident: Incident, treated: Sequence[Treated], now: float) -> bool:
    """Whether the remedy may be tried (again) now, by itself."""
    return incident.is_automatic and not is_exhausted(incident, treated) and not _too_soon(incident, treated, now)


def is_exhausted(incident: Incident, treated: Sequence[Treated]) -> bool:
    """Whether only a person can go on: it was tried often enough."""
    same = sum(one.incident == incident.id for one in treated)
    there = sum(one.namespace == incident.namespace for one in treated)
    return incident.is_automatic and (same >= TRIES or there >= NAMESPACE_TRIES)


def _too_soon(incident: Incident, treated: Sequence[Treated], now: float) -> bool:
    return any(one.incident == incident.id and now - one.at < GAP_SECONDS for one in treated)


log = logging.getLogger(__name__)

PREFIX = "remedy:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """What the remedies of one namespace work on."""

    blue: AdminClient
    green: AdminClient
    move: Move
    redirect: Redirect
    before: Frozen


@dataclass(frozen=True, slots=True)
class Done:
    """What a remedy changed, in words and as values."""

    text: str
    before: Json
    after: Json


async def treat(incident: Incident, ward: Ward, run: Run) -> Done | None:
    """Treat an incident and record it; None when that failed, which is recorded too. Nothing is raised for that."""
    try:
        done = await _REMEDIES[incident.treatment](incident, ward)
    except FleetError as error:
        log.warning("%s: %s", incident.id, error)
        _record(run, ward, incident, Done(str(error), None, None), outcome="failed")
        return None
    log.info("%s %s", incident.sentence, done.text)
    _record(run, ward, incident, done, outcome="applied")
    return done


def record_moved(run: Run, blue: str, namespace: str, bundles: Sequence[str]) -> None:
    """Keep that a switch had to give bundles to another broker, as the remedy that it is."""
    text = f"{', '.join(bundles)} did not look at the flag; moved to a broker that does, with the flag off meanwhile."
    change = NewChange(
        change_id=f"{PREFIX}{Kind.NOT_HANDED_OVER}:{namespace}",
        cluster=blue,
        resource=namespace,
        action="move bundles",
        hazard="reversible",
        before=list(bundles),
        after=None,
        outcome="applied",
        detail=text,
    )
    run.ledger.record(run.id, made=(change,))


def treated(run: Run) -> tuple[Treated, ...]:
    """The remedies that this run has tried, from the ledger: also those of a process that died."""
    return tuple(
        Treated(change.change_id.removeprefix(PREFIX), change.resource, change.at.timestamp())
        for change in run.ledger.changes(run.id)
        if change.change_id.startswith(PREFIX)
    )


async def _unload(incident: Incident, ward: Ward) -> Done:
    topic = TopicName.parse(incident.subject)
    stats = TopicStats.of(topic, await ward.blue.stats(topic))
    left = {name: subscription.backlog for name, subscription in stats.subscriptions.items() if subscription.backlog}
    if left:
        raise PreconditionFailed(f"{topic} was not unloaded: {left} unread entries would be stranded by it.")
    await ward.blue.put(f"/{topic.path}/unload")
    return Done("Nothing was unread on it, so it was unloaded; its producers can leave for green.", left, {})


async def _recover(incident: Incident, ward: Ward) -> Done:
    """Clear the flag for the moment that it takes to load every partition, and set it again.

    Under the flag a loaded topic serves what is left on it. A partition that was never closed takes messages as soon as
    the flag is off, so writers are quieted until it is closed.
    """
    open_ = await open_partitions(ward.blue, ward.move)
    fenced = [TopicName.parse(text) for text in incident.topics] if incident.kind is Kind.FENCED else []
    name = ward.move.namespace
    try:
        if open_:
            await quiet(ward.blue, name, ward.before)
        await _reload(ward, fenced)
        periods = await check_periods(ward.blue) if open_ else {}
        waiting = await wait_terminated(ward.blue, ward.move, 2 * max(periods.values()) + 5) if open_ else ()
    finally:
        if open_:
            await lift(ward.blue, name, ward.before)
    return Done(
        "The flag was cleared for a moment, everything was loaded, and the flag set again: what is left on blue can be "
        "read there.",
        {"unserved": list(incident.topics)},
        {"closed": len(open_) - len(waiting), "open": len(waiting)},
    )


async def _reload(ward: Ward, fenced: list[TopicName]) -> None:
    try:
        await set_flag(ward.blue, ward.move.namespace, migrated=False)
        for topic in fenced:
            await ward.blue.put(f"/{topic.path}/unload")
        await load_all(ward.blue, list(ward.move.partitions))
    finally:
        # Without the flag whoever starts anew hangs, so it is set again also when not everything could be loaded.
        await set_flag(ward.blue, ward.move.namespace, migrated=True)


async def _reflag(_incident: Incident, ward: Ward) -> Done:
    stored = await store_redirect(ward.blue, await ward.blue.cluster_name(), ward.redirect)
    await load_all(ward.blue, list(ward.move.partitions))
    await set_flag(ward.blue, ward.move.namespace, migrated=True)
    return Done("The flag is set again.", {"migrated": False}, {"migrated": True, "stored": stored})


async def _store(_incident: Incident, ward: Ward) -> Done:
    cluster = await ward.blue.cluster_name()
    before = await stored_redirect(ward.blue, cluster)
    await store_redirect(ward.blue, cluster, ward.redirect)
    return Done("The address is stored again.", before, ward.redirect.document)


async def _grant(_incident: Incident, ward: Ward) -> Done:
    name = ward.move.namespace
    blue, green = await ward.blue.namespace(name) or {}, await ward.green.namespace(name) or {}
    grants = lacking(name, blue, green)
    for grant in grants:
        await ward.green.send(grant.call)
    roles = ", ".join(sorted({grant.role for grant in grants}))
    calls = [grant.call.text() for grant in grants]
    return Done(f"{roles} may do on green what they may on blue.", green.get("auth_policies"), calls)


def _record(run: Run, ward: Ward, incident: Incident, done: Done, *, outcome: str) -> None:
    _write(run, ward, f"{PREFIX}{incident.id}", incident.treatment.value, done, outcome=outcome)


def _write(run: Run, ward: Ward, change_id: str, action: str, done: Done, *, outcome: str) -> None:
    change = NewChange(
        change_id=change_id,
        cluster=ward.blue.connection.name,
        resource=str(ward.move.namespace),
        action=action,
        hazard="reversible",
        before=done.before,
        after=done.after,
        outcome=outcome,
        detail=done.text,
    )
    run.ledger.record(run.id, made=(change,))


_REMEDIES: Mapping[Treatment, Callable[[Incident, Ward], Awaitable[Done]]] = {
    Treatment.UNLOAD: _unload,
    Treatment.RECOVER: _recover,
    Treatment.REFLAG: _reflag,
    Treatment.STORE_REDIRECT: _store,
    Treatment.GRANT: _grant,
}
