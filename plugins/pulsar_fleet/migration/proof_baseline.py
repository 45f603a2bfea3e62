"""Look at what a switch relies on, keep it with its proof, and refuse a switch for which it does not hold any more."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.positions import Ledgers, source_position
from pulsar_fleet.messages.subscription_cursors import replicated_up_to
from pulsar_fleet.migration.artefacts import BASIS
from pulsar_fleet.migration.drain.poll import list_loaded
from pulsar_fleet.migration.model import Move, Phase, Strategy
from pulsar_fleet.migration.proof_freshness import Basis, Growth, stale, uncopied
from pulsar_fleet.preflight.findings import refusal_text
from pulsar_fleet.snapshot.documents import topics_of
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

_THE_RUNS_OWN = frozenset({"migrated", "bundles"})
"""The flag is what the switch sets; splits of bundles are off, and change nothing that clients see."""


async def take_basis(blue: AdminClient, green: AdminClient, move: Move) -> Basis:
    """How both sides are now, still without a verdict. Take it before the proof is made: what comes later is newer.

    What is copied: a call for each partition on both sides, one more where copies are under way. What is not: one for
    each broker of green. And one for each partitioned topic.
    """
    if move.strategy is Strategy.REPLICATE:
        found = await asyncio.gather(*(_ends(blue, green, topic) for topic in move.partitions))
        names = [str(topic) for topic in move.partitions]
        ends = {name: (here, there) for name, (here, there, _) in zip(names, found, strict=True)}
        unsent = {name: left for name, (_, _, left) in zip(names, found, strict=True)}
        return replace(await _without_ends(blue, green, move), ends=ends, unsent=unsent)
    return replace(await _without_ends(blue, green, move), stored=await _stored(green, move))


def keep_basis(run: Run, move: Move, basis: Basis, verdict: str) -> None:
    """Keep what a proof is based on, with the topics that were planned; a newer one of the namespace replaces it."""
    known = run.artefacts.find(run.id, BASIS)
    document = run.artefacts.read_json(known) if known else {}
    # What is not persistent comes and goes with its clients.
    topics = {str(topic): count for topic, count in move.topics.items() if topic.persistent}
    kept = replace(basis, verdict=verdict, topics=topics)
    run.artefacts.write_json(run.id, BASIS, {**document, basis.namespace: kept.to_json()})


async def require_fresh(blue: AdminClient, green: AdminClient, move: Move, run: Run, *, max_age_minutes: float) -> None:
    """`PreconditionFailed` unless what the switch of this namespace relies on was proven lately and holds; changes
    nothing.
    """
    known = run.artefacts.find(run.id, BASIS)
    document = (run.artefacts.read_json(known) if known else {}).get(str(move.namespace))
    basis = Basis.from_json(document) if document else None
    now = await _without_ends(blue, green, move)
    growth = await _growth(blue, green, basis, move) if basis and not _takes_clients(run, move) else ()
    if found := stale(basis, now, growth, max_age_minutes=max_age_minutes):
        raise PreconditionFailed(refusal_text(found, f"{move.namespace} was not switched, and not flagged."))


async def _without_ends(blue: AdminClient, green: AdminClient, move: Move) -> Basis:
    settings = [await _settings(admin, move.namespace) for admin in (blue, green)]
    topics = await topics_of(blue, move.namespace)
    return Basis(
        namespace=str(move.namespace),
        at=time.time(),
        verdict="",
        blue=settings[0],
        green=settings[1],
        topics={str(topic): count for topic, count in topics.items()},
        ends={},
    )


async def _settings(admin: AdminClient, namespace: NamespaceName) -> dict[str, str]:
    policies = await admin.namespace(namespace) or {}
    found = {key: _fingerprint(value) for key, value in policies.items() if key not in _THE_RUNS_OWN}
    async with TopicPolicyReader(admin, None) as reader:
        for state in await reader.read(namespace):
            found[f"policies of {state.topic}"] = _fingerprint(state.policies)
    return found


def _takes_clients(run: Run, move: Move) -> bool:
    """On the way back, applications that start anew stay where all will be; it is no copy that they could spoil."""
    opened = run.ledger.entered(run.id, str(move.namespace), Phase.REOPENED)
    return opened and move.strategy is Strategy.REDIRECT


def _fingerprint(value: Json) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


async def _ends(blue: AdminClient, green: AdminClient, topic: TopicName) -> tuple[str, str, int]:
    """Where both sides end, and how many of blue's entries have no copy on green yet."""
    # Blue first: what green confirmed to it is in what green says afterwards.
    here = await blue.internal_stats(topic)
    there = await green.internal_stats(topic)
    held, copies = Ledgers.of(here), Ledgers.of(there)
    confirmed = replicated_up_to(held, here, await green.cluster_name())
    last = None
    if confirmed is not None and confirmed < len(held) and len(copies):
        # Some came between the two calls.
        last = await source_position(green, topic, copies.at(len(copies) - 1))
    return str(here["lastConfirmedEntry"]), str(there["lastConfirmedEntry"]), uncopied(held, confirmed, last)


async def _stored(green: AdminClient, move: Move) -> dict[str, int]:
    """Bytes by partition, up to a minute old; a partition that no broker has loaded takes no messages: 0."""
    listed = await list_loaded(green, {move.namespace: frozenset(move.partitions)}, time.time())
    if listed.silent:
        raise Unavailable(f"{listed.silent[0]} of {green.connection.name} did not list its topics.")
    return {str(topic): listed.states[topic].stored if topic in listed.states else 0 for topic in move.partitions}


async def _growth(blue: AdminClient, green: AdminClient, basis: Basis, move: Move) -> tuple[Growth, ...]:
    if basis.stored:
        # What is not copied may grow on blue as it likes; on green nothing may come at all.
        now = await _stored(green, move)
        grown = ((name, now.get(name, 0) - before) for name, before in basis.stored.items())
        return tuple(Growth(name, 0, more, "bytes") for name, more in grown if more > 0)

    async def one(name: str, ends: tuple[str, str]) -> Growth:
        topic = TopicName.parse(name)
        on_green = _since(await green.internal_stats(topic), ends[1])
        copies = _since(await blue.internal_stats(topic), ends[0]) + basis.unsent.get(name, 0)
        return Growth(name, copies, on_green)

    return tuple(await asyncio.gather(*(one(name, ends) for name, ends in basis.ends.items())))


def _since(internal_stats: JsonObject, end: str) -> int:
    ledgers = Ledgers.of(internal_stats)
    return len(ledgers) - ledgers.behind(Position.parse(end))
