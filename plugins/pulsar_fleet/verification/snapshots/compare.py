"""The comparison of two stored snapshots in batches of namespaces: in this process or in Spark tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from upath import UPath

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts, Reference, read_job_result
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.build import differing_names
from pulsar_fleet.planning.comparison import Comparison, compare, comparison_text, merge
from pulsar_fleet.planning.diff import COMPARED_COLUMNS
from pulsar_fleet.snapshot.model import SCALABLE_TOPIC, NamespaceState, Snapshot, TopicPolicyState, TopicState
from pulsar_fleet.snapshot.store.reader import StoredSnapshot
from pulsar_fleet.snapshot.store.rows import namespace_of_topic
from pulsar_fleet.snapshot.store.writer import SnapshotWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
    import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRows:
    """Rows of source and target; rows with the same index have the same key and equal columns unless `unequal`.

    :param key: key of the source's row, as a number; rows with the same key are adjacent.
    :param owner: owner of the row, as an index into `owners`.
    :param owners: the names of the resources to which rows belong.
    :param uneven: owners with different numbers of rows in source and target; their rows are left out.
    """

    source: pa.Table
    target: pa.Table
    key: Numbers
    owner: Numbers
    owners: pa.Array
    unequal: Flags
    uneven: Flags

    def owners_of(self, rows: Flags) -> list[str]:
        """The names of the owners of these rows, and of the uneven owners."""
        import pyarrow as pa

        flags = self.uneven.copy()
        flags[self.owner[rows]] = True
        names: list[str] = self.owners.filter(pa.array(flags)).to_pylist()
        return names


def join_columns(
    source: pa.Table, target: pa.Table, *, key: Sequence[str], order: str, values: Sequence[str]
) -> JoinedRows:
    """Join the rows of each owner by their keys; rows with the same key keep their order.

    :param key: the columns that identify a row; the first one is its owner.
    :param order: a column that orders rows with the same key; it is not compared.
    :param values: the columns that are compared.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    sides = [source, target]
    owners, belong = number_texts(*(side.column(key[0]) for side in sides))
    counts = [np.bincount(numbers, minlength=len(owners)) for numbers in belong]
    uneven = counts[0] != counts[1]
    if uneven.any():
        kept = [~uneven[numbers] for numbers in belong]
        sides = [side.filter(pa.array(mask)) for side, mask in zip(sides, kept, strict=True)]
        belong = [numbers[mask] for numbers, mask in zip(belong, kept, strict=True)]
    keys = _keys(sides, belong, key[1:])
    (left_rows, left_key), (right_rows, right_key) = (
        _in_order(side, number, order) for side, number in zip(sides, keys, strict=True)
    )
    unequal = left_key != right_key
    for name in values:
        equal = pc.fill_null(pc.equal(left_rows.column(name), right_rows.column(name)), False)
        unequal |= ~equal.to_numpy()
    # Keys are in the order of the owners, and each owner has equally many rows in both tables.
    return JoinedRows(left_rows, right_rows, left_key, np.sort(belong[0]), owners, unequal, uneven)


def number_texts(*columns: pa.ChunkedArray) -> tuple[pa.Array, list[Numbers]]:
    """The distinct texts of all columns, and each column as indices into them."""
    import numpy as np
    import pyarrow as pa

    chunks = [chunk for column in columns for chunk in column.chunks]
    encoded = pa.chunked_array(chunks, columns[0].type).combine_chunks().dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    return encoded.dictionary, np.split(numbers, np.cumsum([len(column) for column in columns])[:-1])


def combine_keys(columns: Sequence[Numbers]) -> Numbers:
    """Each row of several columns of non-negative numbers as one number, in the order of the first column."""
    combined, *rest = columns
    for column in rest:
        combined = combined * (column.max(initial=0) + 1) + column
    return combined


def _keys(sides: Sequence[pa.Table], owners: Sequence[Numbers], columns: Sequence[str]) -> list[Numbers]:
    """Keys as numbers that are comparable between the tables and in the order of the owners."""
    import numpy as np

    texts = [number_texts(*(side.column(column) for side in sides))[1] for column in columns]
    both = combine_keys([np.concatenate(owners), *(np.concatenate(numbers) for numbers in texts)])
    return np.split(both, [len(owners[0])])


def _in_order(side: pa.Table, key: Numbers, order: str) -> tuple[pa.Table, Numbers]:
    import numpy as np

    # Both sorts are stable, so rows with the same key stay in the order of the file.
    ranks = np.lexsort((side.column(order).to_numpy(), key)) if order else np.argsort(key, kind="stable")
    if (ranks[1:] > ranks[:-1]).all():
        return side, key
    return side.take(ranks), key[ranks]


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
    """The namespaces and topics of these that may differ, determined column by column.

    Rows of both snapshots are joined and compared without creating objects. Policy documents, which may be equivalent
    although their texts differ, are compared by the rules of a plan, each pair of texts once. A plan has no change for
    anything that is not a candidate; a candidate must be compared row by row. A namespace whose scalable topics have to
    be named is one.

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


REQUEST = "comparison/request.json"
RESULT = "comparison/result.json"
ROWS_AT_ONCE = 200_000
"""Average rows of a batch, of both snapshots: about 50 MB as columns."""
NAMESPACES_AT_ONCE = 100
"""Namespaces that are compared row by row at once."""
COMPARED = frozenset({"tenants", "namespaces", "topics", "schemas", "subscriptions", "topic_policies"})
"""Tables of which every row is compared; other tables are compared if a namespace needs them, or only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest(Document):
    """Two stored snapshots to compare: the document that a Spark job reads.

    :param examples: how many differences the result describes.
    """

    SCHEMA_VERSION = 1
    OTHER_VERSION = "use the job and the package of the same release"

    source: Reference
    target: Reference
    subscriptions: bool = True
    examples: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualityResult(Document):
    """Whether a target has all that its source has: the XCom of a task.

    :param snapshot: of the target.
    :param compared: rows of the source in each compared table.
    :param unread: the first resources that could not be read on one of the clusters: they were not compared.
    """

    snapshot: Reference
    equal: bool
    compared: Mapping[str, int]
    differences: int
    text: str
    unread: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: CompareRequest, comparison: Comparison) -> Self:
        """The result of a comparison."""
        return cls(
            snapshot=request.target,
            equal=comparison.equal,
            compared={name: count for name, count in comparison.compared.items() if name in COMPARED},
            differences=sum(comparison.differing.values()),
            text=comparison_text(comparison),
            unread=comparison.unread[: request.examples],
        )


Batches = Sequence[Sequence[str]]
Spread = Callable[[CompareRequest, Batches], Iterable[Comparison]]
"""Runs `compare_namespaces` for each batch of names; returns the results in the order of the batches."""


def compare_snapshots(request: CompareRequest, spread: Spread) -> Comparison:
    """Compare the resources outside of namespaces here, and all namespaces by `spread`. A second call gives the same.

    :raises PreconditionFailed: the snapshots cannot be compared, see `plan_changes`.
    """
    source, target = open_pair(request)
    outside = compare(
        source.load_without_namespaces(),
        target.load_without_namespaces(),
        subscriptions=request.subscriptions,
        examples=request.examples,
    )
    names = sorted({*source.namespaces(), *target.namespaces()})
    rows = sum(source.counts.values()) + sum(target.counts.values())
    batches = _cut(names, max(1, ROWS_AT_ONCE * len(names) // max(rows, 1)))
    return merge((outside, *spread(request, batches)), compared=source.counts, examples=request.examples)


def compare_in_process(request: CompareRequest, batches: Batches) -> Iterable[Comparison]:
    """Compare the namespaces in this process, one batch after another."""
    return (compare_namespaces(request, names) for names in batches)


def compare_namespaces(request: CompareRequest, names: Sequence[str]) -> Comparison:
    """Compare these namespaces: first by column, then the candidates row by row."""
    source, target = open_pair(request)
    equal = Comparison(source=source.head.cluster, target=target.head.cluster, compared={}, differing={}, left_alone={})
    candidates = find_candidates(source, target, names, subscriptions=request.subscriptions)
    comparisons = (
        compare(
            source.load_namespaces(batch, candidates.topics),
            target.load_namespaces(batch, candidates.topics),
            subscriptions=request.subscriptions,
            examples=request.examples,
            list_unread=False,
        )
        for batch in _cut(candidates.namespaces, NAMESPACES_AT_ONCE)
    )
    return merge((equal, *comparisons), compared={}, examples=request.examples)


def _cut(names: Sequence[str], size: int) -> Batches:
    return [names[first : first + size] for first in range(0, len(names), size)]


@lru_cache(maxsize=2)
def open_pair(request: CompareRequest) -> tuple[StoredSnapshot, StoredSnapshot]:
    """Both snapshots, cached so that a process verifies the digest of each table once."""
    stored = (
        StoredSnapshot.open(Artefacts(UPath(reference.uri).parent), reference)
        for reference in (request.source, request.target)
    )
    source, target = stored
    return source, target


async def read_back(
    source: Reference,
    target: ClusterConnection,
    selection: Selection,
    artefacts: Artefacts,
    run_id: str,
    *,
    subscriptions: bool = True,
) -> CompareRequest:
    """Take and store a new snapshot of the target; the request compares it with the source's stored snapshot."""
    # Spark workers import this module, and the client takes a second to import.
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.snapshot.collect import collect_into

    with SnapshotWriter(artefacts, run_id, name="snapshot-target-after") as writer:
        async with AdminClient(target) as admin:
            head = await collect_into(writer, admin, selection, redactor=open_redactor(), load_topics=subscriptions)
        return CompareRequest(source=source, target=writer.finish(head), subscriptions=subscriptions)


def store_request(run: Run, request: CompareRequest) -> tuple[str, str]:
    """Store the request for a Spark job; returns the URIs of the job's request and result."""
    reference = run.artefacts.write(run.id, REQUEST, request.to_bytes())
    return reference.uri, str(run.artefacts.folder(run.id) / RESULT)


def read_result(result_uri: str) -> Comparison:
    """Read the result of a Spark job. `NotFound` without a result."""
    return Comparison.from_json(json.loads(read_job_result(result_uri, "comparison job")))
