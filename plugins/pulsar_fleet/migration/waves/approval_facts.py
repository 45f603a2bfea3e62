"""What the approval text says about the last verification and the expected drain of a wave (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.statistics.topic_statistics import SubscriptionStats, TopicStats
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.ledger.rows import RecordedVerdict, utc
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.waves.planner import Member


def drain_seconds(partitions: Iterable[TopicStats], strategy: Strategy) -> float | None:
    """How long consumers need for the backlog on blue at their present rate; None while that is not known.

    Producers leave blue at the cut-over, so that the backlog only shrinks. Subscriptions are drained in parallel: the
    slowest decides. With replication the cut-over transfers subscriptions without consumers, which need no drain.
    """
    seconds = 0.0
    for partition in partitions:
        for subscription in partition.subscriptions.values():
            if not subscription.backlog or _is_transferred(subscription, strategy):
                continue
            if not subscription.read_rate:
                return None
            seconds = max(seconds, subscription.backlog / subscription.read_rate)
    return seconds


def _is_transferred(subscription: SubscriptionStats, strategy: Strategy) -> bool:
    return strategy is Strategy.REPOINT or (strategy.copies and not subscription.consumers)


def verification_sentence(
    names: Sequence[NamespaceName], verdicts: Mapping[NamespaceName, RecordedVerdict], now: datetime
) -> str:
    """How old the last verdict of each namespace is, by verdict; the oldest verdict is named.

    :param verdicts: the last stored verdict of each namespace that has a verdict.
    """
    by_verdict: dict[str, list[NamespaceName]] = {}
    for name in names:
        if name in verdicts:
            by_verdict.setdefault(verdicts[name].verdict, []).append(name)
    parts = []
    for verdict, group in sorted(by_verdict.items()):
        at = {name: utc(verdicts[name].at) for name in group}
        oldest = min(group, key=at.__getitem__)
        age = f"{duration((now - at[oldest]).total_seconds())} ago"
        parts.append(f"{verdict} {age}" if len(names) == 1 else f"{len(group)} {verdict}, oldest {age} ({oldest})")
    if missing := [name for name in names if name not in verdicts]:
        few = len(missing) < len(names)
        parts.append(f"{len(missing)} not verified yet, first {missing[0]}" if few else "not verified yet")
    return f"Last verification: {'; '.join(parts)}."


def drain_sentence(members: Sequence[Member]) -> str:
    """How long the drain of a wave is expected to take, by the backlog and the read rates of its last survey."""
    unknown = [member for member in members if member.drain_seconds is None]
    if unknown:
        backlog = sum(member.backlog for member in unknown)
        first = unknown[0].namespace
        more = f" (and {counted(len(unknown) - 1, 'more namespace')})" if len(unknown) > 1 else ""
        return (
            f"Expected drain: not known. {first} has a subscription with a backlog that no consumer reads now{more}; "
            f"{counted(backlog, 'unread entry')}."
        )
    slowest = max(members, key=lambda member: member.drain_seconds or 0.0)
    if not slowest.drain_seconds:
        return "Expected drain: nothing to drain on blue."
    return (
        f"Expected drain: about {duration(max(slowest.drain_seconds, 1.0))} at the present read rates; "
        f"{counted(sum(member.backlog for member in members), 'unread entry')}, {slowest.namespace} takes longest."
    )
