"""Comparing two stored snapshots, some namespaces at a time: here, or spread over a Spark cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from upath import UPath

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.fingerprint_key import open_seal
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.comparison import Comparison, compare, comparison_text, merge
from pulsar_fleet.snapshot.store.reader import StoredSnapshot
from pulsar_fleet.snapshot.store.writer import SnapshotWriter
from pulsar_fleet.verification.snapshots.candidates import find_suspects

SCHEMA_VERSION = 1
REQUEST = "comparison/request.json"
RESULT = "comparison/result.json"
ROWS_AT_ONCE = 200_000
"""Of both sides, that a batch has on average: some 50 MB as columns."""
NAMESPACES_AT_ONCE = 100
"""That are compared row by row."""
COMPARED = frozenset({"tenants", "namespaces", "topics", "schemas", "subscriptions", "topic_policies"})
"""Tables of which every row is compared; the others are compared where a namespace needs them, or only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Two stored snapshots to compare: the document that a job gets.

    :param accept_incomplete: resources that may be unreadable, as the snapshots' notes name them.
    :param examples: how many differences the result holds as values.
    """

    source: Reference
    target: Reference
    subscriptions: bool = True
    accept_incomplete: tuple[str, ...] = ()
    examples: int = 20

    def to_bytes(self) -> bytes:
        """As a JSON document."""
        found = {
            "schema_version": SCHEMA_VERSION,
            "source": self.source.to_json(),
            "target": self.target.to_json(),
            "subscriptions": self.subscriptions,
            "accept_incomplete": self.accept_incomplete,
            "examples": self.examples,
        }
        return json.dumps(found).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; another version's document is `InvalidRequest`."""
        found: JsonObject = json.loads(content)
        if found.get("schema_version") != SCHEMA_VERSION:
            raise InvalidRequest(
                f"The comparison request has version {found.get('schema_version')!r}, this job reads "
                f"{SCHEMA_VERSION}: use the job and the package of one release."
            )
        return cls(
            source=Reference.from_json(found["source"]),
            target=Reference.from_json(found["target"]),
            subscriptions=bool(found["subscriptions"]),
            accept_incomplete=tuple(found["accept_incomplete"]),
            examples=int(found["examples"]),
        )


Batches = Sequence[Sequence[str]]
Spread = Callable[[CompareRequest, Batches], Iterable[Comparison]]
"""Runs `compare_namespaces` for each batch of names, wherever it likes; results in the order of the batches."""


def compare_snapshots(request: CompareRequest, spread: Spread) -> Comparison:
    """Compare what lies in no namespace here, and all namespaces by `spread`. Again gives the same.

    :raises Refused: the snapshots cannot be compared: incomplete, or their secrets under different keys.
    """
    source, target = open_pair(request)
    outside = compare(
        source.load_outside(),
        target.load_outside(),
        subscriptions=request.subscriptions,
        accept_incomplete=request.accept_incomplete,
        examples=request.examples,
    )
    names = sorted({*source.namespaces(), *target.namespaces()})
    rows = sum(source.counts.values()) + sum(target.counts.values())
    batches = _cut(names, max(1, ROWS_AT_ONCE * len(names) // max(rows, 1)))
    return merge((outside, *spread(request, batches)), compared=source.counts, examples=request.examples)


def compare_here(request: CompareRequest, batches: Batches) -> Iterable[Comparison]:
    """The namespaces one batch after the other, in this process."""
    return (compare_namespaces(request, names) for names in batches)


def compare_namespaces(request: CompareRequest, names: Sequence[str]) -> Comparison:
    """Compare these namespaces alone: as columns, and row by row what may differ."""
    source, target = open_pair(request)
    equal = Comparison(source=source.head.cluster, target=target.head.cluster, compared={}, differing={}, left_alone={})
    suspects = find_suspects(source, target, names, subscriptions=request.subscriptions)
    found = (
        compare(
            source.load_within(some, suspects.topics),
            target.load_within(some, suspects.topics),
            subscriptions=request.subscriptions,
            examples=request.examples,
        )
        for some in _cut(suspects.namespaces, NAMESPACES_AT_ONCE)
    )
    return merge((equal, *found), compared={}, examples=request.examples)


def _cut(names: Sequence[str], size: int) -> Batches:
    return [names[first : first + size] for first in range(0, len(names), size)]


@lru_cache(maxsize=2)
def open_pair(request: CompareRequest) -> tuple[StoredSnapshot, StoredSnapshot]:
    """Both snapshots; kept, so that a process proves each table once and not for every batch."""
    found = (StoredSnapshot.open(Artefacts(UPath(one.uri).parent), one) for one in (request.source, request.target))
    source, target = found
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
    """Read the target afresh, store what it holds, and ask to compare it with the source's stored snapshot."""
    # Workers of Spark import this module, and the client takes a second to import.
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.snapshot.collect import collect_into

    with SnapshotWriter(artefacts, run_id, name="snapshot-target-after") as writer:
        async with AdminClient(target) as admin:
            head = await collect_into(writer, admin, selection, seal=open_seal())
        return CompareRequest(source=source, target=writer.finish(head), subscriptions=subscriptions)


def summary(request: CompareRequest, found: Comparison) -> JsonObject:
    """What a task hands on: `{"snapshot"}` as a reference, `{"equal", "compared", "differences", "text"}` as values."""
    return {
        "snapshot": request.target.to_json(),
        "equal": found.equal,
        "compared": {name: count for name, count in found.compared.items() if name in COMPARED},
        "differences": sum(found.differing.values()),
        "text": comparison_text(found),
    }


def hand_over(run: Run, request: CompareRequest) -> tuple[str, str]:
    """Store the request for a Spark job; returns the two URIs that the job wants: its request and its result."""
    reference = run.artefacts.write(run.id, REQUEST, request.to_bytes())
    return reference.uri, str(run.artefacts.folder(run.id) / RESULT)


def read_result(result_uri: str) -> Comparison:
    """Take the result that a Spark job left. `NotFound` if there is none."""
    try:
        content = UPath(result_uri).read_bytes()
    except OSError as error:
        raise NotFound(f"The comparison job left no result at {result_uri}: {error}. See its log.") from error
    return Comparison.from_json(json.loads(content))
