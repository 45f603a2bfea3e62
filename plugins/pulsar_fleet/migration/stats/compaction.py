"""Values that only readers of a compacted topic get: no subscription holds them, and no retention (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.migration.stats.effective_policies import EffectivePolicies
from pulsar_fleet.verification.bounds.compaction import compacted_entries

_THRESHOLD = TOPIC_BY_FIELD["compactionThreshold"]


@dataclass(frozen=True, slots=True)
class CompactedView:
    """The compacted view of one plain topic or partition.

    :param entries: of its compacted ledger; of its log, where the broker compacts it and has not yet.
    :param in_log: whether the log still has all of them, so that a copy of the log is enough.
    """

    entries: int
    in_log: bool


def compacting_topics(policies: EffectivePolicies, topics: Iterable[TopicName]) -> frozenset[TopicName]:
    """Those of the topics that some broker compacts by itself."""

    def is_compacted(topic: TopicName) -> bool:
        thresholds = policies.values(_THRESHOLD, str(topic.namespace), str(topic))
        return any(int(threshold or 0) > 0 for threshold in thresholds)

    return frozenset(filter(is_compacted, topics))


def compacted_view(internal_stats: JsonObject, first: Position | None, *, compacting: bool) -> CompactedView | None:
    """The view of a partition from its `internalStats`; None without a value.

    :param first: where a reader of the compacted topic begins.
    :param compacting: whether the broker compacts the topic by itself.
    """
    log, entries = Ledgers.of(internal_stats), compacted_entries(internal_stats)
    if entries:
        return CompactedView(entries, first is None or (bool(len(log)) and log.at(0) <= first))
    return CompactedView(len(log), in_log=True) if compacting and len(log) else None
