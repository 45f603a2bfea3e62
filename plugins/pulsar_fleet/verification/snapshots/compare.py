"""The comparison of two stored snapshots in batches of namespaces: in this process or in Spark tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from upath import UPath

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts, Reference, read_job_result
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.comparison import Comparison, compare, comparison_text, merge
from pulsar_fleet.snapshot.store.reader import StoredSnapshot
from pulsar_fleet.snapshot.store.writer import SnapshotWriter
from pulsar_fleet.verification.snapshots.candidates import find_candidates

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
