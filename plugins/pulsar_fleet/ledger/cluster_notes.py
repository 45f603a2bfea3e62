"""The newest figures of each cluster, written by whatever procedure read it, so that a page finds them at once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import quote, unquote

from upath import UPath

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.ledger.artefacts import Artefacts

FOLDER = "fleet-clusters"
_MOST_CALLS = 16


class NoteKind(StrEnum):
    """What was read."""

    SNAPSHOT = "snapshot"
    """`versions` and `brokers`, their number; `complete`: whether everything could be read."""
    DRIFT = "drift"
    """`changes`: writes that would make it equal; `fields`: those that differ in its fleet; `unreachable`: why."""
    PROOF = "proof"
    """`equal` of `namespaces` that were compared with another cluster, and their `messages`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNote:
    """What one run read of one cluster.

    :param at: in seconds since 1970.
    """

    run_id: str
    at: float
    figures: JsonObject = field(default_factory=dict)


Notes = Mapping[str, Mapping[NoteKind, ClusterNote]]


def write_note(artefacts: Artefacts, cluster: str, kind: NoteKind, run_id: str, figures: Mapping[str, Json]) -> None:
    """Replace the note of this kind; of two runs at once the last one counts."""
    document = {"run_id": run_id, "at": time.time(), "figures": dict(figures)}
    artefacts.write_json(FOLDER, f"{quote(cluster, safe='')}/{kind}.json", document)


def read_notes(artefacts: Artefacts) -> Notes:
    """Cluster → kind → note, of every cluster that has one; nothing is created."""
    paths = list(_paths(artefacts.root / FOLDER))
    with ThreadPoolExecutor(_MOST_CALLS) as pool:
        notes: dict[str, dict[NoteKind, ClusterNote]] = {}
        for path, note in zip(paths, pool.map(_read, paths), strict=True):
            notes.setdefault(unquote(path.parent.name), {})[NoteKind(path.stem)] = note
    return notes


def _paths(folder: UPath) -> Iterator[UPath]:
    if folder.exists():
        names = {f"{kind}.json" for kind in NoteKind}
        yield from (path for path in sorted(folder.rglob("*.json"), key=str) if path.name in names)


def _read(path: UPath) -> ClusterNote:
    return ClusterNote(**json.loads(path.read_bytes()))
