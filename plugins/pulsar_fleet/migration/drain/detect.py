"""What goes wrong after the switch, recognised from what both sides show (pure).

Evidence for each kind: flips of real 4.2.4 clusters. Recognition never waits and never asks: the same situation gives
the same incidents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import ConnectedClient, Role
from pulsar_fleet.migration.drain.incident import Incident, Kind, Situation, Treatment
from pulsar_fleet.migration.stats.clients import vanished
from pulsar_fleet.migration.stats.partition_state import Absence

ARRIVAL_SECONDS = 30.0
"""A client that is on neither side for longer does not come by itself; a Go producer needs its operation time-out."""
VERDICT_SECONDS = 60.0
"""Two session time-outs of brokers: after one, another broker takes over the topics of a broker that is gone."""


def recognise(seen: Situation) -> tuple[Incident, ...]:
    """Every incident that the situation shows, what explains most first."""
    return tuple(incident for rule in _RULES for incident in rule(seen))


def missing_clients(seen: Situation) -> tuple[ConnectedClient, ...]:
    """Clients that were on blue and are on neither side; a side that gave no statistics accuses nobody."""
    found: list[ConnectedClient] = []
    for topic, before in seen.before.items():
        there, here = seen.green.get(topic), seen.blue.get(topic)
        if there is None or there.absence is not None:
            continue
        on_blue = here.clients if here is not None and here.absence is None else ()
        found += vanished(before, on_blue, there.clients)
    return tuple(found)


def _silent_brokers(seen: Situation) -> Iterator[Incident]:
    for broker, seconds in seen.silent.items():
        gone = seconds > VERDICT_SECONDS
        yield Incident(
            kind=Kind.BROKER_GONE if gone else Kind.BROKER_SILENT,
            namespace=str(seen.namespace),
            subject=broker,
            sentence=(
                f"{broker} has not answered for {seconds:.0f} s, longer than two session time-outs: start it again, "
                "or restart it if it hangs (jstack shows a dead-lock). Nothing that it serves moves until then."
                if gone
                else f"{broker} has not answered for {seconds:.0f} s; a verdict after {VERDICT_SECONDS:.0f} s."
            ),
            treatment=Treatment.PERSON if gone else Treatment.WAIT,
        )


def _green_missing(seen: Situation) -> Iterator[Incident]:
    gone = [str(topic) for topic, state in seen.green.items() if state.absence is Absence.GONE]
    if seen.green_exists is False or gone:
        subject = str(seen.namespace) if seen.green_exists is False else gone[0]
        yield Incident(
            kind=Kind.GREEN_MISSING,
            namespace=str(seen.namespace),
            subject=subject,
            sentence=f"{subject} does not exist on green, and blue sends its clients there: they write and read "
            "nothing. Create it now: clear the task prepare_green of this run.",
            treatment=Treatment.PERSON,
            topics=tuple(gone),
        )


def _unloaded(seen: Situation) -> Iterator[Incident]:
    lost = [topic for topic, state in seen.blue.items() if state.absence is Absence.UNLOADED]
    by_bundle: dict[tuple[str, str], list[TopicName]] = {}
    for topic in lost:
        by_bundle.setdefault(seen.places.get(topic, ("", "")), []).append(topic)
    for (broker, bundle), topics in by_bundle.items():
        kind, cause = _cause(seen, broker, bundle, len(topics))
        yield Incident(
            kind=kind,
            namespace=str(seen.namespace),
            subject=str(seen.namespace) if len(topics) > 1 else str(topics[0]),
            sentence=f"{len(topics)} partitions, {topics[0]} among them, are no longer served by blue: {cause}, and a "
            "flagged topic cannot be loaded again. What they hold is intact; their consumers may hang.",
            treatment=Treatment.RECOVER,
            topics=tuple(str(topic) for topic in topics),
        )


def _cause(seen: Situation, broker: str, bundle: str, count: int) -> tuple[Kind, str]:
    if broker in seen.restarted or (not broker and seen.restarted):
        return Kind.BROKER_RESTARTED, f"broker {broker or next(iter(seen.restarted))} was restarted"
    own = [topic for topic, place in seen.places.items() if place[0] == broker]
    if broker and broker not in seen.live and seen.live:
        return Kind.BROKER_RESTARTED, f"broker {broker} is gone"
    lost = [topic for topic in own if (state := seen.blue.get(topic)) and state.absence is Absence.UNLOADED]
    if broker and len(own) == len(lost) and len({seen.places[topic][1] for topic in own}) > 1:
        return Kind.OWNER_CHANGED, f"all its bundles were unloaded from {broker}, or that broker was restarted"
    if bundle:
        return Kind.OWNER_CHANGED, f"bundle {bundle} was unloaded from {broker}"
    return Kind.UNLOADED, "it was unloaded" if count == 1 else "they were unloaded"


def _owner_changed(seen: Situation) -> Iterator[Incident]:
    for topic, state in seen.blue.items():
        was = seen.places.get(topic)
        if was and was[0] and state.broker and state.absence is None and state.broker != was[0]:
            yield Incident(
                kind=Kind.OWNER_CHANGED,
                namespace=str(seen.namespace),
                subject=str(topic),
                sentence=f"{topic} moved from broker {was[0]} to {state.broker} while it drains; it is still served.",
                treatment=Treatment.ASK_EACH,
                topics=(str(topic),),
            )


def _uncounted(seen: Situation) -> Iterator[Incident]:
    absent = [str(topic) for topic, state in seen.blue.items() if state.absence in (Absence.UNSEEN, Absence.SILENT)]
    if absent:
        yield Incident(
            kind=Kind.UNCOUNTED,
            namespace=str(seen.namespace),
            subject=str(seen.namespace),
            sentence=f"{len(absent)} partitions, {absent[0]} among them, are in no broker's statistics: what they hold "
            "is unknown, not 0.",
            treatment=Treatment.ASK_EACH,
            topics=tuple(absent),
        )


def _flag(seen: Situation) -> Iterator[Incident]:
    stranded = any(state.absence is Absence.UNLOADED for state in seen.blue.values())
    if seen.flagged is False:
        yield Incident(
            kind=Kind.FLAG_RESET,
            namespace=str(seen.namespace),
            subject=str(seen.namespace),
            sentence=f"The flag of {seen.namespace} was cleared on blue by somebody else: blue sends nobody to green "
            "any more, and whoever starts anew hangs.",
            # Under the flag a topic that is not loaded cannot be loaded again.
            treatment=Treatment.WAIT if stranded else Treatment.REFLAG,
        )
    if seen.redirected is False:
        yield Incident(
            kind=Kind.REDIRECT_LOST,
            namespace=str(seen.namespace),
            subject=str(seen.namespace),
            sentence="The address to which blue sends its clients was changed by somebody else.",
            treatment=Treatment.STORE_REDIRECT,
        )


def _grants(seen: Situation) -> Iterator[Incident]:
    if seen.ungranted:
        yield Incident(
            kind=Kind.GRANTS_MISSING,
            namespace=str(seen.namespace),
            subject=str(seen.namespace),
            sentence=f"{', '.join(seen.ungranted)} may do on blue what they may not do on green: their applications "
            "hang, and come back by themselves when they are let in.",
            treatment=Treatment.GRANT,
        )


def _clients(seen: Situation) -> Iterator[Incident]:
    if seen.waited < ARRIVAL_SECONDS or seen.ungranted or seen.flagged is False:
        return
    for topic in seen.closed:
        state = seen.blue.get(topic)
        left = sum(state.backlog.values()) if state and state.absence is None else None
        yield Incident(
            kind=Kind.FENCED,
            namespace=str(seen.namespace),
            subject=str(topic),
            sentence=f"{topic} lets no producer in: publishes were in flight when it was closed (a broker defect). "
            + (f"{left:,} entries are unread there." if left else "Everything on it was read."),
            treatment=_for_fenced(left),
            topics=(str(topic),),
        )
    for client in missing_clients(seen):
        fenced = client.role is Role.PRODUCER and TopicName.parse(client.topic) in seen.closed
        if not fenced:
            yield Incident(
                kind=Kind.VANISHED,
                namespace=str(seen.namespace),
                subject=f"{client.topic} {client.subscription} {client.name}".replace("  ", " "),
                sentence=f"Restart the application of {client} on {client.topic}"
                + (f", subscription {client.subscription!r}" if client.subscription else "")
                + f": it was on blue and has been on neither side for {seen.waited:.0f} s.",
                treatment=Treatment.PERSON,
                topics=(client.topic,),
            )


def _nobody_reads(seen: Situation) -> Iterator[Incident]:
    """Unread messages on blue whose consumers are not there any more: on green, or hanging."""
    if seen.waited < ARRIVAL_SECONDS:
        return
    for topic, state in seen.blue.items():
        had = {client.subscription for client in seen.before.get(topic, ()) if client.role is not Role.PRODUCER}
        for name, left in state.backlog.items():
            if left and name in had and not state.consumers(name):
                yield Incident(
                    kind=Kind.NOBODY_READS,
                    namespace=str(seen.namespace),
                    subject=f"{topic} {name}",
                    sentence=f"Restart a consumer of subscription {name!r} on {topic}: {left:,} entries are left on "
                    "blue and nobody reads them there. It is sent to green when it has read them.",
                    treatment=Treatment.PERSON,
                    topics=(str(topic),),
                )


def _for_fenced(left: int | None) -> Treatment:
    # An unload under the flag strands whatever is left, so it needs proof that nothing is.
    if left is None:
        return Treatment.PERSON
    return Treatment.RECOVER if left else Treatment.UNLOAD


_RULES: tuple[Callable[[Situation], Iterator[Incident]], ...] = (
    _silent_brokers,
    _green_missing,
    _unloaded,
    _owner_changed,
    _uncounted,
    _flag,
    _grants,
    _clients,
    _nobody_reads,
)
