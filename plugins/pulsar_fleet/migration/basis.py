"""Look at what a switch relies on, keep it with its proof, and refuse a switch for which it does not hold any more."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import replace

from pulsar_fleet.change.findings import count_line
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Refused
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.cluster.topic_policy_reader import TopicPolicyReader
from pulsar_fleet.migration.freshness import Basis, Growth, stale
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.survey import topics_of
from pulsar_fleet.reading.source_positions import Ledgers
from pulsar_fleet.reading.unread import EntryNumbers
from pulsar_fleet.records.run import Run

BASIS = "basis.json"
_THE_RUNS_OWN = frozenset({"migrated", "bundles"})
"""The flag is what the switch sets; splits of bundles are off, and change nothing that clients see."""


async def take_basis(blue: AdminClient, green: AdminClient, move: Move) -> Basis:
    """How both sides are now, still without a verdict. Take it before the proof is made: what comes later is newer."""
    settings = [await _settings(admin, move.namespace) for admin in (blue, green)]
    topics = await topics_of(blue, move.namespace)
    ends = await asyncio.gather(*(_ends(blue, green, topic) for topic in move.partitions))
    return Basis(
        namespace=str(move.namespace),
        at=time.time(),
        verdict="",
        blue=settings[0],
        green=settings[1],
        topics={str(topic): count for topic, count in topics.items()},
        ends={str(topic): end for topic, end in zip(move.partitions, ends, strict=True)},
    )


def keep_basis(run: Run, move: Move, basis: Basis, verdict: str) -> None:
    """Keep what a proof is based on, with the topics that were planned; a newer one of the namespace replaces it."""
    known = run.artefacts.find(run.id, BASIS)
    document = run.artefacts.read_json(known) if known else {}
    topics = {str(topic): count for topic, count in move.topics.items()}
    kept = replace(basis, verdict=verdict, topics=topics)
    run.artefacts.write_json(run.id, BASIS, {**document, basis.namespace: kept.to_json()})


async def require_fresh(blue: AdminClient, green: AdminClient, move: Move, run: Run, *, max_age_minutes: float) -> None:
    """`Refused` unless what the switch of this namespace relies on was proven lately and holds; changes nothing."""
    known = run.artefacts.find(run.id, BASIS)
    document = (run.artefacts.read_json(known) if known else {}).get(str(move.namespace))
    basis = Basis.from_json(document) if document else None
    now = await take_basis(blue, green, move)
    growth = await _growth(blue, green, basis) if basis else ()
    if found := stale(basis, now, growth, max_age_minutes=max_age_minutes):
        listed = "\n".join(finding.text() for finding in found)
        raise Refused(f"{count_line(found)}. {move.namespace} was not switched; nothing was flagged.\n{listed}")


async def _settings(admin: AdminClient, namespace: NamespaceName) -> dict[str, str]:
    policies = await admin.namespace(namespace) or {}
    found = {key: _fingerprint(value) for key, value in policies.items() if key not in _THE_RUNS_OWN}
    async with TopicPolicyReader(admin, None) as reader:
        for state in await reader.read(namespace):
            found[f"policies of {state.topic}"] = _fingerprint(state.policies)
    return found


def _fingerprint(value: Json) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


async def _ends(blue: AdminClient, green: AdminClient, topic: TopicName) -> tuple[str, str]:
    stats = await asyncio.gather(blue.internal_stats(topic), green.internal_stats(topic))
    return str(stats[0]["lastConfirmedEntry"]), str(stats[1]["lastConfirmedEntry"])


async def _growth(blue: AdminClient, green: AdminClient, basis: Basis) -> tuple[Growth, ...]:
    async def one(name: str, ends: tuple[str, str]) -> Growth:
        topic = TopicName.parse(name)
        on_green = _since(Ledgers.of(await green.internal_stats(topic)), ends[1])
        return Growth(name, _since(Ledgers.of(await blue.internal_stats(topic)), ends[0]), on_green)

    return tuple(await asyncio.gather(*(one(name, ends) for name, ends in basis.ends.items())))


def _since(ledgers: Ledgers, end: str) -> int:
    return len(ledgers) - EntryNumbers(ledgers).behind(Position.parse(end))
