"""Policies that stop or delay the copy of messages, or that it exceeds: delays, sizes, rates, quotas (pure).

Measured on 4.2.4: a publish rate of green's namespace throttles what a replicator writes there; a rate of 0 is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.migration.preflight.copied_policies import copied_in, on_every_side, sides_of, until_ended
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.context import written
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.target_limits import DELAY, LARGEST, LONGEST, LOST, SIZE, quotas_met_by_copy

_LOST = LOST.format(source="{blue}", target="{green}")
_DELAY = blocks(
    "longest-delay-shorter",
    Owner.GREEN,
    _LOST,
    milder="a warning while no delayed message waits",
)
_SIZE = blocks("message-size-lower", Owner.GREEN, _LOST)
_THROTTLED = warns(
    "copy-throttled",
    Owner.TENANT,
    "The copy or its comparison takes at least this time for each partition.",
)
_QUOTA = blocks(
    "copy-exceeds-quota",
    Owner.TENANT,
    "The copy's cursor on {blue} begins at the first stored message, and is backlog: until it is copied, {blue} "
    "refuses or holds producers, or moves that cursor, so that messages are never copied.",
)
_RATES = (
    ("replicatorDispatchRate", "blue", "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    ("publishRate", "green", "publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    ("dispatchRate", "blue", "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    ("dispatchRate", "green", "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    ("subscriptionDispatchRate", "blue", "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    ("subscriptionDispatchRate", "green", "dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
)
"""Topic policy, the cluster on which it limits a copy or its reader, and the keys of messages and bytes."""
_NOTED_SECONDS = 60


def messages_are_accepted(view: View) -> Iterator[Finding]:
    """Limits of green for messages that blue does not have, one for each namespace and limit."""
    sides, names = sides_of(view), {"source": view.blue.name, "target": view.green.name}
    for facts in copied_in(view):
        waiting = sum(sub.delayed for part in facts.partitions for sub in part.subscriptions.values())
        topics = sorted({part.topic.parent for part in facts.partitions}, key=str)
        for limit, gate, remedy in ((DELAY, _DELAY, LONGEST), (SIZE, _SIZE, LARGEST)):
            for topic in topics:
                if exceeded := limit.exceeded(*(side.effective(topic) for side in sides.values())):
                    delayed = f"; {waiting:,} delayed messages in the namespace" if gate is _DELAY else ""
                    mild = gate is _DELAY and not waiting
                    yield gate.finding(str(topic), exceeded.evidence + delayed, remedy.format(**names), mild=mild)
                    break


def rates_let_the_copy_end(view: View) -> Iterator[Finding]:
    """Rates that delay the replicator, what it writes on green, or a reader, by the largest partition."""
    sides = sides_of(view)
    for facts in copied_in(view):
        slowest: dict[str, tuple[float, str, str]] = {}
        for field, name, by_messages, by_bytes in _RATES:
            for part in facts.partitions:
                rate = sides[name].value(part.topic, field) or {}
                seconds = _seconds(part, rate, by_messages, by_bytes)
                if seconds > max(_NOTED_SECONDS, slowest.get(field, (0.0, "", ""))[0]):
                    limits = f"{rate.get(by_messages, -1)} messages and {rate.get(by_bytes, -1)} bytes"
                    text = f"{limits} in {_period(rate)} s on {sides[name].name}"
                    slowest[field] = (seconds, text, str(part.topic))
        for field, (seconds, text, partition) in slowest.items():
            yield _THROTTLED.finding(
                str(facts.namespace),
                f"{field}: {text}; at least {duration(seconds)} for {partition}",
                f"raise the rate {until_ended(view)}, or allow that time.",
            )


def the_copy_fits_the_quotas(view: View) -> Iterator[Finding]:
    """Backlog quotas of blue that the copy's own cursor would exceed; one finding for each place that sets one."""
    blue = sides_of(view)["blue"]
    for facts in copied_in(view):
        stored: dict[TopicName, int] = {}
        for part in facts.partitions:
            stored[part.topic.parent] = max(part.stored_bytes, stored.get(part.topic.parent, 0))
        named: set[str] = set()
        for topic, size in sorted(stored.items(), key=lambda item: -item[1]):
            for met in quotas_met_by_copy(blue.effective(topic), topic, size):
                call = written(met.call)
                if call not in named:
                    named.add(call)
                    yield _QUOTA.finding(
                        str(topic),
                        met.evidence,
                        f"lift the quota {until_ended(view)}, or on {view.blue.name} if the run is given up; it is "
                        f"{json.dumps(met.quota)} now. Or move the namespace with the strategy redirect, which copies "
                        "nothing.",
                        call=on_every_side(view, call),
                    )


def _seconds(part: TopicStats, rate: JsonObject, by_messages: str, by_bytes: str) -> float:
    """How long the known entries of a partition take; a rate of 0 or below is no limit."""
    entries = max([part.messages_in, *(sub.backlog for sub in part.subscriptions.values())])
    amounts = ((entries, int(rate.get(by_messages) or 0)), (part.stored_bytes, int(rate.get(by_bytes) or 0)))
    return max((amount * _period(rate) / limit for amount, limit in amounts if limit > 0), default=0.0)


def _period(rate: JsonObject) -> int:
    return int(rate.get("ratePeriodInSecond") or 1)
