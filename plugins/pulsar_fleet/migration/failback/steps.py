"""The first steps of the way back: checks, then blue is opened again. The rest is a migration from green to blue.

Between these two an application that starts anew through blue stays on blue, so little time should pass; its messages
are not lost, but consumers see them only when they have returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers, source_position
from pulsar_fleet.migration.artefacts import INTERLOCKS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.cutover.termination import load_all
from pulsar_fleet.migration.failback import checks
from pulsar_fleet.migration.failback.checks import Returning
from pulsar_fleet.migration.failback.recreate_topics import create_like, make_anew, stale_topics
from pulsar_fleet.migration.model import Phase, Strategy, choose_strategy, is_reversible
from pulsar_fleet.migration.preflight import gates
from pulsar_fleet.migration.preflight.survey import survey
from pulsar_fleet.migration.preflight.view import Expectations, View, without_remains
from pulsar_fleet.migration.preflight.waivers import Judged, Waiver, judge
from pulsar_fleet.migration.prepare.freeze import known_before
from pulsar_fleet.migration.prepare.replication import end_replication
from pulsar_fleet.migration.scope import parse_scope
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.preflight.findings import Finding, refusal_text
from pulsar_fleet.snapshot.documents import topics_of

log = logging.getLogger(__name__)


async def check_failback(
    sides: Sides,
    run: Run,
    names: Sequence[NamespaceName],
    strategy: Strategy | None,
    *,
    allow_removal: bool,
    expected: Expectations | None = None,
    waivers: Sequence[Waiver] = (),
) -> tuple[Finding, ...]:
    """Evaluate every interlock, and every gate of a migration from green to blue. Changes nothing.

    :param sides: as in the migration: blue is the cluster that the namespaces return to.
    :param allow_removal: the closed topics on blue may be removed.
    :param waivers: blockers of the gates that somebody takes on; an interlock is never waived.
    :raises Refused: something is in the way; the message names all of it. Or a waiver of what is never waived.
    :raises Rejected: a waiver that meets no blocker.
    """
    async with sides.open() as (blue, green):
        seen = await survey(green, blue, names, seal=open_seal())
        strategies = {one.namespace: strategy or choose_strategy(one, seen.green.name)[0] for one in seen.namespaces}
        looked = [await _look(blue, green, run, one, strategies[one.namespace]) for one in seen.namespaces]
        locked = checks.check(tuple(looked), await unhealthy(blue), allow_removal=allow_removal)
    log.info("%s", seen.headline())
    view = View(
        survey=without_remains(seen), strategies=strategies, expected=replace(expected or Expectations(), returns=True)
    )
    found = (*locked, *gates.check(view))
    run.artefacts.write_json(run.id, INTERLOCKS, [finding.to_json() for finding in found])
    for finding in found:
        log.warning("%s", finding.text())
    if stopping := _judged(locked, found, waivers).stopping:
        raise PreconditionFailed(refusal_text(found, "Nothing has been changed.", stopping))
    return found


def _judged(locked: Sequence[Finding], found: Sequence[Finding], waivers: Sequence[Waiver]) -> Judged:
    for waiver in waivers:
        if any(waiver.covers(finding) for finding in locked):
            raise PreconditionFailed(f"The interlock {waiver.id!r} is never waived: do what its remedy says.")
    return judge(found, waivers)


async def reopen(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> dict[str, JsonObject]:
    """Clear blue's flags, and make its closed topics anew, empty; call it only after `check_failback`.

    The flag comes first: both sides are never flagged, and a flagged namespace takes no new topic. Again makes anew
    only what is still closed. Returns what was removed, by namespace.
    """
    done: dict[str, JsonObject] = {}
    async with sides.open() as (blue, green):
        own = await blue.cluster_name()
        for name in names:
            run.ledger.enter_phase(run.id, str(name), Phase.REOPENED)
            await set_flag(blue, name, migrated=False)
            topics = await topics_of(green, name)
            removed = []
            for stale in await stale_topics(blue, name):
                if stale.clients:
                    raise PreconditionFailed(
                        f"{stale.clients[0]} came to {stale.topic} on {own}; restart that application, then run again."
                    )
                if await make_anew(blue, stale, topics, green):
                    removed.append(str(stale.topic))
                    _record(run, own, stale.topic, stale.entries)
            for topic in sorted(topics.keys() - (await topics_of(blue, name)).keys()):
                # A try that died may have removed it and not created it.
                await create_like(blue, topic, topics[topic], green)
            done[str(name)] = {"removed": removed}
    return done


async def close_again(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> tuple[str, ...]:
    """Take `reopen` back: set the flag on blue again, so that whoever starts through it is sent to green.

    Namespaces whose clients are on their way to blue already, because green is flagged, are left as they are. The
    topics on blue must be without clients; they are closed again. Replication to blue ends first, since a closed topic
    takes none. Returns the namespaces that were closed.
    """
    remembered = known_before(run)
    before = remembered.replication if remembered else {}
    closed = []
    async with sides.open() as (blue, green):
        for name in names:
            here, there = await asyncio.gather(blue.namespace(name), green.namespace(name))
            if here is None or here.get("migrated") or (there or {}).get("migrated"):
                continue
            if str(name) in before:
                own = await green.cluster_name()
                await end_replication(green, own, name, await blue.cluster_name(), before[str(name)])
            topics = await topics_of(blue, name)
            await load_all(
                blue, [partition for topic, count in topics.items() for partition in topic.partitions(count)]
            )
            await set_flag(blue, name, migrated=True)
            run.ledger.enter_phase(run.id, str(name), Phase.ABORTED)
            closed.append(str(name))
    return tuple(closed)


async def close_unreached(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> tuple[str, ...]:
    """`close_again` for the namespaces that this run opened and that did not come as far as their switch."""
    reached = {one.namespace: Phase(one.phase) for one in run.ledger.phases(run.id)}
    opened = [name for name in names if (phase := reached.get(str(name))) and is_reversible(phase)]
    return await close_again(sides, run, opened)


async def unhealthy(admin: AdminClient) -> dict[str, str]:
    """Brokers that do not say that they are well → what they said."""
    found: dict[str, str] = {}
    for broker in await admin.brokers():
        try:
            said = await admin.health(broker)
        except FleetError as error:
            said = str(error)
        if said != "ok":
            found[broker] = said[:300]
    return found


def rivals(ledger: Ledger, own: str, name: NamespaceName) -> tuple[str, ...]:
    """Other runs that have not ended and touch a namespace, by their configuration or by what they have done."""
    return tuple(
        one.run_id
        for one in ledger.migrations()
        if one.run_id != own
        and (parse_scope(one.conf["namespaces"]).has(name) or ledger.entered(one.run_id, str(name)))
    )


async def _look(
    blue: AdminClient, green: AdminClient, run: Run, facts: NamespaceFacts, strategy: Strategy
) -> Returning:
    """One namespace; `facts` are of the way back: what they call blue is green here."""
    name = facts.namespace
    there_is = facts.blue is not None and facts.green is not None
    return Returning(
        namespace=name,
        blue=facts.green,
        green=facts.blue,
        strategy=strategy,
        topics=facts.topics,
        stale=await stale_topics(blue, name) if there_is else (),
        verdict=next((one.verdict for one in run.ledger.verdicts_of(str(name), newest=1)), None),
        rivals=rivals(run.ledger, run.id, name),
        copied=await _copied(green, [one.topic for one in facts.partitions if one.topic.persistent]),
        reopened=run.ledger.entered(run.id, str(name)),
    )


async def _copied(green: AdminClient, topics: Collection[TopicName]) -> tuple[TopicName, ...]:
    async def one(topic: TopicName) -> TopicName | None:
        ledgers = Ledgers.of(await green.internal_stats(topic))
        return topic if len(ledgers) and await source_position(green, topic, ledgers.at(0)) else None

    return tuple(topic for topic in await asyncio.gather(*(one(topic) for topic in topics)) if topic)


def _record(run: Run, own: str, topic: TopicName, entries: int) -> None:
    change = NewChange(
        change_id=f"anew:{topic}"[:250],
        cluster=own,
        resource=str(topic),
        action="remove closed topic and create it anew",
        hazard="destructive",
        before={"entries": entries, "terminated": True},
        after={"entries": 0},
        outcome="applied",
        detail="its history is proven to be on the other cluster, or was read by everybody",
    )
    run.ledger.record(run.id, made=(change,))
