"""What may differ between two stored snapshots, found column by column.

Rows of both sides are laid side by side and compared without becoming objects. Documents of policies, which say the
same in other words on another cluster, are judged by the rules of a plan, each pair of texts once. About what is not
named here a plan would say nothing; what is named has to be looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pulsar_fleet.planning.build import names_apart
from pulsar_fleet.planning.diff import VALUES
from pulsar_fleet.snapshot.model import NamespaceState, Snapshot, SubscriptionState, TopicPolicyState, TopicState
from pulsar_fleet.snapshot.store.reader import StoredSnapshot
from pulsar_fleet.snapshot.store.rows import namespace_of_topic
from pulsar_fleet.verification.snapshots.columnar_join import Pair, as_numbers, as_one, lay_side_by_side

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]


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


@dataclass(frozen=True, slots=True)
class Suspects:
    """What must be compared row by row.

    :param namespaces: in order; those of the topics are among them.
    """

    namespaces: tuple[str, ...]
    topics: frozenset[str]


def find_suspects(
    source: StoredSnapshot, target: StoredSnapshot, namespaces: Collection[str], *, subscriptions: bool
) -> Suspects:
    """Those in these namespaces.

    :param subscriptions: compare them too.
    """
    finder = _Finder(source, target, namespaces)
    topics = {*finder.topics(), *finder.schemas(), *finder.topic_policies()}
    if subscriptions:
        topics.update(finder.subscriptions())
    names = {*finder.namespaces(), *(namespace_of_topic(topic) for topic in topics)}
    return Suspects(tuple(sorted(names)), frozenset(topics))


class _Finder:
    """Looks at one table after the other, so that no two lie in memory; tells the names of namespaces or of topics."""

    def __init__(self, source: StoredSnapshot, target: StoredSnapshot, namespaces: Collection[str]) -> None:
        self._source = source
        self._target = target
        self._within = namespaces
        self._judge = Judge(source.load_within(()), target.load_within(()))

    def namespaces(self) -> list[str]:
        pair = self._read("namespaces", key=("name",), more=("policies",))
        return pair.owners_of(self._apart(pair, (), self._judge.namespaces))

    def topics(self) -> list[str]:
        pair = self._read("topics", key=("name",))
        return pair.owners_of(pair.unequal)

    def schemas(self) -> list[str]:
        pair = self._read("schemas", key=("topic",), order="version")
        return pair.owners_of(pair.unequal)

    def topic_policies(self) -> list[str]:
        pair = self._read("topic_policies", key=("topic", "scope"), more=("policies",))
        return pair.owners_of(self._apart(pair, ("scope",), self._judge.topic_policies))

    def subscriptions(self) -> list[str]:
        """Of which the cursors differ, or are fewer than their topic needs."""
        import numpy as np

        pair = self._read("subscriptions", key=("topic", "name"))
        _, first, cursors = np.unique(pair.key, return_index=True, return_counts=True)
        partitions = self._partitions(pair, first)
        _, examples, members = np.unique(as_one([cursors, partitions]), return_index=True, return_inverse=True)
        cases = zip(cursors[examples].tolist(), partitions[examples].tolist(), strict=True)
        unequal = pair.unequal.copy()
        unequal[first] |= np.array(self._judge.subscriptions([*cases]), dtype=bool)[members]
        return pair.owners_of(unequal)

    def _read(self, table: str, *, key: tuple[str, ...], order: str = "", more: tuple[str, ...] = ()) -> Pair:
        values = VALUES.get(table, ())
        columns = [*key, *([order] if order else []), *values, *more]
        source, target = (side.columns(table, columns, self._within) for side in (self._source, self._target))
        return lay_side_by_side(source, target, key=key, order=order, values=values)

    def _apart(self, pair: Pair, same: Sequence[str], judge: Callable[[Any], list[bool]]) -> Flags:
        """The rows that are unequal, or whose policies are judged to differ; each combination of texts once.

        :param same: columns that the judge wants in front of the two texts.
        """
        import numpy as np

        columns = [
            *(pair.source.column(name) for name in same),
            *(side.column("policies") for side in (pair.source, pair.target)),
        ]
        texts = as_one([as_numbers(column)[1][0] for column in columns])
        _, first, members = np.unique(texts, return_index=True, return_inverse=True)
        cases = list(zip(*(column.take(first).to_pylist() for column in columns), strict=True))
        apart: Flags = np.array(judge(cases), dtype=bool)[members]
        return pair.unequal | apart

    def _partitions(self, pair: Pair, rows: Numbers) -> Numbers:
        """Of the source's topics of these rows; 0 where it does not have the topic."""
        import numpy as np

        topics = self._source.columns("topics", ("name", "partitions"), self._within)
        names, (wanted, held) = as_numbers(pair.source.column("topic").take(rows), topics.column("name"))
        found = np.zeros(len(names), dtype=np.int64)
        found[held] = topics.column("partitions").to_numpy()
        partitions: Numbers = found[wanted]
        return partitions
