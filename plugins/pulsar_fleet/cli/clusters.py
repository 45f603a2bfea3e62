"""How a cluster is named on the command line: by its admin URL or by an Airflow connection's id; no secret is taken."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pulsar_fleet.cli.terminal import Usage
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PermissionDenied, PreconditionFailed
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.credentials import (
    Side,
    connection_from_environment,
    named_connection,
    service_url_from_environment,
)
from pulsar_fleet.onboarding.steps import take_snapshot
from pulsar_fleet.snapshot.model import Snapshot
from pulsar_fleet.snapshot.store.reader import load_snapshot

if TYPE_CHECKING:
    from upath import UPath


_PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Reached:
    """A cluster that answered, with the name that it gave itself."""

    name: str
    connection: ClusterConnection


def named_cluster(text: str, side: Side, environment: Mapping[str, str] = os.environ) -> ClusterConnection:
    """The connection that an argument names; one that cannot be meant is `Usage`, and nothing was asked.

    :param side: whose credentials in the environment belong to a cluster that is named by its URL.
    """
    try:
        return _by_url(text, side, environment) if "://" in text else _by_id(text, environment)
    except InvalidRequest as error:
        raise error if isinstance(error, Usage) else Usage(str(error)) from error


def _by_id(text: str, environment: Mapping[str, str]) -> ClusterConnection:
    if ":" in text or "." in text:
        raise Usage(f"{text!r} is no cluster: write its admin URL, http://host:port, or an Airflow connection's id.")
    return named_connection(text, environment)


def _by_url(text: str, side: Side, environment: Mapping[str, str]) -> ClusterConnection:
    try:
        parts = urlsplit(text)
        place = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    except ValueError as error:
        raise Usage("A cluster's URL has an unusable host or port: write it as http://host:port.") from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        # The text may hold a secret, so it is not repeated.
        raise Usage(
            f"The URL of a cluster is http://host:port and nothing more, since others can read the command line. "
            f"Credentials go into the environment: PULSAR_FLEET_{side.upper()}_TOKEN_FILE or …_TOKEN_SECRET."
        )
    service_url = service_url_from_environment(side, environment)
    return connection_from_environment(
        side, name=place, admin_url=text, service_url=service_url, environment=environment
    )


def parse_selection(texts: Iterable[str]) -> Selection:
    """Read `--select`; a wrong name is `Usage`."""
    try:
        return Selection.parse(texts)
    except InvalidRequest as error:
        raise Usage(str(error)) from error


async def reach(connection: ClusterConnection) -> Reached:
    """Ask the cluster for its name, and for its broker service URL where we were not given one."""
    async with AdminClient(connection, retry_seconds=_PROBE_SECONDS) as admin:
        name = await admin.cluster_name()
        if connection.service_url:
            return Reached(name, connection)
        try:
            data = await admin.cluster_data(name) or {}
        except PermissionDenied:
            # Only reading topic policies needs it, and says so when it is missing.
            data = {}
    key = "brokerServiceUrlTls" if connection.admin_url.startswith("https") else "brokerServiceUrl"
    return Reached(name, replace(connection, service_url=data.get(key) or None))


async def reach_two(source: ClusterConnection, target: ClusterConnection) -> tuple[Reached, Reached]:
    """Both clusters; `Usage` if they are one and the same."""
    first, second = await asyncio.gather(reach(source), reach(target))
    if first.name == second.name:
        raise Usage(f"{source.name!r} and {target.name!r} both lead to cluster {first.name!r}: give two clusters.")
    return first, second


def require_cluster(reached: Reached, name: str, what: str) -> None:
    """Refuse a cluster that is not the one which `what` is about."""
    if reached.name != name:
        raise PreconditionFailed(
            f"{what} is about {name!r}, but {reached.connection.name!r} leads to {reached.name!r}; nothing was sent.",
            cluster=reached.name,
        )


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
