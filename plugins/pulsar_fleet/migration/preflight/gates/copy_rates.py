"""Policies that stop or delay the copy of messages: the longest delay, and rates (pure).

Measured on 4.2.4: the replicator of a message with a longer delay than green permits is disconnected; a publish rate of
green's namespace throttles what a replicator writes there; rates of 0 are no limit.
"""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.cluster.text import duration
from pulsar_fleet.migration.preflight.copied_policies import copied_in, sides_of, until_ended
from pulsar_fleet.migration.preflight.gates.catalogue import Owner, blocks, warns
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.findings import Finding

_DELAY = blocks(
    "longest-delay-shorter",
    Owner.GREEN,
    "{green} refuses a message with a longer delay: the copy of its topic stops there, and producers are refused.",
    milder="a warning while no delayed message waits",
)
_THROTTLED = warns(
    "copy-throttled",
    Owner.TENANT,
    "The copy or its comparison takes at least this time for each partition.",
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
_LONGEST = "maxDeliveryDelayInMillis"


def delays_are_accepted(view: View) -> Iterator[Finding]:
    """The longest permitted delay of green, where blue accepted a longer one."""
    sides = sides_of(view)
    for facts in copied_in(view):
        waiting = sum(sub.delayed for part in facts.partitions for sub in part.subscriptions.values())
        for topic in sorted({part.topic.parent for part in facts.partitions}, key=str):
            limits = (side.value(topic, "delayedDelivery") or {} for side in sides.values())
            ours, theirs = (int(limit.get(_LONGEST) or 0) for limit in limits)
            if theirs and (not ours or ours > theirs):
                yield _DELAY.finding(
                    str(topic),
                    f"{_LONGEST}: {view.blue.name} {ours or 'no limit'}, {view.green.name} {theirs}; {waiting:,} "
                    "delayed messages in the namespace",
                    f"set the policy delayedDelivery on {view.blue.name} with the part {_LONGEST} that is to apply on "
                    "both, not below the longest delay in use.",
                    mild=not waiting,
                )
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


def _seconds(part: TopicStats, rate: JsonObject, by_messages: str, by_bytes: str) -> float:
    """How long the known entries of a partition take; a rate of 0 or below is no limit."""
    entries = max([part.messages_in, *(sub.backlog for sub in part.subscriptions.values())])
    amounts = ((entries, int(rate.get(by_messages) or 0)), (part.stored_bytes, int(rate.get(by_bytes) or 0)))
    return max((amount * _period(rate) / limit for amount, limit in amounts if limit > 0), default=0.0)


def _period(rate: JsonObject) -> int:
    return int(rate.get("ratePeriodInSecond") or 1)
