"""How far a switched namespace has drained and who has arrived on green (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.facts import PartitionFacts
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.phases import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of one namespace's drain.

    :param remaining: unread entries on blue that somebody there still has to read, or that are still to be replicated.
    :param missing: what was connected before the switch and is not on green yet, in words.
    :param unloaded: partitions that blue no longer serves although the namespace has not drained: an incident.
    """

    namespace: str
    remaining: int
    producers: tuple[int, int]
    consumers: tuple[int, int]
    missing: tuple[str, ...]
    unloaded: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Everything is read on blue, and as many clients are on green as were on blue."""
        return not (self.remaining or self.missing or self.unloaded)

    def line(self) -> str:
        """One line for the log, as an operator reads it."""
        state = "drained" if not self.remaining else f"{self.remaining:,} entries left on blue"
        clients = (
            f"{self.producers[0]} of {self.producers[1]} producers and "
            f"{self.consumers[0]} of {self.consumers[1]} consumers arrived"
        )
        late = f"; waiting for {'; '.join(self.missing[:3])}" if self.missing else ""
        return f"{self.namespace}: {state}, {clients}{late}"

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "schema_version": 1,
            "namespace": self.namespace,
            "remaining": self.remaining,
            "producers": list(self.producers),
            "consumers": list(self.consumers),
            "missing": list(self.missing),
            "unloaded": list(self.unloaded),
        }


def progress(
    move: Move, blue: Mapping[TopicName, PartitionFacts | None], green: Sequence[PartitionFacts], green_name: str
) -> Progress:
    """Judge a namespace by what both sides show.

    :param blue: partition → its statistics, None where blue cannot load it any more (500 "already migrated").
    """
    arrived = {facts.topic: facts for facts in green}
    missing: list[str] = []
    producers = consumers = remaining = 0
    for topic, before in move.partitions.items():
        there = arrived[topic]
        producers += min(there.producers, before.producers)
        if there.producers < before.producers:
            missing.append(f"{before.producers - there.producers} producers of {topic}")
        for name, count in before.consumers.items():
            now = there.subscriptions[name].consumers if name in there.subscriptions else 0
            consumers += min(now, count)
            if now < count:
                missing.append(f"{count - now} consumers of {name!r} on {topic}")
        remaining += _remaining(move, blue[topic], green_name)
    return Progress(
        namespace=str(move.namespace),
        remaining=remaining,
        producers=(producers, move.producers),
        consumers=(consumers, move.consumers),
        missing=tuple(missing),
        unloaded=tuple(str(topic) for topic, facts in blue.items() if facts is None),
    )


def _remaining(move: Move, facts: PartitionFacts | None, green_name: str) -> int:
    if facts is None:
        return 0
    carried = _carried(move, facts.topic)
    unread = sum(found.backlog for name, found in facts.subscriptions.items() if name not in carried)
    return unread + facts.replication_backlog.get(green_name, 0)


def _carried(move: Move, topic: TopicName) -> frozenset[str]:
    """Subscriptions whose unread messages were replicated: nobody has to read them on blue."""
    if move.strategy is not Strategy.REPLICATE:
        return frozenset()
    return frozenset(name for name, count in move.partitions[topic].consumers.items() if count == 0)
