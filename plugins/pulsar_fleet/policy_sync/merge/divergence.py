"""The divergent resources of a fleet, by stored snapshots of its clusters, some namespaces at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from upath import UPath

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts, Reference, read_job_result
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.policy_sync.merge.view import Item, items_of
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.store.reader import StoredSnapshot, store_snapshot

KIND = "fleet"
NAMESPACES_AT_ONCE = 2_000
_FOLDER = "divergent"

Batches = Sequence[Sequence[str]]
Spread = Callable[[Batches, Callable[[Sequence[str]], Json]], Json]
"""Runs a function for each batch of names, in any process; results in the order of the batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceRequest(Document):
    """Stored snapshots of clusters that should be identical: the document for a job.

    :param fleet: the names of all clusters, including unreachable ones: they give lists of clusters their meaning.
    """

    SCHEMA_VERSION = 1
    kind = KIND
    PROPERTIES = ("kind",)
    OTHER_VERSION = "use the job and the package of one release"

    snapshots: tuple[Reference, ...]
    fleet: tuple[str, ...]


def is_divergence_request(content: bytes) -> bool:
    """Whether a document is a `DivergenceRequest`."""
    return bool(json.loads(content).get("kind") == KIND)


def store_request(run: Run, snapshots: Mapping[str, Snapshot], fleet: Collection[str]) -> tuple[str, str]:
    """Store the snapshot of each cluster and a request to compare them; returns the URIs of request and result."""
    stored = (
        store_snapshot(run.artefacts, run.id, snapshot, name=f"{_FOLDER}/{name}")
        for name, snapshot in snapshots.items()
    )
    request = DivergenceRequest(snapshots=tuple(stored), fleet=tuple(sorted(fleet)))
    reference = run.artefacts.write(run.id, f"{_FOLDER}/request.json", request.to_bytes())
    return reference.uri, str(run.artefacts.folder(run.id) / _FOLDER / "result.json")


def read_result(run: Run, result_uri: str) -> frozenset[Item]:
    """Read the result of the job and delete the stored snapshots; `NotFound` if there is no result."""
    result = json.loads(read_job_result(result_uri, "comparison job"))
    # A run every few minutes would fill the store.
    folder = run.artefacts.folder(run.id) / _FOLDER
    folder.fs.rm(folder.path, recursive=True)
    return frozenset((Resource(kind), name) for kind, name in result["divergent"])


def find_divergent(request: DivergenceRequest, spread: Spread) -> JsonObject:
    """Compare tenants in this process and namespaces by `spread`; a second call returns the same.

    :returns: `{"compared": number of namespaces, "divergent": resources as kind and name}`.
    """
    stored = _open(request)
    outside = list(divergent([snapshot.load_without_namespaces() for snapshot in stored], request.fleet))
    names = sorted({name for snapshot in stored for name in snapshot.namespaces()})
    batches = [names[first : first + NAMESPACES_AT_ONCE] for first in range(0, len(names), NAMESPACES_AT_ONCE)]

    def within(batch: Sequence[str]) -> Json:
        return _plain(divergent([snapshot.load_namespaces(batch) for snapshot in _open(request)], request.fleet))

    within_namespaces = [item for part in spread(batches, within) for item in part]
    resources = [*_plain(outside), *within_namespaces]
    return {"schema_version": 1, "compared": len(names), "divergent": resources}


def divergent(snapshots: Sequence[Snapshot], fleet: Collection[str]) -> Iterator[Item]:
    """The resources that a cluster does not have, or that differ in a shared field (pure)."""
    clusters = [items_of(snapshot, fleet) for snapshot in snapshots]
    for item in sorted({item for items in clusters for item in items}):
        first, *others = (items.get(item) for items in clusters)
        if first is None or not all(other is not None and same(first, other) for other in others):
            yield item


@lru_cache(maxsize=2)
def _open(request: DivergenceRequest) -> tuple[StoredSnapshot, ...]:
    """All snapshots; cached, so that a process checks the digest of each table once and not once per batch."""
    return tuple(
        StoredSnapshot.open(Artefacts(UPath(reference.uri).parent), reference) for reference in request.snapshots
    )


def _plain(items: Iterator[Item] | Sequence[Item]) -> Json:
    return [[kind.value, name] for kind, name in items]
