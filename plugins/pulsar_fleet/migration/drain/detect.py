"""Detect incidents after the cutover, from the facts of both clusters (pure).

Evidence for each kind: cutovers of real 4.2.4 clusters. Detection never waits and never calls a cluster: the same
facts give the same incidents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from pulsar_fleet.cluster.admin.call import Call, with_body
from pulsar_fleet.cluster.defects.catalogue import defects_text
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, Role, absent_clients
from pulsar_fleet.cluster.text import counted, with_names
from pulsar_fleet.migration.drain.state import DrainFacts, Incident, IncidentKind, Remedy
from pulsar_fleet.migration.facts import Absence


@dataclass(frozen=True, slots=True)
class Grant:
    """A permission to grant on green: `role` for operators, and the call that grants it."""

    role: str
    call: Call


def missing_grants(namespace: NamespaceName, blue: JsonObject, green: JsonObject) -> tuple[Grant, ...]:
    """What to grant on green so that each role has the permissions of blue; no permission is ever revoked."""
    source, target = blue.get("auth_policies") or {}, green.get("auth_policies") or {}
    return (
        *_of_roles(f"/namespaces/{namespace.path}", source.get("namespace_auth"), target.get("namespace_auth")),
        *_of_topics(source.get("destination_auth") or {}, target.get("destination_auth") or {}),
        *_of_subscriptions(
            namespace, source.get("subscription_auth_roles") or {}, target.get("subscription_auth_roles") or {}
        ),
    )


def _of_roles(path: str, source: JsonObject | None, target: JsonObject | None) -> Iterator[Grant]:
    for role, actions in sorted((source or {}).items()):
        granted = set((target or {}).get(role) or ())
        if not set(actions) <= granted:
            call_path = f"{path}/permissions/{quote(role, safe='')}"
            yield Grant(role, with_body("POST", call_path, sorted(granted | set(actions))))


def _of_topics(source: JsonObject, target: JsonObject) -> Iterator[Grant]:
    for topic, roles in sorted(source.items()):
        yield from _of_roles(f"/{TopicName.parse(topic).path}", roles, target.get(topic))


def _of_subscriptions(namespace: NamespaceName, source: JsonObject, target: JsonObject) -> Iterator[Grant]:
    for subscription, roles in sorted(source.items()):
        granted = set(target.get(subscription) or ())
        if not set(roles) <= granted:
            path = f"/namespaces/{namespace.path}/permissions/subscription/{quote(subscription, safe='')}"
            yield Grant(", ".join(sorted(set(roles) - granted)), with_body("POST", path, sorted(granted | set(roles))))


ARRIVAL_SECONDS = 30.0
"""A client that is on neither cluster for longer will not reconnect; a Go producer needs its operation time-out."""
RECONNECT_SECONDS = 5.0
"""A consumer of Failover begins to read a second after it connected; a broker of Pulsar 3.0 redirects it then."""
OUTAGE_SECONDS = 60.0
"""Two session time-outs of brokers: after one, another broker serves the topics of a broker that has failed."""

_CPP = "Pulsar-CPP"
_ABORTED = (
    " If its output ends with `Invalid BaseCommand enumeration value`, it ends again after each restart: take the "
    "Python logger, or the log level Debug, from its client first."
)


def detect_incidents(facts: DrainFacts) -> tuple[Incident, ...]:
    """Every incident that the facts show, the one that explains most first, with the defects that explain it."""
    named = (_with_names(incident, facts.clusters) for rule in _RULES for incident in rule(facts))
    return tuple(_with_defects(incident, facts.versions) for incident in named)


def _with_names(incident: Incident, clusters: Mapping[str, str]) -> Incident:
    return replace(incident, sentence=with_names(incident.sentence, clusters))


def _with_defects(incident: Incident, versions: Collection[str]) -> Incident:
    """The incident with the known defects of blue's brokers that show so."""
    stored = [topic for topic in incident.topics if TopicName.parse(topic).persistent]
    sign = incident.kind.value if stored or not incident.topics else f"{incident.kind}:non-persistent"
    known = defects_text(sign, versions)
    return replace(incident, sentence=f"{incident.sentence} {known}") if known else incident


def missing_clients(facts: DrainFacts) -> tuple[ConnectedClient, ...]:
    """Clients that were on blue and are on neither cluster; without green's statistics none is missing."""
    missing: list[ConnectedClient] = []
    for topic, before in facts.before.items():
        green, blue = facts.green.get(topic), facts.blue.get(topic)
        if green is None or green.absence is not None:
            continue
        on_blue = blue.clients if blue is not None and blue.absence is None else ()
        missing += absent_clients(before, on_blue, green.clients)
    return tuple(missing)


def _incident(
    facts: DrainFacts,
    kind: IncidentKind,
    remedy: Remedy,
    sentence: str,
    *,
    subject: str = "",
    topics: Iterable[TopicName] = (),
) -> Incident:
    """An incident of the namespace, or of a subject in it."""
    return Incident(
        kind=kind,
        namespace=str(facts.namespace),
        subject=subject or str(facts.namespace),
        sentence=sentence,
        remedy=remedy,
        topics=tuple(str(topic) for topic in topics),
    )


def _unreachable_brokers(facts: DrainFacts) -> Iterator[Incident]:
    for broker, seconds in facts.unreachable.items():
        text = f"{broker} has not answered for {seconds:.0f} s"
        if seconds <= OUTAGE_SECONDS:
            text += f"; an outage after {OUTAGE_SECONDS:.0f} s."
            yield _incident(facts, IncidentKind.BROKER_UNREACHABLE, Remedy.WAIT, text, subject=broker)
        else:
            text += (
                ", longer than two session time-outs: start it, or restart it if it hangs (jstack shows a deadlock). "
                "Its topics cannot drain until then."
            )
            yield _incident(facts, IncidentKind.BROKER_OUTAGE, Remedy.OPERATOR, text, subject=broker)


def _green_missing(facts: DrainFacts) -> Iterator[Incident]:
    gone = [topic for topic, state in facts.green.items() if state.absence is Absence.GONE]
    if facts.green_exists is False or gone:
        subject = str(facts.namespace) if facts.green_exists is False else str(gone[0])
        text = (
            f"{subject} does not exist on {{green}}, and {{blue}} redirects its clients there: they cannot publish or "
            "consume. Create it now: clear the task {prepare_green} of this run."
        )
        yield _incident(facts, IncidentKind.GREEN_MISSING, Remedy.OPERATOR, text, subject=subject, topics=gone)


def _unloaded(facts: DrainFacts) -> Iterator[Incident]:
    by_owner: dict[tuple[str, str], list[TopicName]] = {}
    for topic, state in facts.blue.items():
        if state.absence is Absence.UNLOADED:
            by_owner.setdefault(facts.owners.get(topic, ("", "")), []).append(topic)
    for (broker, bundle), topics in by_owner.items():
        kind, cause = _cause(facts, broker, bundle, len(topics))
        text = (
            f"{len(topics)} partitions, for example {topics[0]}, are no longer served by {{blue}}: {cause}, and a "
            "flagged topic cannot be loaded again. Their messages are intact; their consumers may hang."
        )
        subject = "" if len(topics) > 1 else str(topics[0])
        yield _incident(facts, kind, Remedy.RELOAD, text, subject=subject, topics=topics)


def _cause(facts: DrainFacts, broker: str, bundle: str, count: int) -> tuple[IncidentKind, str]:
    if broker in facts.restarted or (not broker and facts.restarted):
        return IncidentKind.BROKER_RESTARTED, f"broker {broker or next(iter(facts.restarted))} was restarted"
    owned = [topic for topic, owner in facts.owners.items() if owner[0] == broker]
    if broker and broker not in facts.live and facts.live:
        return IncidentKind.BROKER_RESTARTED, f"broker {broker} has failed"
    lost = [topic for topic in owned if (state := facts.blue.get(topic)) and state.absence is Absence.UNLOADED]
    if broker and len(owned) == len(lost) and len({facts.owners[topic][1] for topic in owned}) > 1:
        return IncidentKind.BUNDLE_MOVED, f"all its bundles were unloaded from {broker}, or that broker was restarted"
    if bundle:
        return IncidentKind.BUNDLE_MOVED, f"bundle {bundle} was unloaded from {broker}"
    return IncidentKind.UNLOADED, "it was unloaded" if count == 1 else "they were unloaded"


def _bundle_moved(facts: DrainFacts) -> Iterator[Incident]:
    for topic, state in facts.blue.items():
        owner = facts.owners.get(topic)
        if owner and owner[0] and state.broker and state.absence is None and state.broker != owner[0]:
            text = f"{topic} moved from broker {owner[0]} to {state.broker} during its drain; it is still served."
            kind, remedy = IncidentKind.BUNDLE_MOVED, Remedy.READ_PARTITIONS
            yield _incident(facts, kind, remedy, text, subject=str(topic), topics=[topic])


def _statistics_incomplete(facts: DrainFacts) -> Iterator[Incident]:
    absent = [topic for topic, state in facts.blue.items() if state.absence in (Absence.UNLISTED, Absence.UNREACHABLE)]
    if absent:
        text = (
            f"{len(absent)} partitions, for example {absent[0]}, are in no broker's statistics: their backlog is "
            "unknown, not 0."
        )
        yield _incident(facts, IncidentKind.STATISTICS_INCOMPLETE, Remedy.READ_PARTITIONS, text, topics=absent)


def _flag(facts: DrainFacts) -> Iterator[Incident]:
    stranded = any(state.absence is Absence.UNLOADED for state in facts.blue.values())
    if facts.flagged is False:
        text = (
            f"The flag of {facts.namespace} was cleared on {{blue}} outside this run: {{blue}} no longer redirects "
            "clients to {green}, and clients that start through {blue} hang."
        )
        # Under the flag a topic that is not loaded cannot be loaded again.
        yield _incident(facts, IncidentKind.FLAG_RESET, Remedy.WAIT if stranded else Remedy.SET_FLAG, text)
    if facts.redirected is False:
        text = "The address to which {blue} redirects its clients was changed outside this run."
        yield _incident(facts, IncidentKind.REDIRECT_LOST, Remedy.STORE_REDIRECT, text)


def _permissions(facts: DrainFacts) -> Iterator[Incident]:
    if facts.roles_without_permission:
        text = (
            f"{', '.join(facts.roles_without_permission)} lack permissions on {{green}} that they have on {{blue}}: "
            "their applications hang, and continue by themselves once the permissions are granted."
        )
        yield _incident(facts, IncidentKind.PERMISSIONS_MISSING, Remedy.GRANT, text)


def _clients(facts: DrainFacts) -> Iterator[Incident]:
    if facts.seconds < ARRIVAL_SECONDS or facts.roles_without_permission or facts.flagged is False:
        return
    for topic in facts.fenced:
        state = facts.blue.get(topic)
        backlog = sum(state.backlog.values()) if state and state.absence is None else None
        unread = _unread_text(backlog)
        text = f"{topic} refuses producers: publishes were in flight when it was terminated (a broker defect). {unread}"
        remedy = _remedy_of_fenced(backlog)
        yield _incident(facts, IncidentKind.FENCED, remedy, text, subject=str(topic), topics=[topic])
    for client in missing_clients(facts):
        topic = TopicName.parse(client.topic)
        if client.role is not Role.PRODUCER or topic not in facts.fenced:
            subject = f"{client.topic} {client.subscription} {client.name}".replace("  ", " ")
            subscription = f", subscription {client.subscription!r}" if client.subscription else ""
            text = (
                f"Restart the application of {client} on {client.topic}{subscription}: it was on {{blue}} and has "
                f"been on neither cluster for {facts.seconds:.0f} s.{_ABORTED if _CPP in client.version else ''}"
            )
            kind = IncidentKind.CLIENT_MISSING
            yield _incident(facts, kind, Remedy.OPERATOR, text, subject=subject, topics=[topic])


def _no_consumers(facts: DrainFacts) -> Iterator[Incident]:
    """A backlog on blue whose consumers are no longer connected there: they are on green, or hang."""
    if facts.seconds < ARRIVAL_SECONDS:
        return
    for topic, state in facts.blue.items():
        consumed = {client.subscription for client in facts.before.get(topic, ()) if client.role is not Role.PRODUCER}
        for name, backlog in state.backlog.items():
            if backlog and name in consumed and not state.consumers(name):
                text = (
                    f"Restart a consumer of subscription {name!r} on {topic}: {backlog:,} entries are unread on "
                    "{blue}, and no consumer is connected there. It is redirected to {green} when it has read them."
                )
                kind, subject = IncidentKind.NO_CONSUMERS, f"{topic} {name}"
                yield _incident(facts, kind, Remedy.OPERATOR, text, subject=subject, topics=[topic])


def _consumers_wait(facts: DrainFacts) -> Iterator[Incident]:
    """Consumers that have read everything on a cluster whose brokers redirect none that waits for messages."""
    if not facts.flags_cluster or facts.seconds < RECONNECT_SECONDS:
        return
    for topic, state in facts.blue.items():
        for name, backlog in state.backlog.items():
            if state.close and not backlog and state.consumers(name):
                text = (
                    f"Consumers of subscription {name!r} on {topic} have read everything and wait on {{blue}}: its "
                    "brokers redirect them when they connect again."
                )
                kind, subject = IncidentKind.CONSUMERS_WAIT, f"{topic} {name}"
                yield _incident(facts, kind, Remedy.RECONNECT, text, subject=subject, topics=[topic])


def _departed_consumers(facts: DrainFacts) -> Iterator[Incident]:
    """A backlog on blue whose last consumer left between the gates and the cutover: nobody reads it there."""
    for topic, clients in facts.departed.items():
        state = facts.blue.get(topic)
        for client in {client.subscription: client for client in clients}.values():
            name = client.subscription
            backlog = state.backlog.get(name) if state and state.absence is None else None
            if backlog and state and not state.consumers(name):
                text = (
                    f"Start a consumer of subscription {name!r} on {topic}, configured with {{blue}}: "
                    f"{counted(backlog, 'unread entry')} left on {{blue}}, and no consumer was connected at the "
                    "cut-over. "
                    f"The last one was {client}, which left after the gates were evaluated. A new consumer reads the "
                    "backlog on {blue} and is then redirected to {green}."
                )
                kind, subject = IncidentKind.NO_CONSUMERS, f"{topic} {name}"
                yield _incident(facts, kind, Remedy.OPERATOR, text, subject=subject, topics=[topic])


def _unread_text(backlog: int | None) -> str:
    if backlog is None:
        return "Its backlog is not known: do not unload it, since a flagged topic is not loaded again."
    return f"{backlog:,} entries are unread there." if backlog else "Everything on it was read."


def _remedy_of_fenced(backlog: int | None) -> Remedy:
    # An unload under the flag strands the backlog, so it needs proof that there is none.
    if backlog is None:
        return Remedy.OPERATOR
    return Remedy.RELOAD if backlog else Remedy.UNLOAD


_RULES: tuple[Callable[[DrainFacts], Iterator[Incident]], ...] = (
    _unreachable_brokers,
    _green_missing,
    _unloaded,
    _bundle_moved,
    _statistics_incomplete,
    _flag,
    _permissions,
    _clients,
    _no_consumers,
    _consumers_wait,
    _departed_consumers,
)
