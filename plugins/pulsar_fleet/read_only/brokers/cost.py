"""What readers share, what brokers send now, and where readers go: the costs that a plan explains (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.read_only.isolation import brokers_of, free_brokers, isolation_document, policy_name
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.state import Observed

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def amount(number: float) -> str:
    """`812 bytes`, `1.2 MB`."""
    unit = 0
    while number >= 1000 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:,.1f} {_UNITS[unit]}" if unit else f"{number:,.0f} bytes"


def cost_lines(observed: Observed, request: Request) -> tuple[str, ...]:
    """Stored bytes that are shared, bytes per second by broker, and the brokers of readers; a sentence each."""
    present = [source for source in observed.sources if source.can_be_served]
    if not present:
        return ()
    stored = sum(source.stored_bytes for source in present)
    topics = counted(len(present), "topic")
    lines = [
        f"Readers share {amount(stored)} that {topics} {'stores' if len(present) == 1 else 'store'}; "
        "a copy on another cluster would store as much again."
    ]
    sent: dict[str, float] = {}
    for source in present:
        for broker, rate in source.sent.items():
            sent[broker] = sent.get(broker, 0.0) + rate
    subject = "it" if len(present) == 1 else "them"
    lines += [
        f"{broker or 'No broker'} sends {amount(rate)}/s to subscriptions of {subject} now."
        for broker, rate in sorted(sent.items())
    ]
    return (*lines, *_readers(observed, request, sent))


def _readers(observed: Observed, request: Request, sent: Mapping[str, float]) -> Iterator[str]:
    """Where the bytes go of subscriptions that move to the shadow topics."""
    brokers = observed.brokers
    if not brokers.wanted:
        yield "Subscriptions that move to the shadow topics are sent theirs by any broker, which may be the same one."
        return
    chosen = brokers_of(brokers.wanted, brokers.live)
    after = {**brokers.policies, policy_name(request.namespace): isolation_document(request.namespace, brokers.wanted)}
    yield (
        f"Subscriptions that move to the shadow topics are sent theirs by {listed(chosen)}; "
        f"{len(free_brokers(brokers.live, after))} of {len(brokers.live)} brokers stay free for all other namespaces."
    )
    if both := sorted({*sent} & {*chosen}):
        yield f"{listed(both)} owns some of the sources until their bundles are unloaded."
