"""Functions, connectors and packages, which a copy leaves out, and the workers' namespace (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.names import FUNCTIONS_STATE
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.preflight.context import Pair, warning
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
        yield warning(
            "functions-worker-state",
            name,
            f"{listed(sorted(topics))} on {pair.source.cluster}",
            "Functions workers keep their state in the messages of this namespace. The copy has its policies, its "
            "topics and their subscriptions, without messages: no function, source or sink comes with it.",
            "leave this namespace out by selecting the other namespaces of the tenant; functions workers of "
            f"{pair.target.cluster} create their own.",
        )
