"""Candidates: namespaces and topics that may differ between two stored snapshots, determined column by column.

Rows of both snapshots are joined and compared without creating objects. Policy documents, which may be equivalent
although their texts differ, are compared by the rules of a plan, each pair of texts once. A plan has no change for
anything that is not a candidate; a candidate must be compared row by row. A namespace whose scalable topics have to be
named is one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pulsar_fleet.planning.build import differing_names
from pulsar_fleet.planning.diff import COMPARED_COLUMNS
from pulsar_fleet.snapshot.model import SCALABLE_TOPIC, NamespaceState, Snapshot, TopicPolicyState, TopicState
from pulsar_fleet.snapshot.store.reader import StoredSnapshot
from pulsar_fleet.snapshot.store.rows import namespace_of_topic
from pulsar_fleet.verification.snapshots.columnar_join import JoinedRows, combine_keys, join_columns, number_texts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]


_NAMESPACE = "case/of"
_NAMESPACES = (NamespaceState(_NAMESPACE, {}),)


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """Decides for each case whether a plan would have a change for it.

    :param source: the source snapshot without its namespaces; likewise `target`.
    """

    source: Snapshot
    target: Snapshot

    def namespaces(self, cases: Sequence[tuple[str, str]]) -> list[bool]:
        """Cases of namespaces: the policies of source and target, as stored."""
        names = [f"{_NAMESPACE}-{number}" for number in range(len(cases))]
        source, target = (
            tuple(NamespaceState(name, json.loads(case[side])) for name, case in zip(names, cases, strict=True))
            for side in (0, 1)
        )
        differing = differing_names(replace(self.source, namespaces=source), replace(self.target, namespaces=target))
        return [name in differing for name in names]

    def topic_policies(self, cases: Sequence[tuple[str, str, str]]) -> list[bool]:
        """Cases of topic policies: the scope and the policies of source and target, as stored."""
        names = _topics(len(cases))
        source, target = (
            tuple(
                TopicPolicyState(name, scope, json.loads(policies[side]), 0)
                for name, (scope, *policies) in zip(names, cases, strict=True)
            )
            for side in (0, 1)
        )
        topics = tuple(TopicState(name, 0, {}) for name in names)
        differing = differing_names(
            replace(self.source, namespaces=_NAMESPACES, topics=topics, topic_policies=source),
            replace(self.target, namespaces=_NAMESPACES, topics=topics, topic_policies=target),
        )
        return [name in differing for name in names]


def _topics(count: int) -> list[str]:
    return [f"persistent://{_NAMESPACE}/{number}" for number in range(count)]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The resources that must be compared row by row.

    :param namespaces: in order, with the namespaces of the topics.
    """

    namespaces: tuple[str, ...]
    topics: frozenset[str]


def find_candidates(
    source: StoredSnapshot, target: StoredSnapshot, namespaces: Collection[str], *, subscriptions: bool
) -> Candidates:
    """The candidates in these namespaces.

    :param subscriptions: compare subscriptions too.
    """
    finder = _Finder(source, target, namespaces)
    topics = {*finder.topics(), *finder.schemas(), *finder.topic_policies()}
    if subscriptions:
        topics.update(finder.subscriptions())
    named = (topic for side in (source, target) for topic in side.inventory(SCALABLE_TOPIC, namespaces))
    names = {*finder.namespaces(), *(namespace_of_topic(topic) for topic in (*topics, *named))}
    return Candidates(tuple(sorted(names)), frozenset(topics))


class _Finder:
    """Reads one table at a time to save memory; returns names of namespaces or of topics."""

    def __init__(self, source: StoredSnapshot, target: StoredSnapshot, namespaces: Collection[str]) -> None:
        self._source = source
        self._target = target
        self._within = namespaces
        self._check = PlanCheck(source.load_namespaces(()), target.load_namespaces(()))

    def namespaces(self) -> list[str]:
        pair = self._read("namespaces", key=("name",), more=("policies",))
        return pair.owners_of(self._differing(pair, (), self._check.namespaces))

    def topics(self) -> list[str]:
        pair = self._read("topics", key=("name",))
        return pair.owners_of(pair.unequal)

    def schemas(self) -> list[str]:
        pair = self._read("schemas", key=("topic",), order="version")
        return pair.owners_of(pair.unequal)

    def topic_policies(self) -> list[str]:
        pair = self._read("topic_policies", key=("topic", "scope"), more=("policies",))
        return pair.owners_of(self._differing(pair, ("scope",), self._check.topic_policies))

    def subscriptions(self) -> list[str]:
        pair = self._read("subscriptions", key=("topic", "name", "partition"))
        return pair.owners_of(pair.unequal)

    def _read(self, table: str, *, key: tuple[str, ...], order: str = "", more: tuple[str, ...] = ()) -> JoinedRows:
        values = COMPARED_COLUMNS.get(table, ())
        columns = [*key, *([order] if order else []), *values, *more]
        source, target = (side.columns(table, columns, self._within) for side in (self._source, self._target))
        return join_columns(source, target, key=key, order=order, values=values)

    def _differing(self, pair: JoinedRows, prefix: Sequence[str], check: Callable[[Any], list[bool]]) -> Flags:
        """The rows that are unequal, or whose policies differ by `check`, which gets each combination of texts once.

        :param prefix: columns that `check` takes before the two texts.
        """
        import numpy as np

        columns = [
            *(pair.source.column(name) for name in prefix),
            *(side.column("policies") for side in (pair.source, pair.target)),
        ]
        texts = combine_keys([number_texts(column)[1][0] for column in columns])
        _, first, members = np.unique(texts, return_index=True, return_inverse=True)
        cases = list(zip(*(column.take(first).to_pylist() for column in columns), strict=True))
        differing: Flags = np.array(check(cases), dtype=bool)[members]
        return pair.unequal | differing
