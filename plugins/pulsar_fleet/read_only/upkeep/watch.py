"""Look after topics that are served read-only: retention, how far readers are behind, and links, which start again.

A broker that replicates topics with schemas to other clusters may hand the schema of one of their messages to a message
of a shadow topic. Its namespace accepts no schema from clients, so the replicator never continues (observed with 4.2.4;
the code of 3.0 and 4.0 does the same). If it accepted it, readers would decode messages with another topic's schema.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pulsar_fleet.cluster.admin.call import bare
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import cursors_in_stats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.preflight.context import blocker, warning
from pulsar_fleet.preflight.findings import Finding, blockers_first
from pulsar_fleet.read_only.brokers import amount, check_owners
from pulsar_fleet.read_only.checks import check_serving, forecast_minutes
from pulsar_fleet.read_only.isolation import recorded_brokers
from pulsar_fleet.read_only.links import is_alive
from pulsar_fleet.read_only.observe import observe, sources_served_in
from pulsar_fleet.read_only.recorded_calls import send_recorded
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.source_changes import only_readers, partial_readers
from pulsar_fleet.read_only.state import Observed, SourceState

_FOR_THE_LOG = (
    "source-retention-short",
    "source-compacted",
    "explicit-lac-off",
    "brokers-lost-for-others",
    "role-only-here",
    "cluster-has-peers",
    "policies-not-followed",
)
_NEAR = 0.8
"""The share of the retention that a reader may be behind before it is an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTopic(Document):
    """How one topic is served.

    :param links: topics or partitions; `alive` of them have a connected replicator.
    :param unsent: entries that the shadow topic does not know yet.
    :param lag_minutes: by subscription of the shadow topic: the age of its oldest message that is not acknowledged.
    :param sent: broker → the bytes per second that it sends to its readers.
    :param retained_minutes: for how long the source stores acknowledged messages at the present rate; -1 without limit.
    """

    source: TopicName
    shadow: TopicName
    links: int
    alive: int
    unsent: int
    lag_minutes: Mapping[str, float]
    retained_minutes: float
    sent: Mapping[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """`…: 2 of 2 links alive, 0 entries unsent, slowest reader 0.4 min behind, 60 min retained, b:8080 1 MB/s`."""
        slowest = max(self.lag_minutes.values(), default=0.0)
        retained = "unlimited" if self.retained_minutes < 0 else f"{self.retained_minutes:,.0f} min"
        return (
            f"{self.shadow}: {self.alive} of {self.links} links alive, {self.unsent:,} entries unsent, slowest reader "
            f"{slowest:,.1f} min behind, {retained} retained"
            + "".join(f", {broker} {amount(rate)}/s" for broker, rate in sorted(self.sent.items()))
        )


async def watch_namespace(
    admin: AdminClient, namespace: NamespaceName, lag_minutes: int
) -> tuple[tuple[ServedTopic, ...], tuple[Finding, ...]]:
    """The topics that are served in a namespace, and what is wrong with them, alarms first. It loads them.

    Calls: two for the namespace, one or two for each topic there, and those of a plan.

    :raises NotFound: the namespace does not exist.
    """
    sources = await sources_served_in(admin, namespace)
    if not sources:
        return (), ()
    brokers = recorded_brokers(await admin.namespace(namespace))
    request = Request(topics=sources, namespace=namespace, brokers=brokers, lag_minutes=lag_minutes)
    observed = await observe(admin, request)
    served: list[ServedTopic] = []
    unsent: list[Link] = []
    findings = [
        *check_serving(observed, request),
        *check_owners(observed, request),
        *_readers(observed, request),
    ]
    for state in observed.sources:
        if state.can_be_served:
            topic, waiting = await _served(admin, state, request.shadow(state.topic))
            served.append(topic)
            unsent += waiting
            findings += _findings(topic, lag_minutes)
    findings += [_link_stopped(source) for source, _ in await stopped_links(admin, unsent)]
    return tuple(served), blockers_first(findings)


async def _served(admin: AdminClient, source: SourceState, shadow: TopicName) -> tuple[ServedTopic, list[Link]]:
    """How a topic is served, and its links with unsent entries."""
    alive = 0
    unsent: dict[Link, int] = {}
    lags: dict[str, float] = {}
    sent: dict[str, float] = {}
    count = source.partitions or 0
    stored = list(zip(source.topic.partitions(count), shadow.partitions(count), strict=True))
    for one_source, one_shadow in stored:
        # A replicator stays connected, and sends nothing new, when the list of its source is stored without its topic.
        alive += str(shadow) in source.linked and await is_alive(admin, one_source, one_shadow)
        unsent[one_source, one_shadow] = (await progress_of(admin, (one_source, one_shadow))).unsent
        stats = await admin.get(f"/{one_shadow.path}/stats", getPreciseBacklog=True, getEarliestTimeInBacklog=True)
        for name, minutes in _lags(stats).items():
            lags[name] = max(minutes, lags.get(name, 0.0))
        owner = await admin.owner(one_shadow)
        sent[owner] = sent.get(owner, 0.0) + float(stats.get("msgThroughputOut") or 0)
    forecast = forecast_minutes(source)
    topic = ServedTopic(
        source=source.topic,
        shadow=shadow,
        links=len(stored),
        alive=alive,
        unsent=sum(unsent.values()),
        lag_minutes=lags,
        sent=sent,
        retained_minutes=-1.0 if forecast == float("inf") else round(forecast, 1),
    )
    return topic, [link for link, entries in unsent.items() if entries]


def _lags(stats: JsonObject) -> dict[str, float]:
    now = time.time() * 1000
    ages = {
        name: (subscription.get("msgBacklog"), subscription.get("earliestMsgPublishTimeInBacklog") or 0)
        for name, subscription in (stats.get("subscriptions") or {}).items()
    }
    return {
        name: round(max(0.0, now - earliest) / 60_000, 2) if backlog and earliest > 0 else 0.0
        for name, (backlog, earliest) in ages.items()
    }


def _link_stopped(source: TopicName) -> Finding:
    return blocker(
        "link-stopped",
        str(source),
        f"its replicator is connected, has entries to send, and sent none for {STOPPED_SECONDS:.0f} s",
        "Readers of its shadow topic get no new messages.",
        "unload the topic: its clients reconnect, and readers get all messages. *Follow the sources* does it.",
    )


def _findings(topic: ServedTopic, lag_minutes: int) -> Iterator[Finding]:
    if topic.alive < topic.links:
        yield blocker(
            "link-not-alive",
            str(topic.shadow),
            f"{topic.alive} of {topic.links} links are alive",
            "Its readers get no new messages.",
            "run serve_read_only with this topic again: it links what is not linked, and says what else is wrong.",
        )
    for name, lag in sorted(topic.lag_minutes.items()):
        where = f"{topic.shadow} {name}"
        if topic.retained_minutes > 0 and lag > _NEAR * topic.retained_minutes:
            yield blocker(
                "reader-near-retention",
                where,
                f"{lag:,.1f} min behind, and the source retains {topic.retained_minutes:,.1f} min",
                "It loses messages without an error.",
                f"raise the retention of {topic.source.namespace} now, then find out why the reader is slow.",
            )
        elif lag > lag_minutes:
            yield warning(
                "reader-behind",
                where,
                f"{lag:,.1f} min behind, {lag_minutes} min are allowed",
                "It may lose messages when the source is trimmed.",
                "find out why the reader is slow.",
            )


def _readers(observed: Observed, request: Request) -> Iterator[Finding]:
    namespace = str(request.namespace)
    for role in only_readers(observed, request):
        yield warning(
            "role-only-here",
            namespace,
            f"{role} may consume here, and not from the source",
            "It reads messages that it may not read at their source, if the permission there was taken from it.",
            f"take the permission of {role} in {namespace}, unless it was given for these readers.",
        )
    for role in partial_readers(observed, request):
        yield warning(
            "role-reads-other-source",
            namespace,
            f"{role} may consume from every topic here, and not from every source",
            "It reads messages of sources from which it may not consume.",
            f"run serve_read_only with these topics again: {role} gets the topics of its sources alone.",
        )


def alarms(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What fails a run: everything that people must act on now."""
    return tuple(finding for finding in findings if finding.id not in _FOR_THE_LOG)


STOPPED_SECONDS = 10.0
"""A replicator that is only slow or limited sends something in this time."""

Link = tuple[TopicName, TopicName]
"""A source or its partition, and the shadow topic or its partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How many entries a replicator has sent since its source was loaded, and how many are left."""

    sent: int
    unsent: int


async def progress_of(admin: AdminClient, link: Link) -> Progress:
    """What a link has sent: one call. The statistics of the source say nothing of it, those of its ledger do."""
    source, shadow = link
    stats = await admin.internal_stats(source)
    cursor = cursors_in_stats(stats).get(f"pulsar.repl-{shadow}")
    sent = cursor.consumed if cursor else int(stats["entriesAddedCounter"])
    return Progress(sent=sent, unsent=max(0, int(stats["entriesAddedCounter"]) - sent))


async def stopped_links(
    admin: AdminClient, links: Sequence[Link], *, seconds: float = STOPPED_SECONDS
) -> tuple[Link, ...]:
    """The links that are connected, have entries to send, and send none for `seconds`.

    It waits only if entries are unsent. Calls: one for each link, two more for each with unsent entries.
    """
    first = {link: await progress_of(admin, link) for link in links}
    waiting = {link: progress for link, progress in first.items() if progress.unsent}
    if not waiting:
        return ()
    await asyncio.sleep(seconds)
    stopped = []
    for link, before in waiting.items():
        now = await progress_of(admin, link)
        if now.unsent and now.sent == before.sent and await is_alive(admin, *link):
            stopped.append(link)
    return tuple(stopped)


async def restart_links(admin: AdminClient, links: Sequence[Link], run: Run) -> None:
    """Unload the sources: each gets a new replicator, and a new ledger, by which its shadow topic has all messages.

    Clients of a source reconnect at once, as after every unload. A second call unloads again.
    """
    for source, shadow in links:
        await send_recorded(admin, run, bare("PUT", f"/{source.path}/unload"), resource=f"topic {source}")
        await is_alive(admin, source, shadow)
        await admin.stats(source, precise=False)
