"""Store the state of both clusters with a proof, and refuse a cut-over when the state has changed since."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.topic_policies import Scope
from pulsar_fleet.cluster.runs.overrides import overrides_in, without_overrides
from pulsar_fleet.cluster.text import command_line, duration, listed
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import replicated_up_to
from pulsar_fleet.migration.artefacts import BASELINE
from pulsar_fleet.migration.clusters import names_of
from pulsar_fleet.migration.drain.poll import list_loaded, read_partitions
from pulsar_fleet.migration.facts import Absence
from pulsar_fleet.migration.model import Move, Phase, Strategy
from pulsar_fleet.migration.unread_brokers import accepted_as_unread
from pulsar_fleet.preflight.context import blocker
from pulsar_fleet.preflight.findings import Finding, refusal_text
from pulsar_fleet.snapshot.resources import read_partition_counts
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofBaseline(Document):
    """A proof of a namespace, and the state of both clusters at that time.

    :param at: when the bounds of the verification were frozen, seconds since 1970.
    :param verdict: of that verification, such as `equal`.
    :param blue: name of a setting of blue's namespace or of a topic in it → fingerprint of its value; `green` likewise.
    :param topics: topic → partition count on blue.
    :param ends: replicated partition → last entry on blue and on green, `ledger:entry` each.
    :param unsent: replicated partition → number of blue's entries up to that end without a copy on green.
    :param stored: redirected partition → bytes stored on green, by its brokers' lists; 0 where it is not listed.
    """

    SCHEMA_VERSION = 3

    namespace: str
    at: float
    verdict: str
    blue: Mapping[str, str]
    green: Mapping[str, str]
    topics: Mapping[str, int]
    ends: Mapping[str, tuple[str, str]]
    stored: Mapping[str, int] = field(default_factory=dict)
    unsent: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Growth:
    """What was added to one partition of green since the proof, and how much of it can be copies.

    :param blue: what was added to blue, read after green, plus what had no copy at the time of the proof.
    """

    topic: str
    blue: int
    green: int
    unit: str = "entries"


def uncopied(entries: Ledgers, confirmed: int | None, last: Position | None) -> int:
    """How many of these entries have no copy yet; 0 where nothing is replicated.

    :param confirmed: number of entries that the replicator's cursor has confirmed.
    :param last: source position of the newest copy, where it was read.
    """
    if confirmed is None:
        return 0
    return len(entries) - max(confirmed, entries.index_after(last) if last else 0)


def stale(
    baseline: ProofBaseline | None,
    now: ProofBaseline,
    growth: tuple[Growth, ...],
    *,
    max_age_minutes: float,
    clusters: Mapping[str, str],
) -> tuple[Finding, ...]:
    """Why the cut-over of a namespace must not rely on its proof; empty when it may.

    :param now: the state of both clusters now.
    :param growth: of every partition since the baseline.
    :param clusters: `blue` and `green` → the cluster's own name.
    """
    if baseline is None:
        return (
            blocker(
                "no-proof",
                now.namespace,
                "no proof in this run",
                "The cut-over would rely on a copy that was not compared.",
                "clear the task verify_copy and its downstream tasks.",
            ),
        )
    found = (*_age(baseline, now, max_age_minutes), *_changes(baseline, now), *_writers(growth))
    return tuple(finding.named(clusters) for finding in found)


def _age(baseline: ProofBaseline, now: ProofBaseline, allowed: float) -> Iterator[Finding]:
    minutes = (now.at - baseline.at) / 60
    if minutes > allowed:
        yield blocker(
            "proof-too-old",
            now.namespace,
            f"{baseline.verdict} {duration(minutes * 60)} ago, {duration(allowed * 60)} are allowed",
            "The clusters may have changed since.",
            "verify again while the change window is open: clear the task verify_copy and its downstream tasks.",
        )


def _changes(baseline: ProofBaseline, now: ProofBaseline) -> Iterator[Finding]:
    for side, before, after in (("blue", baseline.blue, now.blue), ("green", baseline.green, now.green)):
        changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        if changed:
            yield blocker(
                "settings-changed",
                now.namespace,
                f"{', '.join(changed[:5])} on {{{side}}}",
                "Settings changed after the proof: {green} may not behave as {blue} does.",
                "take the change back, or make it on the other cluster too. Then verify again: clear the task "
                "verify_copy and its downstream tasks.",
            )
    moved = sorted(
        topic for topic in {*baseline.topics, *now.topics} if baseline.topics.get(topic) != now.topics.get(topic)
    )
    if moved:
        yield blocker(
            "topics-changed",
            now.namespace,
            ", ".join(moved[:5]),
            "Topics or partition counts changed after the plan: the cut-over would terminate topics that {green} "
            "lacks.",
            "end this run and undo it (pulsar-fleet abort), then start it again: its plan does not have these topics.",
        )


def _writers(growth: tuple[Growth, ...]) -> Iterator[Finding]:
    for partition in growth:
        if partition.green > partition.blue:
            yield blocker(
                "green-written-to",
                partition.topic,
                f"{partition.green:,} {partition.unit} were added to {{green}} since the proof; {partition.blue:,} "
                "can be copies",
                "A client writes to {green}: its messages would mix with those that arrive.",
                "find that client and stop it; what it has written stays on {green} and is delivered there. Then "
                "verify again: clear the task verify_copy and its downstream tasks.",
            )


_MOST_LOOKED_AT = 1_000
_CLUSTERS = "replication_clusters"


async def read_baseline(blue: AdminClient, green: AdminClient, move: Move, run: Run) -> ProofBaseline:
    """Read the state of both clusters, without a verdict. Read it before the verification starts.

    Calls: for a replicated namespace one per partition on both clusters, one more where copies are under way; for a
    redirected namespace one per broker of green; and one per partitioned topic.
    """
    if move.strategy.copies:
        partition_ends = await asyncio.gather(*(_ends(blue, green, topic) for topic in move.partitions))
        names = [str(topic) for topic in move.partitions]
        ends = {name: (on_blue, on_green) for name, (on_blue, on_green, _) in zip(names, partition_ends, strict=True)}
        unsent = {name: uncopied_entries for name, (_, _, uncopied_entries) in zip(names, partition_ends, strict=True)}
        return replace(await _without_ends(blue, green, move), ends=ends, unsent=unsent)
    return replace(await _without_ends(blue, green, move), stored=await _stored(green, move, run))


def store_baseline(run: Run, move: Move, baseline: ProofBaseline, verdict: str) -> None:
    """Store the baseline of a proof with the planned topics; it replaces an older baseline of the namespace."""
    document = run.stored(BASELINE) or {}
    topics = {str(topic): move.topics[topic] for topic in move.stored_topics}
    stored = replace(baseline, verdict=verdict, topics=topics)
    run.artefacts.write_json(run.id, BASELINE, {**document, baseline.namespace: stored.to_json()})


async def require_fresh(
    blue: AdminClient,
    green: AdminClient,
    move: Move,
    run: Run,
    *,
    max_age_minutes: float,
    relisted: Collection[TopicName] | None = None,
) -> None:
    """Refuse with `PreconditionFailed` when the proof of this namespace is too old or stale; changes nothing.

    :param relisted: green replicates to blue by now: its list is another one, and those of these topics, and it stores
        markers of its own. None: it does not.
    """
    document = (run.stored(BASELINE) or {}).get(str(move.namespace))
    baseline = ProofBaseline.from_json(document) if document else None
    now = await _without_ends(blue, green, move)
    if baseline and relisted is not None:
        changed = {_CLUSTERS, *(f"{scope} policies of {topic}" for topic in relisted for scope in Scope)}
        then = {key: value for key, value in baseline.green.items() if key in changed}
        now = replace(now, green={**{key: value for key, value in now.green.items() if key not in changed}, **then})
    grows = baseline and relisted is None and not _takes_clients(run, move)
    growth = await _growth(blue, green, baseline, move, run) if baseline and grows else ()
    if findings := stale(baseline, now, growth, max_age_minutes=max_age_minutes, clusters=names_of(blue, green)):
        raise PreconditionFailed(refusal_text(findings, f"{move.namespace} was not cut over, and not flagged."))


async def require_copied_topics(blue: AdminClient, move: Move, run: Run) -> None:
    """Refuse with `PreconditionFailed` when a partition that held copied messages does not exist on blue any more.

    Created again, it would be empty there, and no proof could compare it. One call.
    """
    document = (run.stored(BASELINE) or {}).get(str(move.namespace))
    if not document or not document["ends"]:
        return
    existing = set(map(str, await blue.topics(move.namespace)))
    baseline = ProofBaseline.from_json(document)
    lost = [name for name, ends in baseline.ends.items() if name not in existing and _has_entries(ends)]
    if lost:
        raise PreconditionFailed(
            f"{listed(lost)} had messages when the copy of {move.namespace} was verified, and was deleted on "
            f"{blue.connection.name} since. Nothing was flagged. Undo this run ({command_line('abort', run.id)}), then "
            "start it again: its plan does not have the topic.",
            cluster=blue.connection.name,
        )


def _has_entries(ends: tuple[str, str]) -> bool:
    return any(Position.parse(end).entry >= 0 for end in ends)


async def _without_ends(blue: AdminClient, green: AdminClient, move: Move) -> ProofBaseline:
    settings = [await _settings(admin, move.namespace) for admin in (blue, green)]
    topics = await read_partition_counts(blue, move.namespace)
    return ProofBaseline(
        namespace=str(move.namespace),
        at=time.time(),
        verdict="",
        blue=settings[0],
        green=settings[1],
        # Non-persistent topics appear and disappear with their clients.
        topics={str(topic): count for topic, count in topics.items() if topic.persistent},
        ends={},
    )


async def _settings(admin: AdminClient, namespace: NamespaceName) -> dict[str, str]:
    document = await admin.namespace(namespace) or {}
    record = overrides_in(document)
    fingerprints = policy_fingerprints(document, await admin.cluster_name())
    async with TopicPolicyReader(admin, None) as reader:
        for state in await reader.read(namespace):
            own = state.policies
            if record and state.scope == Scope.LOCAL:
                own = record.original_topic_policies(state.topic, own)
            fingerprints[f"{state.scope} policies of {state.topic}"] = _fingerprint(own)
    return fingerprints


def policy_fingerprints(document: JsonObject, own: str) -> dict[str, str]:
    """Field → fingerprint of each policy that is set, without what a run overrides: brokers order sets as they like.

    Bundles are left out: they change nothing that clients see.

    :param own: the cluster's name.
    """
    policies = comparable(without_overrides(document), own)
    return {field: _fingerprint(value) for field, value in policies.items() if field != "bundles"}


def _takes_clients(run: Run, move: Move) -> bool:
    """On a failback by redirect, applications that restart connect to the target: there is no copy to mix with."""
    opened = run.ledger.entered(run.id, str(move.namespace), Phase.REOPENED)
    return opened and move.strategy is Strategy.REDIRECT


def _fingerprint(value: Json) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


async def _ends(blue: AdminClient, green: AdminClient, topic: TopicName) -> tuple[str, str, int]:
    """The last confirmed entry on both clusters, and how many of blue's entries have no copy on green yet."""
    # Blue first: green's later answer includes everything that green had confirmed to blue by then.
    blue_stats = await blue.internal_stats(topic)
    green_stats = await green.internal_stats(topic)
    entries, copies = Ledgers.of(blue_stats), Ledgers.of(green_stats)
    confirmed = replicated_up_to(entries, blue_stats, await green.cluster_name())
    last = None
    if confirmed is not None and confirmed < len(entries) and len(copies):
        # Entries were copied between the two calls.
        last = await Copies(blue, green, topic, entries, copies).origin(len(copies) - 1)
    return (
        str(blue_stats["lastConfirmedEntry"]),
        str(green_stats["lastConfirmedEntry"]),
        uncopied(entries, confirmed, last),
    )


async def _stored(green: AdminClient, move: Move, run: Run) -> dict[str, int]:
    """Stored bytes by partition, up to a minute old; 0 for a partition that is not loaded: it takes no messages.

    A partition that may be loaded on a broker whose list cannot be read is read by itself.
    """
    now, partitions = time.time(), frozenset(move.partitions)
    loaded = await list_loaded(green, {move.namespace: partitions}, now, accepted_as_unread(run))
    if loaded.unreachable:
        raise Unavailable(f"{loaded.unreachable[0]} of {green.connection.name} did not list its topics.")
    unlisted = partitions - loaded.states.keys() if loaded.unread else ()
    states = {**loaded.states, **await read_partitions(green, unlisted, now, together=True)}
    for topic, state in states.items():
        if state.absence not in (None, Absence.GONE):
            raise Unavailable(f"{topic} on {green.connection.name} has no statistics: {state.absence}.")
    return {str(topic): states[topic].stored if topic in states else 0 for topic in move.partitions}


async def _growth(
    blue: AdminClient, green: AdminClient, baseline: ProofBaseline, move: Move, run: Run
) -> tuple[Growth, ...]:
    if baseline.stored:
        # Without a copy blue may grow, but nothing may be written to green.
        now = await _stored(green, move, run)
        grown = ((name, now.get(name, 0) - before) for name, before in baseline.stored.items())
        return tuple(Growth(name, 0, more, "bytes") for name, more in grown if more > 0)

    async def growth(name: str, ends: tuple[str, str]) -> Growth:
        topic = TopicName.parse(name)
        green_stats = await green.internal_stats(topic)
        blue_stats = await blue.internal_stats(topic)
        on_green = _since(green_stats, ends[1])
        copies = _since(blue_stats, ends[0]) + baseline.unsent.get(name, 0)
        if copies < on_green <= _MOST_LOOKED_AT and _has_removed(blue_stats, ends[0]):
            # What producers wrote to blue since, and its retention has removed, was copied too.
            stored = Copies(blue, green, topic, Ledgers.of(blue_stats), Ledgers.of(green_stats))
            copies = on_green - await _originals(stored, on_green)
        return Growth(name, copies, on_green)

    return tuple(await asyncio.gather(*(growth(name, ends) for name, ends in baseline.ends.items())))


def _since(internal_stats: JsonObject, end: str) -> int:
    ledgers = Ledgers.of(internal_stats)
    return len(ledgers) - ledgers.index_after(Position.parse(end))


def _has_removed(internal_stats: JsonObject, end: str) -> bool:
    """Whether the ledger of an earlier end is gone: later ones may be gone too."""
    return Position.parse(end).ledger not in {ledger["ledgerId"] for ledger in internal_stats["ledgers"]}


async def _originals(copies: Copies, newest: int) -> int:
    """How many of the newest entries of green were published on green."""
    total = len(copies.copies)
    written = await asyncio.gather(*(copies.is_original(index) for index in range(total - newest, total)))
    return sum(written)
