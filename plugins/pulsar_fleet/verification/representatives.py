"""One case stands for all that are alike, and is judged by the very rules of a plan (pure).

So these rules are written down once. What they make of a document or of a number of cursors does not depend on the
resource's name: each case gets a name of its own, and all of them are compared as two small snapshots.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pulsar_fleet.change.planning import names_apart
from pulsar_fleet.cluster.states import NamespaceState, Snapshot, SubscriptionState, TopicPolicyState, TopicState

_NAMESPACE = "case/of"
_ROOM = (NamespaceState(_NAMESPACE, {}),)


@dataclass(frozen=True, slots=True)
class Judge:
    """Says of each case whether a plan would say anything about it.

    :param source: the source without anything that lies in a namespace; likewise `target`.
    """

    source: Snapshot
    target: Snapshot

    def namespaces(self, cases: Sequence[tuple[str, str]]) -> list[bool]:
        """Of namespaces: the source's and the target's policies, as stored."""
        names = [f"{_NAMESPACE}-{number}" for number in range(len(cases))]
        source, target = (
            tuple(NamespaceState(name, json.loads(case[side])) for name, case in zip(names, cases, strict=True))
            for side in (0, 1)
        )
        found = names_apart(replace(self.source, namespaces=source), replace(self.target, namespaces=target))
        return [name in found for name in names]

    def topic_policies(self, cases: Sequence[tuple[str, str, str]]) -> list[bool]:
        """Of topic policies: the scope, the source's and the target's policies, as stored."""
        names = _topics(len(cases))
        source, target = (
            tuple(
                TopicPolicyState(name, scope, json.loads(policies[side]), 0)
                for name, (scope, *policies) in zip(names, cases, strict=True)
            )
            for side in (0, 1)
        )
        topics = tuple(TopicState(name, 0, {}) for name in names)
        found = names_apart(
            replace(self.source, namespaces=_ROOM, topics=topics, topic_policies=source),
            replace(self.target, namespaces=_ROOM, topics=topics, topic_policies=target),
        )
        return [name in found for name in names]

    def subscriptions(self, cases: Sequence[tuple[int, int]]) -> list[bool]:
        """Of equal subscriptions: the number of cursors, and of partitions of the source's topic."""
        names = _topics(len(cases))
        topics = tuple(TopicState(name, count, {}) for name, (_, count) in zip(names, cases, strict=True))
        cursors = tuple(
            SubscriptionState(name, name, "", "", False)
            for name, (count, _) in zip(names, cases, strict=True)
            for _ in range(count)
        )
        source, target = (
            replace(side, namespaces=_ROOM, topics=topics, subscriptions=cursors) for side in (self.source, self.target)
        )
        found = names_apart(source, target)
        return [name in found for name in names]


def _topics(count: int) -> list[str]:
    return [f"persistent://{_NAMESPACE}/{number}" for number in range(count)]
