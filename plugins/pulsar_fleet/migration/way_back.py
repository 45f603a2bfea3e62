"""The first steps of the way back: interlocks, then blue is opened again. The rest is a migration from green to blue.

Between these two an application that starts anew through blue stays on blue, so little time should pass; its messages
are not lost, but consumers see them only when they have returned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from pulsar_fleet.change.findings import Finding, blockers, count_line
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import FleetError, Refused
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration import gates, interlocks
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.frozen import Frozen
from pulsar_fleet.migration.interlocks import Returning
from pulsar_fleet.migration.moves import choose_strategy
from pulsar_fleet.migration.owners import load_all
from pulsar_fleet.migration.phases import Phase, Strategy, is_reversible
from pulsar_fleet.migration.redirect import set_flag
from pulsar_fleet.migration.replicate import set_replication
from pulsar_fleet.migration.stale_topics import create_like, make_anew, stale_topics
from pulsar_fleet.migration.steps import BEFORE, Sides
from pulsar_fleet.migration.survey import require_reachable, survey_cluster, survey_partitions, topics_of
from pulsar_fleet.reading.source_positions import Ledgers, source_position
from pulsar_fleet.records.ledger import Ledger
from pulsar_fleet.records.rows import NewChange
from pulsar_fleet.records.run import Run

log = logging.getLogger(__name__)

INTERLOCKS = "interlocks.json"
PROCEDURES = ("migrate_namespaces", "return_namespaces")


async def check_interlocks(
    sides: Sides, run: Run, names: Sequence[NamespaceName], strategy: Strategy | None, *, allow_removal: bool
) -> tuple[Finding, ...]:
    """Evaluate every interlock, and every gate of a migration from green to blue. Changes nothing.

    :param sides: as in the migration: blue is the cluster that the namespaces return to.
    :param allow_removal: the closed topics on blue may be removed.
    :raises Refused: something is in the way; the message names all of it.
    """
    await require_reachable(sides.blue)
    async with sides.open() as (blue, green):
        found = [await _look(blue, green, run, name, strategy) for name in names]
        returning = tuple(one for one, _ in found)
        findings = list(interlocks.check(returning, await unhealthy(blue), allow_removal=allow_removal))
        on_green, on_blue = await asyncio.gather(survey_cluster(green), survey_cluster(blue))
        url = sides.blue.require_service_url()
        findings += gates.check(on_green, on_blue, url, tuple(facts for _, facts in found if facts))
    run.artefacts.write_json(run.id, INTERLOCKS, [finding.to_json() for finding in findings])
    for finding in findings:
        log.warning("%s", finding.text())
    if stopping := blockers(findings):
        listed = "\n".join(finding.text() for finding in stopping)
        raise Refused(f"{count_line(findings)}. Nothing has been changed.\n{listed}")
    return tuple(findings)


async def reopen(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> dict[str, JsonObject]:
    """Clear blue's flags, and make its closed topics anew, empty; call it only after `check_interlocks`.

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
                    raise Refused(
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
    kept = run.artefacts.find(run.id, BEFORE)
    before = Frozen.from_json(run.artefacts.read_json(kept)).replication if kept else {}
    closed = []
    async with sides.open() as (blue, green):
        for name in names:
            here, there = await asyncio.gather(blue.namespace(name), green.namespace(name))
            if here is None or here.get("migrated") or (there or {}).get("migrated"):
                continue
            if str(name) in before:
                await set_replication(green, await green.cluster_name(), name, before[str(name)])
            topics = await topics_of(blue, name)
            await load_all(
                blue, [partition for topic, count in topics.items() for partition in topic.partitions(count)]
            )
            await set_flag(blue, name, migrated=True)
            run.ledger.enter_phase(run.id, str(name), Phase.UNDONE)
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
        for one in ledger.running(PROCEDURES)
        if one.run_id != own
        and (
            str(name) in (one.conf.get("namespaces") or ())
            or any(phase.namespace == str(name) for phase in ledger.phases(one.run_id))
        )
    )


async def _look(
    blue: AdminClient, green: AdminClient, run: Run, name: NamespaceName, wanted: Strategy | None
) -> tuple[Returning, NamespaceFacts | None]:
    here, there = await asyncio.gather(blue.namespace(name), green.namespace(name))
    if here is None or there is None:
        nothing = Returning(
            namespace=name, blue=here, green=there, strategy=Strategy.REDIRECT, topics={}, stale=(), verdict=None
        )
        return nothing, None
    facts = await _facts(green, name, here, there)
    strategy = wanted or choose_strategy(facts)[0]
    returning = Returning(
        namespace=name,
        blue=here,
        green=there,
        strategy=strategy,
        topics=facts.topics,
        stale=await stale_topics(blue, name),
        verdict=next((one.verdict for one in run.ledger.verdicts_of(str(name), newest=1)), None),
        rivals=rivals(run.ledger, run.id, name),
        copied=await _copied(green, [one.topic for one in facts.partitions]),
        reopened=any(one.namespace == str(name) for one in run.ledger.phases(run.id)),
    )
    return returning, facts


async def _facts(green: AdminClient, name: NamespaceName, here: JsonObject, there: JsonObject) -> NamespaceFacts:
    """What the gates of a migration from green to blue look at; what the migration left on blue is not of it."""
    topics = await topics_of(green, name)
    rates = await asyncio.gather(*(green.get(f"/{topic.path}/publishRate") for topic in topics if topic.persistent))
    partitions = [partition for topic, count in topics.items() for partition in topic.partitions(count)]
    return NamespaceFacts(
        namespace=name,
        blue=there,
        green={**here, "migrated": False},
        topics=topics,
        green_topics={},
        partitions=await survey_partitions(green, partitions),
        topic_publish_rates=tuple(
            topic for topic, rate in zip((one for one in topics if one.persistent), rates, strict=True) if rate
        ),
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
