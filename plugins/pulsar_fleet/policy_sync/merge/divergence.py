"""Which resources the clusters of a fleet do not hold alike, by their stored snapshots, some namespaces at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from upath import UPath

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.policy_sync.merge.view import Item, items_of
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.store.reader import StoredSnapshot, store_snapshot

SCHEMA_VERSION = 1
KIND = "fleet"
NAMESPACES_AT_ONCE = 2_000
_FOLDER = "apart"

Batches = Sequence[Sequence[str]]
Spread = Callable[[Batches, Callable[[Sequence[str]], Json]], Json]
"""Does some work for each batch of names, wherever it likes; results in the order of the batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartRequest:
    """Stored snapshots of clusters that should hold the same: the document that a job gets.

    :param fleet: the names of all clusters, also of those that are away: they say what a list of clusters means.
    """

    snapshots: tuple[Reference, ...]
    fleet: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """As a JSON document."""
        snapshots = [one.to_json() for one in self.snapshots]
        return json.dumps(
            {"schema_version": SCHEMA_VERSION, "kind": KIND, "snapshots": snapshots, "fleet": self.fleet}
        ).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` wrote; another version's document is `InvalidRequest`."""
        found: JsonObject = json.loads(content)
        if (found.get("kind"), found.get("schema_version")) != (KIND, SCHEMA_VERSION):
            raise InvalidRequest(
                f"The request has kind {found.get('kind')!r} and version {found.get('schema_version')!r}, this job "
                f"reads {KIND!r} and {SCHEMA_VERSION}: use the job and the package of one release."
            )
        return cls(snapshots=tuple(map(Reference.from_json, found["snapshots"])), fleet=tuple(found["fleet"]))


def asks_for_apart(content: bytes) -> bool:
    """Whether a request is one of these."""
    return bool(json.loads(content).get("kind") == KIND)


def hand_over(run: Run, looks: Mapping[str, Snapshot], fleet: Collection[str]) -> tuple[str, str]:
    """Store what was seen of each cluster, and ask a job to compare it; returns the URIs of its request and result."""
    stored = (store_snapshot(run.artefacts, run.id, one, name=f"{_FOLDER}/{name}") for name, one in looks.items())
    request = ApartRequest(snapshots=tuple(stored), fleet=tuple(sorted(fleet)))
    reference = run.artefacts.write(run.id, f"{_FOLDER}/request.json", request.to_bytes())
    return reference.uri, str(run.artefacts.folder(run.id) / _FOLDER / "result.json")


def take_over(run: Run, result_uri: str) -> frozenset[Item]:
    """Take the result that the job left, and remove what it was made from. `NotFound` if there is none."""
    try:
        found = json.loads(UPath(result_uri).read_bytes())
    except OSError as error:
        raise NotFound(f"The comparison job left no result at {result_uri}: {error}. See its log.") from error
    # A run every few minutes would fill the store.
    folder = run.artefacts.folder(run.id) / _FOLDER
    folder.fs.rm(folder.path, recursive=True)
    return frozenset((Resource(kind), name) for kind, name in found["apart"])


def find_apart(request: ApartRequest, spread: Spread) -> JsonObject:
    """Compare what lies in no namespace here, and all namespaces by `spread`. Again gives the same.

    :returns: `{"compared": namespaces, "apart": resources as kind and name}`.
    """
    stored = _open(request)
    outside = list(apart([one.load_outside() for one in stored], request.fleet))
    names = sorted({name for one in stored for name in one.namespaces()})
    batches = [names[first : first + NAMESPACES_AT_ONCE] for first in range(0, len(names), NAMESPACES_AT_ONCE)]

    def within(some: Sequence[str]) -> Json:
        return _plain(apart([one.load_within(some) for one in _open(request)], request.fleet))

    found = [item for part in spread(batches, within) for item in part]
    return {"schema_version": SCHEMA_VERSION, "compared": len(names), "apart": [*_plain(outside), *found]}


def apart(snapshots: Sequence[Snapshot], fleet: Collection[str]) -> Iterator[Item]:
    """The resources that one of the clusters does not hold, or not in the fields that the others hold (pure)."""
    held = [items_of(one, fleet) for one in snapshots]
    for item in sorted({item for items in held for item in items}):
        first, *others = (items.get(item) for items in held)
        if first is None or not all(other is not None and same(first, other) for other in others):
            yield item


@lru_cache(maxsize=2)
def _open(request: ApartRequest) -> tuple[StoredSnapshot, ...]:
    """All snapshots; kept, so that a process proves each table once and not for every batch."""
    return tuple(StoredSnapshot.open(Artefacts(UPath(one.uri).parent), one) for one in request.snapshots)


def _plain(items: Iterator[Item] | Sequence[Item]) -> Json:
    return [[kind.value, name] for kind, name in items]
