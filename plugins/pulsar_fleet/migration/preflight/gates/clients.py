"""What each connected client does when it is sent to green (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import ConnectedClient, Role
from pulsar_fleet.migration.preflight import client_compatibility
from pulsar_fleet.migration.preflight.client_compatibility import Behaviour, behaviour
from pulsar_fleet.migration.preflight.gates.catalogue import Gate, Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.migration.stats.facts import NamespaceFacts
from pulsar_fleet.preflight.findings import Finding

_BY_BEHAVIOUR: dict[str, Gate] = {
    gate.id: gate
    for gate in (
        blocks(
            client_compatibility.CANNOT_FOLLOW,
            Owner.APPLICATION,
            "It never follows a redirect: its producers and consumers stop for good, without an error.",
        ),
        warns(
            client_compatibility.NEEDS_TLS_URL,
            Owner.APPLICATION,
            "It fails on a redirect without a TLS address; the switch stores one for it.",
        ),
        warns(
            client_compatibility.MAY_HANG,
            Owner.APPLICATION,
            "It can dead-lock on a redirect, which only a restart of the application ends.",
        ),
        warns(
            client_compatibility.REPEATS,
            Owner.APPLICATION,
            "It is silent for one operation time-out, writes its pending queue twice, and its consumers may need a "
            "restart.",
        ),
        warns(client_compatibility.UNKNOWN, Owner.APPLICATION, "What it does on a redirect was not seen."),
    )
}
_READER_STALLS = blocks(
    "reader-stalls",
    Owner.APPLICATION,
    "After the redirect it delivers nothing, without an error; of C++, Python and Go where green's ledger ids are "
    "lower.",
)
_NON_DURABLE = warns(
    "non-durable-consumer",
    Owner.APPLICATION,
    "Its position is kept by the client alone: if it restarts meanwhile it begins anew on green.",
)
_PATTERN = warns(
    "pattern-consumer-possible",
    Owner.APPLICATION,
    "If it subscribes by pattern, it loses its topics when blue deletes them and never sees those made on green.",
)
_MOST = 3


def clients_follow_a_redirect(view: View) -> Iterator[Finding]:
    """Each client version that is connected, by namespace, with what it does and who they are."""
    for facts in view.moving:
        versions: dict[str, list[ConnectedClient]] = {}
        for _, client in facts.clients:
            versions.setdefault(client.version, []).append(client)
        for version, clients in sorted(versions.items()):
            row = behaviour(version)
            if row.severity:
                yield _BY_BEHAVIOUR[row.finding].found(
                    str(facts.namespace), _who(clients, version), _remedy(view, facts, row)
                )


def readers_read_on(view: View) -> Iterator[Finding]:
    """Clients without a kept position; of some versions they stop reading at the redirect."""
    for facts in view.moving:
        readers = [client for _, client in facts.clients if client.role is Role.READER]
        stalling = [client for client in readers if behaviour(client.version).readers_stall]
        others = [client for client in readers if client not in stalling]
        if stalling:
            yield _READER_STALLS.found(
                str(facts.namespace),
                _who(stalling, ", ".join(sorted({client.version for client in stalling}))),
                "stop them for the switch and start them against green; waive this if that is planned.",
            )
        if others:
            yield _NON_DURABLE.found(
                str(facts.namespace), _who(others), "nothing if they may begin anew; else give them a subscription."
            )


def pattern_consumers_are_told(view: View) -> Iterator[Finding]:
    """One consumer on several topics: statistics do not tell whether it named them or a pattern."""
    for facts in view.moving:
        topics: dict[tuple[str, str, str], set[TopicName]] = {}
        seen: dict[tuple[str, str, str], ConnectedClient] = {}
        for topic, client in facts.clients:
            if client.role is Role.CONSUMER:
                key = (client.name, client.address, client.subscription)
                topics.setdefault(key, set()).add(topic.parent)
                seen.setdefault(key, client)
        several = [seen[key] for key, found in topics.items() if len(found) > 1]
        if several:
            yield _PATTERN.found(
                str(facts.namespace),
                f"{_who(several)}: the same consumer on several topics",
                "restart those that subscribe by pattern against green before blue may delete its topics.",
            )


def _remedy(view: View, facts: NamespaceFacts, row: Behaviour) -> str:
    document = facts.blue if view.expected.prepares_green else facts.green
    if row.finding == client_compatibility.REPEATS and (document or {}).get("deduplicationEnabled"):
        return "nothing against the duplicates: deduplication is on there. Plan a restart of these applications."
    return row.told.remedy


def _who(clients: Iterable[ConnectedClient], version: str = "") -> str:
    names = sorted({client.text() for client in clients})
    more = f", and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{len(names)} {'client' if len(names) == 1 else 'clients'}{f' {version}' if version else ''}: " + (
        ", ".join(names[:_MOST]) + more
    )
