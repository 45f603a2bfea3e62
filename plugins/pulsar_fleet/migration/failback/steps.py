"""The first steps of a failback: checks, then blue is reopened. The rest is a migration from green to blue.

Between these two an application that starts through blue stays on blue, so little time should pass; its messages are
not lost, but its consumers get them only after they have gone back too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import NewChange, RecordedRun
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.cluster_lists import end_replication, share_store
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.messages.copies import REPLICATED_FROM
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.artefacts import FAILBACK_CHECKS
from pulsar_fleet.migration.cleanup import redirects_at_once, remove_topic, unload_read, without_termination
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.cutover.termination import check_periods, require_loaded
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.failback import checks
from pulsar_fleet.migration.failback.checks import FailbackNamespace, LeftoverTopic
from pulsar_fleet.migration.model import Phase, Strategy, choose_strategy, is_reversible
from pulsar_fleet.migration.preflight import gates
from pulsar_fleet.migration.preflight.evaluation import overrides_watch
from pulsar_fleet.migration.preflight.gates.catalogue import never_waived
from pulsar_fleet.migration.preflight.survey import survey
from pulsar_fleet.migration.preflight.view import Expectations, Survey, View, without_leftovers
from pulsar_fleet.migration.prepare.freeze import find_original_settings, recreate_missing
from pulsar_fleet.migration.prepare.lease import require_free
from pulsar_fleet.migration.scope import parse_scope
from pulsar_fleet.migration.third_clusters import read_third_clusters
from pulsar_fleet.preflight.findings import Finding, refusal_text
from pulsar_fleet.preflight.waivers import Waiver, WaiverResult, apply_waivers
from pulsar_fleet.snapshot.model import MIGRATED_PROPERTY, Snapshot, SubscriptionState
from pulsar_fleet.snapshot.resources import lists_of_topics, read_info, read_partition_counts, subscriptions_in_info


async def leftover_topics(blue: AdminClient, namespace: NamespaceName) -> tuple[LeftoverTopic, ...]:
    """Every topic of the namespace on blue; a flagged topic that is not loaded has no clients and stays unloaded."""
    topics, existing = await read_partition_counts(blue, namespace), await blue.topics(namespace)
    return tuple(await asyncio.gather(*(_leftover(blue, topic, count, existing) for topic, count in topics.items())))


async def recreate_topic(
    blue: AdminClient, leftover: LeftoverTopic, topics: Mapping[TopicName, int], green: AdminClient, *, shared: bool
) -> bool:
    """Remove a terminated topic and create it empty, with the partitions and properties that it has on green.

    A topic that an earlier attempt recreated is not changed; one that green does not have is only removed. The
    namespace must not be flagged: a flagged one accepts no new topics. True if the topic was removed.

    :param shared: see `remove_topic`.
    :raises PreconditionFailed: it has clients, or a client has created it with another partition count.
    """
    if leftover.terminated:
        await remove_topic(blue, leftover.topic, leftover.partitions, shared=shared)
        log.info("%s: terminated topic removed, with %d entries", leftover.topic, leftover.entries)
    if leftover.topic in topics:
        await create_topic_like(blue, leftover.topic, topics[leftover.topic], green)
    return leftover.terminated


async def create_topic_like(blue: AdminClient, topic: TopicName, count: int, green: AdminClient) -> None:
    """Create a topic as it is on green, unless it exists."""
    if count:
        stored = (await green.partition_metadata(topic)).properties
        properties = {key: value for key, value in stored.items() if key != MIGRATED_PROPERTY}
        await blue.create_partitioned_topic(topic, count, properties)
    elif topic not in await blue.topics(topic.namespace):
        await blue.create_topic(topic)
    created = (await blue.partition_metadata(topic)).partitions
    if created != count:
        raise PreconditionFailed(
            f"{topic} has {created or 'no'} partitions on {blue.connection.name} and {count or 'none'} on "
            f"{green.connection.name}: a client created it in between. Stop that client; if the topic's statistics "
            "show no "
            "message, delete it there, then run again."
        )


async def _leftover(blue: AdminClient, topic: TopicName, count: int, existing: Collection[TopicName]) -> LeftoverTopic:
    info = await read_info(blue, topic, topic.partitions(count), existing)
    documents: dict[str, JsonObject] = info.get("partitions") or {str(topic): info}
    statistics = await stats_of(blue, topic.partitions(count))
    loaded = {name: stats for name, stats in statistics.items() if isinstance(stats, TopicStats)}
    terminated = bool(documents) and all("terminatedPosition" in document for document in documents.values())
    # A drained subscription of a topic that ended is left over; one of an open topic is in use.
    kept = [cursor for cursor in subscriptions_in_info(topic, info) if not terminated or _is_unread(cursor, loaded)]
    return LeftoverTopic(
        topic=topic,
        partitions=count,
        terminated=terminated,
        subscriptions=tuple(sorted({cursor.name for cursor in kept})),
        clients=tuple(str(client) for stats in loaded.values() for client in stats.clients),
        entries=sum(_entries(document) for document in documents.values()),
    )


def _entries(document: JsonObject) -> int:
    return sum(max(0, int(ledger.get("entries") or 0)) for ledger in document.get("ledgers") or ())


def _is_unread(cursor: SubscriptionState, loaded: Mapping[TopicName, TopicStats]) -> bool:
    """Whether a subscription has unread messages; of a partition that is not loaded, any that exists may have some."""
    stats = loaded.get(TopicName.parse(cursor.partition))
    subscription = stats.subscriptions.get(cursor.name) if stats else None
    return subscription is None or subscription.backlog > 0


log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2


async def check_failback(
    sides: Sides,
    run: Run,
    names: Sequence[NamespaceName],
    strategy: Strategy | None,
    *,
    allow_removal: bool,
    expected: Expectations | None = None,
    waivers: Sequence[Waiver] = (),
    again: bool = False,
) -> tuple[Finding, ...]:
    """Evaluate every check, and every gate of a migration from green to blue. Changes nothing.

    :param sides: as in the migration: blue is the cluster that the namespaces go back to.
    :param allow_removal: the terminated topics on blue may be removed.
    :param waivers: blockers of the gates whose risk is accepted; a check of the failback is never waived.
    :param again: each waiver had its blocker before.
    :raises PreconditionFailed: there is a blocker, the message lists all findings; or a waiver covers a check.
    :raises InvalidRequest: a waiver that covers no blocker.
    """
    unread = await require_free(sides, run, names)
    async with sides.open() as (blue, green):
        surveyed = await survey(green, blue, names, run, redactor=open_redactor())
        strategies = {
            facts.namespace: strategy or choose_strategy(facts, surveyed.green.name)[0] for facts in surveyed.namespaces
        }
        namespaces = [
            await _read(blue, green, run, facts, strategies[facts.namespace], surveyed) for facts in surveyed.namespaces
        ]
        own = checks.check(
            tuple(namespaces), await unhealthy_brokers(blue), allow_removal=allow_removal, clusters=sides.names
        )
    log.info("%s", surveyed.headline())
    view = View(
        survey=without_leftovers(surveyed),
        strategies=strategies,
        connections=(sides.green.argument, sides.blue.argument),
        expected=replace(expected or Expectations(), is_failback=True),
        watch=overrides_watch(run.ledger) if expected and expected.dag_parsing else None,
        thirds=await read_third_clusters(sides, names),
        third_connections=tuple(third.argument for third in sides.thirds),
    )
    # The gates of the other direction say nothing about a namespace that is on blue already.
    exchanged = any(finding.id == checks.EXCHANGED for finding in own)
    findings = own if exchanged else (*own, *gates.check(view))
    run.artefacts.write_json(run.id, FAILBACK_CHECKS, [finding.to_json() for finding in findings])
    for finding in findings:
        log.warning("%s", finding.text())
    if unwaived := _judged(own, findings, waivers, view.names, again=again).unwaived:
        raise PreconditionFailed(refusal_text(findings, "Nothing has been changed.", unwaived))
    if unread:
        raise unread
    return findings


def _judged(
    own: Sequence[Finding],
    findings: Sequence[Finding],
    waivers: Sequence[Waiver],
    clusters: Mapping[str, str],
    *,
    again: bool,
) -> WaiverResult:
    for waiver in waivers:
        if any(waiver.covers(finding) for finding in own):
            raise PreconditionFailed(f"The failback check {waiver.id!r} cannot be waived: follow its remedy.")
    return apply_waivers(findings, waivers, whole_run=not again, never=never_waived(clusters))


async def reopen(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> dict[str, JsonObject]:
    """Clear blue's flags, and recreate its terminated topics, empty; call it only after `check_failback`.

    The flag comes first: both clusters are never flagged, and a flagged namespace accepts no new topic. A second call
    recreates only what is still terminated. Returns the removed topics, by namespace.
    """
    removed_topics: dict[str, JsonObject] = {}
    async with sides.open() as (blue, green):
        cluster = await blue.cluster_name()
        for name in names:
            run.ledger.enter_phase(run.id, str(name), Phase.REOPENED)
            await set_flag(blue, name, migrated=False)
            topics, shared = await read_partition_counts(green, name), await share_store(blue, green, name)
            removed = []
            for leftover in await leftover_topics(blue, name):
                if leftover.clients:
                    raise PreconditionFailed(
                        f"{leftover.clients[0]} connected to {leftover.topic} on {cluster}, which does not redirect it "
                        "now; stop that application until this task has ended, and run again."
                    )
                if await recreate_topic(blue, leftover, topics, green, shared=shared):
                    removed.append(str(leftover.topic))
                    _record(run, cluster, leftover.topic, leftover.entries)
            for topic in sorted(topics.keys() - (await read_partition_counts(blue, name)).keys()):
                # An attempt that died may have removed it without recreating it.
                await create_topic_like(blue, topic, topics[topic], green)
            removed_topics[str(name)] = {"removed": removed}
    return removed_topics


async def undo_reopen(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> tuple[str, ...]:
    """Undo `reopen`: set the flag on blue again, so that clients that start through it are redirected to green.

    A namespace whose clients are going to blue already, because green is flagged, is not changed. Its topics on blue
    must have no clients; they are terminated again. Replication to blue ends first, since a terminated topic accepts
    nothing. Returns the namespaces that were flagged.
    """
    original = find_original_settings(run)
    flagged = []
    async with sides.open() as (blue, green):
        # A loaded topic would deliver everything that it stores to a client that starts.
        unloads = await redirects_at_once(blue, run)
        for name in names:
            on_blue, on_green = await asyncio.gather(blue.namespace(name), green.namespace(name))
            if on_blue is None or (on_green or {}).get("migrated"):
                continue
            topics = await read_partition_counts(blue, name)
            partitions = [
                partition
                for topic, count in topics.items()
                if topic.persistent
                for partition in topic.partitions(count)
            ]
            if not on_blue.get("migrated"):
                if original and (clusters := original.replication.get(str(name))) is not None:
                    own, other = await green.cluster_name(), await blue.cluster_name()
                    await end_replication(green, own, name, other, clusters, original.own_lists(name))
                await recreate_missing(blue, name, topics, green)
                await require_loaded(blue, partitions)
                await set_flag(blue, name, migrated=True)
            if unloads:
                await _wait_terminated(blue, run, partitions)
                await unload_read(blue, partitions, terminated=True)
            run.ledger.enter_phase(run.id, str(name), Phase.ABORTED)
            flagged.append(str(name))
    return tuple(flagged)


async def _wait_terminated(blue: AdminClient, run: Run, partitions: Collection[TopicName]) -> None:
    """Wait until the brokers have terminated what was recreated: they look at the flag from time to time.

    One that is unloaded before is never terminated, since nothing loads it under the flag.
    """
    end, waiting = time.monotonic() + (await check_periods(blue, run)).until_terminated, list(partitions)
    while True:
        waiting = await without_termination(blue, waiting)
        if not waiting or time.monotonic() >= end:
            break
        await asyncio.sleep(_POLL_SECONDS)
    if waiting:
        log.warning("%d partitions on %s are not terminated, first %s", len(waiting), blue.connection.name, waiting[0])


async def close_reopened(sides: Sides, run: Run, names: Sequence[NamespaceName]) -> tuple[str, ...]:
    """`undo_reopen` for the namespaces that this run reopened and has not cut over."""
    phases = {entry.namespace: Phase(entry.phase) for entry in run.ledger.phases(run.id)}
    reopened = [name for name in names if (phase := phases.get(str(name))) and is_reversible(phase)]
    return await undo_reopen(sides, run, reopened)


async def unhealthy_brokers(admin: AdminClient) -> dict[str, str]:
    """Brokers that fail their health check → their answer."""
    unhealthy: dict[str, str] = {}
    for broker in await admin.brokers():
        try:
            answer = await admin.health(broker)
        except FleetError as error:
            answer = str(error)
        if answer != "ok":
            unhealthy[broker] = answer[:300]
    return unhealthy


def unfinished_runs(ledger: Ledger, run_id: str, name: NamespaceName) -> tuple[str, ...]:
    """Other runs that have not ended and change a namespace, by their configuration or by their phases."""
    return tuple(
        run.run_id
        for run in ledger.migrations()
        if run.run_id != run_id and (_covers(ledger, run, name) or ledger.entered(run.run_id, str(name)))
    )


def _covers(ledger: Ledger, run: RecordedRun, name: NamespaceName) -> bool:
    """Whether a run's selection has a namespace; that of a later wave may be empty, and is that of the first run."""
    texts, first = run.conf.get("namespaces") or [], run.conf.get("continues")
    if not texts and first and (planned_by := ledger.run(first)):
        texts = planned_by.conf["namespaces"]
    return bool(texts) and parse_scope(texts).has(name)


async def _read(
    blue: AdminClient,
    green: AdminClient,
    run: Run,
    facts: NamespaceFacts,
    strategy: Strategy,
    surveyed: Survey,
) -> FailbackNamespace:
    """One namespace; `facts` are of the migration from green to blue: their blue is green here."""
    name, on_green = facts.namespace, surveyed.blue
    unread = any(str(name) in note.resource for note in on_green.unread)
    exists = facts.blue is not None and facts.green is not None
    partitions = [stats.topic for stats in facts.partitions if stats.topic.persistent]
    newest = next(iter(run.ledger.verdicts_of(str(name), newest=1)), None)
    return FailbackNamespace(
        namespace=name,
        blue=facts.green,
        green=facts.blue,
        strategy=strategy,
        topics=facts.topics,
        leftovers=await leftover_topics(blue, name) if exists else (),
        verdict=newest.verdict if newest else None,
        proven_by_migration=newest is not None and run.ledger.entered(newest.run_id, str(name)),
        other_runs=unfinished_runs(run.ledger, run.id, name),
        replicated=await _replicated(green, partitions),
        left_green=on_green.has_terminated(name) or (None if unread else False),
        replicates_to=_other_clusters(surveyed.green.snapshot, name),
        only_green=(surveyed.blue.snapshot.cluster,),
        # What was closed again may have messages that an application wrote while it was open.
        reopened=run.ledger.last_phase(str(name), run_id=run.id) not in (None, Phase.ABORTED),
    )


def _other_clusters(snapshot: Snapshot, name: NamespaceName) -> dict[str, tuple[str, ...]]:
    """Namespace or topic → the other clusters that its list names; topics' own lists as far as they can be read.

    A single one is not replicated to: it is who serves a namespace of a store that both read (observed on 4.2.4).
    """
    lists: dict[str, Collection[str]] = {
        state.name: state.policies.get("replication_clusters") or ()
        for state in snapshot.namespaces
        if state.name == str(name)
    }
    own = lists_of_topics(snapshot.topic_policies)
    lists |= {str(topic): clusters for topic, clusters in own.items() if topic.namespace == name}
    others = {resource: tuple(sorted({*clusters} - {snapshot.cluster})) for resource, clusters in lists.items()}
    return {resource: clusters for resource, clusters in others.items() if clusters and len(lists[resource]) > 1}


async def _replicated(green: AdminClient, topics: Collection[TopicName]) -> tuple[TopicName, ...]:
    async def is_replicated(topic: TopicName) -> bool:
        try:
            ledgers = Ledgers.of(await green.internal_stats(topic))
        except NotFound:
            # An inactive partition that the broker has deleted has no entry.
            return False
        return len(ledgers) > 0 and REPLICATED_FROM in await green.entry_properties(topic, ledgers.at(0))

    answers = await asyncio.gather(*(is_replicated(topic) for topic in topics))
    return tuple(topic for topic, replicated in zip(topics, answers, strict=True) if replicated)


def _record(run: Run, cluster: str, topic: TopicName, entries: int) -> None:
    change = NewChange(
        change_id=f"recreate:{topic}"[:250],
        cluster=cluster,
        resource=str(topic),
        action="remove terminated topic and recreate it",
        hazard="destructive",
        before={"entries": entries, "terminated": True},
        after={"entries": 0},
        outcome="applied",
        detail="its history was verified on the other cluster, or every subscription has read it",
    )
    run.ledger.record(run.id, new_changes=(change,))
