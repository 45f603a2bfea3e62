"""Functions, connectors, packages and protocol handlers, which a copy leaves out, and their namespaces (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.names import FUNCTIONS_STATE, TopicName
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.preflight.context import Pair, blocker, in_broker_conf, names_in, settings, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import InventoryState, Snapshot

_KINDS = ("function", "source", "sink")


def functions_are_not_copied(pair: Pair) -> Iterator[Finding]:
    """Functions, sources and sinks that the target lacks; where brokers run no functions worker, none is known."""
    existing = {(item.kind, item.namespace, item.name) for item in pair.target.inventory}
    running: dict[str, list[str]] = {}
    for item in pair.source.inventory:
        if item.kind in _KINDS and (item.kind, item.namespace, item.name) not in existing:
            running.setdefault(item.namespace, []).append(f"{item.kind} {item.name!r}")
    for namespace, names in sorted(running.items()):
        yield warning(
            "functions-not-copied",
            namespace,
            f"{listed(sorted(names))} on {pair.source.cluster}",
            f"They are not copied: they keep running on {pair.source.cluster}, with its topics.",
            f"create them on {pair.target.cluster} when the applications move, and stop them on {pair.source.cluster} "
            "then.",
        )


def packages_are_not_copied(pair: Pair) -> Iterator[Finding]:
    """Uploaded packages that the target lacks."""
    existing = {(item.namespace, item.name, item.detail["in"]) for item in _packages(pair.target)}
    stored: dict[str, list[str]] = {}
    for item in _packages(pair.source):
        if (item.namespace, item.name, item.detail["in"]) not in existing:
            stored.setdefault(item.namespace, []).append(f"{item.detail['in'].removeprefix('packages/')} {item.name!r}")
    for namespace, names in sorted(stored.items()):
        yield warning(
            "packages-not-copied",
            namespace,
            f"packages of {listed(sorted(names))} on {pair.source.cluster}",
            "They are not copied: a function that is created from one of them needs it on its own cluster.",
            f"upload them to {pair.target.cluster} when the functions move.",
        )


def _packages(snapshot: Snapshot) -> list[InventoryState]:
    return [item for item in snapshot.inventory if item.kind == "package"]


def worker_state_is_named(pair: Pair) -> Iterator[Finding]:
    """The namespace of the workers is a namespace like others: its topics are created, without their messages."""
    name = str(FUNCTIONS_STATE)
    topics = [topic.name for topic in pair.source.topics if topic.name.startswith(f"persistent://{name}/")]
    if any(state.name == name for state in pair.source.namespaces):
        yield _state(
            pair,
            "functions-worker-state",
            name,
            topics,
            "functions workers",
            "no function, source or sink comes with it",
        )


def handlers_are_installed(pair: Pair) -> Iterator[Finding]:
    """The protocols for which the source's brokers have a handler, and the target's have none."""
    ours, theirs = _protocols(pair.source), _protocols(pair.target)
    if missing := sorted(ours - theirs):
        target = pair.target.cluster
        every = f"messagingProtocols={','.join(sorted(ours | theirs))}"
        yield warning(
            "protocol-handler-missing",
            f"cluster {target}",
            f"messagingProtocols: {pair.values(sorted(ours), sorted(theirs) or 'none')}",
            f"Clients that use {listed(missing)} cannot connect to {target}.",
            f"let these clients stay on {pair.source.cluster}, or put the handler into protocolHandlerDirectory of "
            f"{target}'s brokers, and {in_broker_conf(every, 'them')}",
            values=(sorted(ours), sorted(theirs)),
        )


def handler_state_is_named(pair: Pair) -> Iterator[Finding]:
    """Namespaces in which a protocol handler of the source's brokers keeps its state, by the names of topics."""
    state: dict[str, list[str]] = {}
    for topic in pair.source.topics if _protocols(pair.source) else ():
        name = TopicName.parse(topic.name)
        if name.local in _HANDLER_TOPICS:
            state.setdefault(str(name.namespace), []).append(topic.name)
    for namespace, topics in sorted(state.items()):
        yield _state(
            pair,
            "protocol-handler-state",
            namespace,
            topics,
            "protocol handlers",
            "no consumer group has a position there",
        )


def _state(pair: Pair, id_: str, name: str, topics: list[str], owners: str, loss: str) -> Finding:
    """The workers or handlers of a cluster read the messages of a namespace as their own state."""
    sends, source, target = pair.replicated(name), pair.source.cluster, pair.target.cluster
    copied = (
        f"The copy has its policies, its topics and their subscriptions, without messages: {loss}."
        if not sends
        else f"Replicated, those of {target} read what those of {source} have written as their own state."
    )
    return (blocker if sends else warning)(
        id_,
        name,
        f"{listed(sorted(topics))} on {source}",
        f"{owners.capitalize()} keep their state in the messages of this namespace. {copied}",
        f"leave this namespace out by selecting the other namespaces of the tenant; {owners} of {target} create "
        "their own.",
    )


def _protocols(snapshot: Snapshot) -> set[str]:
    return {name for value in settings(snapshot, "messagingProtocols").values() for name in names_in(value)}


_HANDLER_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Where a Kafka protocol handler keeps the positions of consumer groups, and transactions."""
