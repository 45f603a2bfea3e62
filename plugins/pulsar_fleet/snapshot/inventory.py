"""What a copy does not include, so that reports name it: clients, functions, connectors, packages, scalable topics."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import (
    FUNCTIONS,
    PACKAGES,
    SCALABLE_TOPICS_OF,
    Area,
    PartialReads,
    Problem,
)
from pulsar_fleet.cluster.admin.scalable_topics import ScalableTopics
from pulsar_fleet.cluster.errors import Conflict, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import SEGMENT, NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.runs.overrides import FROZEN_SETTINGS
from pulsar_fleet.cluster.runs.state_topic import read_runs
from pulsar_fleet.cluster.statistics import connected_clients
from pulsar_fleet.snapshot.model import DYNAMIC_SETTING, SCALABLE_TOPIC, SYSTEM_TOPIC, BrokerState, InventoryState

FUNCTION_KINDS = ("functions", "sources", "sinks")
PACKAGE_KINDS = ("function", "source", "sink")
_SEPARATORS = re.compile(r"[\s:,]*")


async def read_clients(admin: AdminClient, brokers: Sequence[BrokerState], reads: PartialReads) -> list[InventoryState]:
    """Versions of the connected clients per namespace: one call per broker, which lists its loaded topics only.

    Loads no topic. Brokers refresh the answer once a minute, so new clients may be missing and old ones listed.
    """
    addresses = [broker.address for broker in brokers]
    answers = (reads.read(f"clients of {at}", admin.loaded_topics(at), area=Area.CLIENTS) for at in addresses)
    counts: Counter[tuple[str, str, str]] = Counter()
    for answer in await asyncio.gather(*answers):
        counts.update(_connected(answer or "{}"))
    versions = sorted({(namespace, version) for namespace, version, _ in counts})
    roles = ("producers", "consumers", "readers")
    return [
        InventoryState("client", namespace, version, {role: counts[namespace, version, role] for role in roles})
        for namespace, version in versions
    ]


async def read_functions(
    admin: AdminClient, namespaces: Iterable[NamespaceName], reads: PartialReads
) -> list[InventoryState]:
    """Functions, sources and sinks: one call for all assignments, three for each namespace that has any."""
    # A broker without a functions worker answers 409 to every call about functions.
    assignments = await reads.read(FUNCTIONS, admin.get("/worker/assignments"), not_offered=(Conflict, NotFound))
    used = {"/".join(name.split("/")[:2]) for instances in (assignments or {}).values() for name in instances}
    chosen = [name for name in namespaces if str(name) in used]
    return await _listed(admin, chosen, [(kind.removesuffix("s"), kind) for kind in FUNCTION_KINDS], reads)


async def read_packages(
    admin: AdminClient, brokers: Sequence[BrokerState], namespaces: Iterable[NamespaceName], reads: PartialReads
) -> list[InventoryState]:
    """Uploaded packages: no call unless a broker offers them, then three for each namespace."""
    if not any(broker.configuration.get("enablePackagesManagement") == "true" for broker in brokers):
        reads.note(PACKAGES, Problem.NOT_OFFERED, "No broker has enablePackagesManagement set.")
        return []
    return await _listed(admin, namespaces, [("package", f"packages/{kind}") for kind in PACKAGE_KINDS], reads)


async def read_scalable_topics(
    admin: AdminClient, brokers: Sequence[BrokerState], namespaces: Iterable[NamespaceName], reads: PartialReads
) -> list[InventoryState]:
    """Scalable topics: one call for each namespace, none where every broker is older than Pulsar 5.0."""
    # A role that may not list the brokers knows one of them, without its settings.
    scalable = ScalableTopics(admin, {broker.address: broker.version for broker in brokers if broker.configuration})
    names = list(namespaces)
    listed = await asyncio.gather(*(reads.read(f"{SCALABLE_TOPICS_OF}{name}", scalable.names(name)) for name in names))
    return [
        InventoryState(SCALABLE_TOPIC, str(namespace), topic)
        for namespace, topics in zip(names, listed, strict=True)
        for topic in topics or ()
    ]


async def _listed(
    admin: AdminClient, namespaces: Iterable[NamespaceName], kinds: Sequence[tuple[str, str]], reads: PartialReads
) -> list[InventoryState]:
    states = []
    for namespace in namespaces:
        for kind, path in kinds:
            names = await reads.read(f"{path} of {namespace}", admin.get_v3(f"/{path}/{namespace.path}"))
            states += [InventoryState(kind, str(namespace), str(name), {"in": path}) for name in sorted(names or ())]
    return states


async def read_dynamic_settings(admin: AdminClient, redactor: Redactor, reads: PartialReads) -> list[InventoryState]:
    """The overrides of dynamic broker settings, redacted, with the values before a run overrode them.

    Needs a superuser. One call, and a read of the record of runs where a setting has the value that runs give it.
    """
    read = await reads.read("dynamic settings", admin.dynamic_overrides(), area=Area.BROKERS)
    overrides: dict[str, str | None] = dict(read or {})
    frozen = {key for key, value in FROZEN_SETTINGS.items() if overrides.get(key) == value}
    if frozen:
        runs = await reads.read("record of runs", read_runs(admin))
        # Without the record nobody knows which value is original: the note says so.
        before = dict.fromkeys(frozen) if runs is None else runs.brokers.dynamic if runs.brokers else {}
        overrides |= {key: value for key, value in before.items() if key in frozen}
    return [
        InventoryState(DYNAMIC_SETTING, "", key, {"value": value})
        for key, value in redactor.redact(overrides).items()
        if value is not None
    ]


def system_topics(namespace: NamespaceName, listed: Iterable[TopicName]) -> tuple[InventoryState, ...]:
    """The system topics with their partition counts (0: not partitioned)."""
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
    """(namespace, client version, role) of every client that is not a broker."""
    for namespace, bundles in members(text):
        for _, topic, stats in topics_in(bundles):
            if not topic.is_system:
                for client in connected_clients(topic, stats):
                    yield namespace, client.version, f"{client.role}s"


def topics_in(bundles: JsonObject) -> Iterator[tuple[str, TopicName, JsonObject]]:
    """(bundle, topic, `stats` document) of every topic that a broker lists for one namespace.

    Brokers since 5.0 list the loaded segments of scalable topics as persistent ones (observed); these are left out.
    """
    for bundle, domains in bundles.items():
        for domain in domains.values():
            for name, stats in domain.items():
                if not name.startswith(SEGMENT):
                    yield bundle, TopicName.parse(name), stats


def members(text: str) -> Iterator[tuple[str, Json]]:
    """The members of a JSON object, parsed one after the other: an answer about all topics may not fit in memory."""
    decoder = json.JSONDecoder()
    offset = text.index("{") + 1
    while text[(offset := _end(text, offset))] == '"':
        key, offset = decoder.raw_decode(text, offset)
        value, offset = decoder.raw_decode(text, _end(text, offset))
        yield key, value


def _end(text: str, offset: int) -> int:
    """The offset after the separators that begin at `offset`."""
    separators = _SEPARATORS.match(text, offset)
    return separators.end() if separators else offset
