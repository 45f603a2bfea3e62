"""One side of `diff`: a cluster that is read now, or a snapshot that was stored."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_fleet.cli.clusters import named_cluster, parse_selection, reach
from pulsar_fleet.cli.console import Usage
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.states import Snapshot
from pulsar_fleet.onboarding.steps import take_snapshot
from pulsar_fleet.reading.environment import Side
from pulsar_fleet.records.artefacts import Reference
from pulsar_fleet.records.run import Run
from pulsar_fleet.records.snapshots import load_snapshot

if TYPE_CHECKING:
    from upath import UPath

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Stored:
    """A snapshot in its files."""

    reference: Reference


def named_side(text: str, side: Side) -> ClusterConnection | Stored:
    """What an argument of `diff` names: a manifest, a folder with one, or a cluster; else `Usage`."""
    if text.startswith(("http://", "https://")) or not ("://" in text or text.endswith(".json") or Path(text).exists()):
        return named_cluster(text, side)
    path = _manifest(text)
    try:
        content = path.read_bytes()
    except (OSError, ImportError, ValueError) as error:
        raise Usage(f"{text!r} is no stored snapshot: give its {MANIFEST}, or the folder that holds it.") from error
    return Stored(Reference(str(path), hashlib.sha256(content).hexdigest(), len(content)))


async def read_two(
    sides: tuple[ClusterConnection | Stored, ClusterConnection | Stored], selection: Selection | None, run: Run
) -> tuple[Snapshot, Snapshot]:
    """Both as snapshots; a cluster beside a stored snapshot is read by the selection of that one.

    :param selection: None takes that of the stored snapshots; stored snapshots of another one are `Usage`.
    """
    stored = [load_snapshot(run.artefacts, one.reference) for one in sides if isinstance(one, Stored)]
    chosen = sorted({one.selection for one in stored} | ({selection.texts()} if selection else set()))
    if len(chosen) > 1:
        listed = " and ".join(", ".join(texts) or "everything" for texts in chosen)
        raise Usage(f"Snapshots of different selections cannot be compared: {listed}. Take them with one --select.")
    wanted = parse_selection(chosen[0] if chosen else ())
    waiting = iter(stored)
    reads = (
        _read(one, wanted, run, name) if isinstance(one, ClusterConnection) else _loaded(next(waiting))
        for one, name in zip(sides, ("first", "second"), strict=True)
    )
    first, second = await asyncio.gather(*reads)
    return first, second


async def _read(connection: ClusterConnection, selection: Selection, run: Run, name: str) -> Snapshot:
    reached = await reach(connection)
    found = await take_snapshot(reached.connection, selection, run.artefacts, run.id, name=name)
    return load_snapshot(run.artefacts, Reference.from_json(found["reference"]))


async def _loaded(snapshot: Snapshot) -> Snapshot:
    return snapshot


def _manifest(text: str) -> UPath:
    from upath import UPath

    path = UPath(text if "://" in text else str(Path(text).absolute()))
    return path if path.name.endswith(".json") else path / MANIFEST
