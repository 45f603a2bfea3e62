"""What the copy does not carry, counted so that nobody believes it was: clients, functions, connectors, packages."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Area, Problem
from pulsar_fleet.cluster.errors import Conflict, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.topic_statistics import Role, connected_clients
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, BrokerState, InventoryState

FUNCTION_KINDS = ("functions", "sources", "sinks")
PACKAGE_KINDS = ("function", "source", "sink")
_SEPARATORS = re.compile(r"[\s:,]*")


async def read_clients(
    admin: AdminClient, brokers: Sequence[BrokerState], attempts: PartialReads
) -> list[InventoryState]:
    """Versions of the connected clients per namespace, one call per broker, which tells of its loaded topics only.

    No topic is loaded by it. The brokers renew the answer once a minute, so a client may be missing, or gone since.
    """
    answers = (
        attempts.read(f"clients of {one.address}", admin.loaded_topics(one.address), area=Area.CLIENTS)
        for one in brokers
    )
    found: Counter[tuple[str, str, str]] = Counter()
    for answer in await asyncio.gather(*answers):
        found.update(_connected(answer or "{}"))
    versions = sorted({(namespace, version) for namespace, version, _ in found})
    return [
        InventoryState(
            "client", namespace, version, {role: found[namespace, version, role] for role in ("producers", "consumers")}
        )
        for namespace, version in versions
    ]


async def read_functions(
    admin: AdminClient, namespaces: Iterable[NamespaceName], attempts: PartialReads
) -> list[InventoryState]:
    """Functions, sources and sinks: one call to learn where any are, three for each of these namespaces."""
    # A broker without a functions worker answers 409 to everything about functions.
    running = await attempts.read("functions", admin.get("/worker/assignments"), not_offered=(Conflict, NotFound))
    instances = [one for listed in (running or {}).values() for one in listed]
    used = {"/".join(instance.split("/")[:2]) for instance in instances}
    chosen = [name for name in namespaces if str(name) in used]
    return await _listed(admin, chosen, [(kind.removesuffix("s"), kind) for kind in FUNCTION_KINDS], attempts)


async def read_packages(
    admin: AdminClient, brokers: Sequence[BrokerState], namespaces: Iterable[NamespaceName], attempts: PartialReads
) -> list[InventoryState]:
    """Uploaded packages: no call unless a broker offers them, then three for each namespace."""
    if not any(one.configuration.get("enablePackagesManagement") == "true" for one in brokers):
        attempts.note("packages", Problem.NOT_OFFERED, "No broker has enablePackagesManagement set.")
        return []
    return await _listed(admin, namespaces, [("package", f"packages/{kind}") for kind in PACKAGE_KINDS], attempts)


async def _listed(
    admin: AdminClient, namespaces: Iterable[NamespaceName], kinds: Sequence[tuple[str, str]], attempts: PartialReads
) -> list[InventoryState]:
    found = []
    for namespace in namespaces:
        for kind, path in kinds:
            names = await attempts.read(f"{path} of {namespace}", admin.get_v3(f"/{path}/{namespace.path}"))
            found += [InventoryState(kind, str(namespace), str(name), {"in": path}) for name in sorted(names or ())]
    return found


def system_topics(namespace: NamespaceName, listed: Iterable[TopicName]) -> tuple[InventoryState, ...]:
    """The topics that the brokers keep for themselves, with their partition counts (0: a plain topic)."""
    counts: dict[str, int] = {}
    for topic in listed:
        if topic.is_system and topic.persistent:
            partitions = 0 if topic.partition_index is None else topic.partition_index + 1
            counts[str(topic.parent)] = max(counts.get(str(topic.parent), 0), partitions)
    return tuple(
        InventoryState(SYSTEM_TOPIC, str(namespace), name, {"partitions": count})
        for name, count in sorted(counts.items())
    )


def _connected(text: str) -> Iterator[tuple[str, str, str]]:
    """(namespace, client version, role) of every client, without the brokers' own."""
    for namespace, bundles in members(text):
        for _, topic, stats in topics_in(bundles):
            if not topic.is_system:
                for client in connected_clients(topic, stats):
                    yield namespace, client.version, "producers" if client.role is Role.PRODUCER else "consumers"


def topics_in(bundles: JsonObject) -> Iterator[tuple[str, TopicName, JsonObject]]:
    """(bundle, topic, `stats` document) of what a broker lists for one namespace."""
    for bundle, domains in bundles.items():
        for domain in domains.values():
            for name, stats in domain.items():
                yield bundle, TopicName.parse(name), stats


def members(text: str) -> Iterator[tuple[str, Json]]:
    """The members of a JSON object one by one: an answer about all topics is never in memory as objects as a whole."""
    decoder = json.JSONDecoder()
    place = text.index("{") + 1
    while text[(place := _end(text, place))] == '"':
        key, place = decoder.raw_decode(text, place)
        value, place = decoder.raw_decode(text, _end(text, place))
        yield key, value


def _end(text: str, place: int) -> int:
    """Where the separators that begin at `place` end."""
    found = _SEPARATORS.match(text, place)
    return found.end() if found else place
