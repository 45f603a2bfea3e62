"""Limits that slow or hold a replicator, and what the target refuses of it (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pulsar_fleet.cluster.admin.call import Call, bare
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.preflight.target_limits import TABLE, Exceeded, Limit
from pulsar_fleet.replication.doctor.causes.pair import Assessed, Explained, NamespacePair, lag_text, on
from pulsar_fleet.replication.doctor.model import State

_MESSAGE, _LOWER = "message-refused", "limit-lower-on-target"
_NOT_CONNECTED = (State.DISCONNECTED, State.MISSING, State.UNKNOWN)
_EVERY = (*_NOT_CONNECTED, State.STALLED)


def find_refusals(pair: NamespacePair) -> Iterator[Explained]:
    """Limits by which the target refuses the replicator, or a message of it, by topic."""
    for topic, rows in pair.by_topic(_EVERY).items():
        rows = [row for row in rows if not pair.target_topic(row.facts.topic).terminated]
        unlinked = [row for row in rows if row.state in _NOT_CONNECTED]
        # What the target confirms nothing of is sent again: a replicator that sends nothing has another cause.
        resending = [row for row in rows if row.state is State.STALLED and row.facts.resent is not False]
        resending = [row for row in resending if not pair.target_topic(row.facts.topic).missing]
        for limit in TABLE:
            held = resending if limit.cause == _MESSAGE else unlinked
            exceeded = _exceeded(pair, limit, topic) if held else None
            if exceeded:
                evidence = f"{exceeded.evidence}; {lag_text(held)}."
                yield pair.diagnose(limit.cause, evidence, explained=held, resource=str(topic))
        absent = [row for row in unlinked if pair.target_topic(row.facts.topic).exists is False]
        yield from _too_many(pair, topic, absent)


def find_lower_limits(pair: NamespacePair) -> Iterator[Explained]:
    """Limits of the target for messages that the source does not have, also where every replicator works."""
    there = (pair.there.topic_policies or {}) if pair.there else {}
    for limit in (limit for limit in TABLE if limit.cause == _MESSAGE):
        whole = _exceeded(pair, limit, None)
        if whole:
            yield pair.diagnose(_LOWER, f"{whole.evidence}.")
        for topic in sorted({*(pair.here.topic_policies or {}), *there}):
            own = _exceeded(pair, limit, topic) if pair.target in pair.here.targets_of(topic) else None
            if own and own != whole:
                yield pair.diagnose(_LOWER, f"{own.evidence}.", resource=str(topic))


def _exceeded(pair: NamespacePair, limit: Limit, topic: TopicName | None) -> Exceeded | None:
    source, target = (pair.in_effect(topic, on_target=on_target) for on_target in (False, True))
    if source is None or target is None:
        return None
    return limit.exceeded(source, target)


def _too_many(pair: NamespacePair, topic: TopicName, absent: list[Assessed]) -> Iterator[Explained]:
    if not absent or pair.there is None or pair.there.topics is None or pair.clusters.target is None:
        return
    own = pair.there.policies.get("max_topics_per_namespace")
    most = int(own if own is not None else pair.clusters.target.setting("maxTopicsPerNamespace") or 0)
    existing = sum(max(1, count) for name, count in pair.there.topics.items() if not name.is_system)
    if 0 < most < existing + len(absent):
        count = f"{pair.target} has {counted(existing, 'topic')} and partitions, of {most:,} allowed"
        yield pair.diagnose("too-many-topics", f"{count}; {lag_text(absent)}.", explained=absent, resource=str(topic))


_SLOW = (State.BEHIND, State.STALLED)
_UNLINKED = (State.DISCONNECTED, State.MISSING, State.STALLED)
_REFUSING = ("producer_request_hold", "producer_exception")
_DISPATCH = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")
_PUBLISH = ("publishThrottlingRateInMsg", "publishThrottlingRateInByte")


def find_limit_causes(pair: NamespacePair) -> Iterator[Explained]:
    """The limits that hold the replicators of the namespace, by topic."""
    for topic, rows in pair.by_topic(_SLOW).items():
        if explained := _rates(pair, topic, rows):
            yield explained
    for topic, rows in pair.by_topic(_UNLINKED).items():
        if explained := _quota(pair, topic, rows):
            yield explained


def find_expiry(pair: NamespacePair, rows: tuple[Assessed, ...]) -> Iterator[Explained]:
    """Messages that expire before they are replicated; explains no state."""
    expiring = [row for row in rows if row.facts.last and row.facts.last.expired_rate > 0]
    if expiring:
        rate = sum(row.facts.last.expired_rate for row in expiring if row.facts.last)
        yield pair.diagnose("backlog-expires", f"{rate:,.2f} messages/s expire; {lag_text(expiring)}.")


def _rates(pair: NamespacePair, topic: TopicName, rows: list[Assessed]) -> Explained | None:
    dispatch = pair.effective("replicatorDispatchRate", topic, on_target=False)
    if slowed := [row for row in rows if _is_near(dispatch, _DISPATCH, row.facts.speed)]:
        evidence = f"The limit is {_limit(dispatch, _DISPATCH)} on {pair.source}; {_speed(slowed)}."
        calls = on(pair.source, *_unset(pair, topic, "replicatorDispatchRate", on_target=False))
        return pair.diagnose("replicator-rate-limited", evidence, explained=slowed, resource=str(topic), calls=calls)
    publish = pair.effective("publishRate", topic, on_target=True)
    if slowed := [row for row in rows if _is_near(publish, _PUBLISH, _received(pair, row))]:
        evidence = f"The limit is {_limit(publish, _PUBLISH)} on {pair.target}; {_speed(slowed)}."
        calls = on(pair.target, *_unset(pair, topic, "publishRate", on_target=True))
        return pair.diagnose("target-publish-limited", evidence, explained=slowed, resource=str(topic), calls=calls)
    return None


def _received(pair: NamespacePair, row: Assessed) -> tuple[float, float]:
    """Messages and bytes per second of the topic on the target: other producers count for its limit too."""
    received, sent = pair.target_topic(row.facts.topic).received or (0.0, 0.0), row.facts.speed
    return max(received[0], sent[0]), max(received[1], sent[1])


def _is_near(rate: Json, keys: tuple[str, str], speed: tuple[float, float]) -> bool:
    """Whether a speed reaches half of a limit: one that is far from it is not what slows the replicator."""
    if not isinstance(rate, Mapping):
        return False
    seconds = int(rate.get("ratePeriodInSecond") or 1)
    limits = (int(rate.get(key) or 0) / seconds for key in keys)
    return any(limit > 0 and now >= limit / 2 for limit, now in zip(limits, speed, strict=True))


def _unset(pair: NamespacePair, topic: TopicName, field: str, *, on_target: bool) -> tuple[Call, ...]:
    """The call that removes a limit; none where the topic's own or the broker's is in effect."""
    namespace = pair.there if on_target else pair.here
    if namespace is None:
        return ()
    own = namespace.policies_of(topic)
    if own.local.get(field):
        return (bare("DELETE", f"/{topic.path}/{field}"),)
    stored = "publishMaxMessageRate" if field == "publishRate" else field
    if not own.shared.get(field) and namespace.policies.get(stored):
        return (bare("DELETE", f"/namespaces/{pair.name.path}/{field}"),)
    return ()


def _quota(pair: NamespacePair, topic: TopicName, rows: list[Assessed]) -> Explained | None:
    quota = (pair.effective("backLogQuotaMap", topic, on_target=True) or {}).get("destination_storage") or {}
    size = int(quota.get("limitSize") or -1)
    if size < 0 or quota.get("policy") not in _REFUSING:
        return None
    full = [row for row in rows if (pair.target_topic(row.facts.topic).stored_bytes or 0) >= size]
    if not full:
        return None
    stored = sum(pair.target_topic(row.facts.topic).stored_bytes or 0 for row in full)
    evidence = (
        f"The backlog on {pair.target} is {stored:,} bytes in {counted(len(full), 'topic')}, the quota of a topic "
        f"{size:,} bytes with policy {quota['policy']}; {lag_text(full)}."
    )
    return pair.diagnose("target-quota-exceeded", evidence, explained=full, resource=str(topic))


def _limit(rate: Json, keys: tuple[str, str]) -> str:
    """`10 messages/s and 1,000 bytes/s`; empty without a limit."""
    if not isinstance(rate, Mapping):
        return ""
    seconds = int(rate.get("ratePeriodInSecond") or 1)
    units = zip(keys, ("messages", "bytes"), strict=True)
    parts = [f"{rate[key] / seconds:,.1f} {unit}/s" for key, unit in units if int(rate.get(key) or 0) > 0]
    return " and ".join(parts)


def _speed(rows: list[Assessed]) -> str:
    confirmed, sent = (sum(row.facts.per_second for row in rows), sum(row.facts.speed[0] for row in rows))
    return f"{lag_text(rows)}, {sent:,.1f} messages/s sent, {confirmed:,.1f} entries/s confirmed"
