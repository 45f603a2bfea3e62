"""What each connected client does when it is redirected to green (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, Role
from pulsar_fleet.cluster.text import command_line
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.preflight import client_compatibility
from pulsar_fleet.migration.preflight.client_compatibility import Behaviour, behaviour
from pulsar_fleet.migration.preflight.gates.catalogue import Gate, Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding, Severity

_BY_BEHAVIOUR: dict[str, Gate] = {
    gate.id: gate
    for gate in (
        blocks(
            client_compatibility.CANNOT_FOLLOW,
            Owner.APPLICATION,
            "It does not follow a redirect: its producers and consumers stop, without an error.",
        ),
        warns(
            client_compatibility.NEEDS_TLS_URL,
            Owner.APPLICATION,
            "It fails on a redirect without a TLS address; the cut-over stores one for it.",
        ),
        warns(
            client_compatibility.MAY_HANG,
            Owner.APPLICATION,
            "It can deadlock on a redirect; only a restart of the application ends that. With a Python logger or a "
            "debug log its process ends.",
        ),
        warns(
            client_compatibility.REPEATS,
            Owner.APPLICATION,
            "Its publish pause is one operation timeout, it sends its pending queue twice, and its consumers may need "
            "a restart.",
        ),
        warns(client_compatibility.UNKNOWN, Owner.APPLICATION, "What it does on a redirect was not measured."),
    )
}
_READER_STALLS = blocks(
    "reader-stalls",
    Owner.APPLICATION,
    "After the redirect it delivers nothing, without an error; with C++, Python and Go where {green}'s ledger ids are "
    "lower.",
)
_NON_DURABLE = warns(
    "non-durable-consumer",
    Owner.APPLICATION,
    "Only the client stores its position: if it restarts, it starts at its initial position on {green}.",
)
_PATTERN = warns(
    "pattern-consumer-possible",
    Owner.APPLICATION,
    "If it subscribes by pattern, it loses topics that {blue} deletes and does not find topics created on {green}.",
)
_LED_TO_GREEN = blocks(
    "clients-led-to-green",
    Owner.RUN,
    "Its applications are on {green} already: a subscription that nobody reads in this moment would continue where "
    "{blue} has it, and deliver again what was read on {green}.",
)
_NOBODY_LED = blocks(
    "clients-not-led-to-green",
    Owner.RUN,
    "Nobody knows which subscriptions were read on {green}: one without consumers would go on where {green} has it.",
)
_LED_TO_BLUE = blocks(
    "clients-led-to-blue",
    Owner.RUN,
    "An application that starts after the move follows its document to {blue}.",
    milder="a warning but for *complete_move*, *complete_move_and_redirect* and *replicate_then_move_clients*",
)
_MOST = 3


def stopping_clients(namespace: str, clients: Iterable[ConnectedClient]) -> Iterator[Finding]:
    """The blockers about clients that a redirect would stop: by version those that do not follow it, and readers."""
    connected = [*clients]
    for version, group in _by_version(connected).items():
        row = behaviour(version)
        if row.severity is Severity.BLOCKER:
            yield _BY_BEHAVIOUR[row.finding].finding(namespace, _describe(group, version), row.advice.remedy)
    if stalling := [client for client in connected if _stalls(client)]:
        yield _stalling_readers(namespace, stalling)


def documents_lead_where_clients_go(view: View) -> Iterator[Finding]:
    """What the connection documents say of the namespaces that move."""
    for facts in view.moving:
        ends = view.ends_blue(facts.namespace)
        before = view.is_moved_before(facts.namespace)
        if facts.led_to_green and not before and (view.redirects(facts.namespace) or not ends):
            complete = (
                f"move the namespace with {Strategy.COMPLETE}, or leave the choice to auto. Where clients without a "
                f"document are to be redirected, with {Strategy.COMPLETE_AND_REDIRECT}."
            )
            stay = (
                "nothing, where they are to stay there and be able to return. Lead other groups there with "
                f"move_clients. {Strategy.COMPLETE} is for the day from which nobody is to return."
            )
            yield _LED_TO_GREEN.finding(str(facts.namespace), facts.led_to_green, complete if ends else stay)
        if before and view.redirects(facts.namespace) and not facts.led_to_green:
            yield _NOBODY_LED.finding(
                str(facts.namespace),
                f"no document that this process can read leads its applications to {view.green.name}",
                f"move them with move_clients first; or choose the strategy auto where they are on {view.blue.name}.",
            )
        for group in facts.led_to_blue:
            if ends or group != view.expected.group:
                yield _LED_TO_BLUE.finding(
                    str(facts.namespace),
                    f"the document of {group} leads to {view.blue.name}",
                    _led_to_blue_remedy(view, facts, group),
                    mild=ends and not before,
                )


def _led_to_blue_remedy(view: View, facts: NamespaceFacts, group: str) -> str:
    if not view.ends_blue(facts.namespace):
        return (
            f"let them follow the document of {view.expected.group} too; or replicate the namespace both ways "
            "(replicate_namespaces), and then move each group with move_clients."
        )
    publish = f"publish their new address right after it: {command_line('clients', 'set', group, view.connections[1])}"
    if view.expected.is_failback:
        return publish
    linked = any(view.green.name in clusters for clusters in facts.links.values())
    if linked or view.is_moved_before(facts.namespace):
        move = f"move the clients of {group} with move_clients before"
    else:
        move = f"set the strategy {Strategy.MOVE_CLIENTS} and its group {group}, so that they follow it"
    return f"{move}." if view.is_moved_before(facts.namespace) else f"{move}; or {publish}"


def clients_follow_a_redirect(view: View) -> Iterator[Finding]:
    """Each connected client version by namespace, with what it does and its clients."""
    for facts in view.redirected:
        for version, clients in _by_version(client for _, client in facts.clients).items():
            row = behaviour(version)
            if row.severity:
                yield _BY_BEHAVIOUR[row.finding].finding(
                    str(facts.namespace), _describe(clients, version), _remedy(view, facts, row)
                )


def readers_continue(view: View) -> Iterator[Finding]:
    """Readers have no cursor; readers of some client versions stop at the redirect."""
    for facts in view.moving:
        readers = [client for _, client in facts.clients if client.role is Role.READER]
        redirected = facts in view.redirected
        stalling = [client for client in readers if redirected and _stalls(client)]
        others = [client for client in readers if client not in stalling]
        if stalling:
            yield _stalling_readers(str(facts.namespace), stalling)
        if others:
            yield _NON_DURABLE.finding(
                str(facts.namespace),
                _describe(others),
                "nothing if they may start at their initial position; else a subscription.",
            )


def pattern_consumers_are_reported(view: View) -> Iterator[Finding]:
    """One consumer on several topics: statistics do not show whether it subscribes by a list or by a pattern."""
    for facts in view.moving:
        topics: dict[tuple[str, str, str], set[TopicName]] = {}
        consumers: dict[tuple[str, str, str], ConnectedClient] = {}
        for topic, client in facts.clients:
            if client.role is Role.CONSUMER:
                key = (client.name, client.address, client.subscription)
                topics.setdefault(key, set()).add(topic.parent)
                consumers.setdefault(key, client)
        several = [consumers[key] for key, names in topics.items() if len(names) > 1]
        if several:
            yield _PATTERN.finding(
                str(facts.namespace),
                f"{_describe(several)}: the same consumer on several topics",
                "restart consumers by pattern against {green} before {blue} may delete its topics.",
            )


def _by_version(clients: Iterable[ConnectedClient]) -> dict[str, list[ConnectedClient]]:
    versions: dict[str, list[ConnectedClient]] = {}
    for client in clients:
        versions.setdefault(client.version, []).append(client)
    return dict(sorted(versions.items()))


def _stalls(client: ConnectedClient) -> bool:
    return client.role is Role.READER and behaviour(client.version).readers_stall


def _stalling_readers(namespace: str, readers: Iterable[ConnectedClient]) -> Finding:
    stalling = [*readers]
    return _READER_STALLS.finding(
        namespace,
        _describe(stalling, ", ".join(sorted({client.version for client in stalling}))),
        "stop them before the cut-over and start them against {green}; waive this if that is planned.",
    )


def _remedy(view: View, facts: NamespaceFacts, row: Behaviour) -> str:
    document = facts.blue if view.expected.prepares_green else facts.green
    if row.finding == client_compatibility.REPEATS and (document or {}).get("deduplicationEnabled"):
        return "deduplication is on there and prevents the duplicates. Plan a restart of these applications."
    return row.advice.remedy


def _describe(clients: Iterable[ConnectedClient], version: str = "") -> str:
    names = sorted({client.text() for client in clients})
    more = f", and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{len(names)} {'client' if len(names) == 1 else 'clients'}{f' {version}' if version else ''}: " + (
        ", ".join(names[:_MOST]) + more
    )
