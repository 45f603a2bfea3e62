"""Topics that hold what other topics hold on the other cluster: their contents were exchanged, not lost (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict
from pulsar_fleet.verification.request import Address

_Content = tuple[object, ...]


def with_exchanges(verdicts: Sequence[TopicVerdict], source: Address, target: Address) -> list[TopicVerdict]:
    """The verdicts; a different topic says which other topic of the target holds all its messages in their order.

    Its messages are not described one by one: each would look lost, and each of the other topic's of unknown origin.
    """
    different = [verdict for verdict in verdicts if verdict.verdict is Verdict.DIFFERENT and not verdict.compacted]
    holders: dict[_Content, list[str]] = defaultdict(list)
    contents = {verdict.topic: {side: _content(verdict, side) for side in Side} for verdict in different}
    for topic, sides in contents.items():
        if (content := sides[Side.TARGET]) is not None:
            holders[content].append(topic)

    def holder(topic: str) -> str | None:
        content = contents[topic][Side.SOURCE]
        others = holders.get(content, ()) if content is not None else ()
        return min((other for other in others if other != topic), default=None)

    def named(verdict: TopicVerdict) -> TopicVerdict:
        if verdict.compacted or verdict.topic not in contents or (other := holder(verdict.topic)) is None:
            return verdict
        cause = f"{other} on {target.name} holds what this topic holds on {source.name}"
        if holder(other) == verdict.topic:
            cause += ", and the other way round: the contents of the two topics were exchanged"
        return replace(verdict, reason="; ".join(part for part in (verdict.reason, cause) if part), differences=())

    return [named(verdict) for verdict in verdicts]


def _content(verdict: TopicVerdict, side: Side) -> _Content | None:
    """What identifies the content of a topic on one cluster; None if it holds nothing or was not read."""
    proof = verdict.proof.get(side.value)
    if not proof or not proof.get("messages"):
        return None
    digest = tuple(proof.get(name) for name in ("messages", "sums", "order", "engine", "encoding"))
    return (*digest, verdict.proof.get("publish_time"), verdict.proof.get("compacted"))
