"""Clusters on the command line: an admin URL or the id of an Airflow connection, never a secret."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pulsar_fleet.cli.terminal import UsageError, usage_errors
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import (
    UNSAFE_URL,
    ClusterConnection,
    admin_url_problem,
    refuse_same_cluster,
    split_admin_url,
)
from pulsar_fleet.cluster.errors import PermissionDenied, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.redaction import without_user_info
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import listed
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
class ReachedCluster:
    """A reachable cluster, with its own name."""

    name: str
    connection: ClusterConnection


def named_cluster(text: str, side: Side, environment: Mapping[str, str] = os.environ) -> ClusterConnection:
    """The connection of an argument; an invalid argument raises `UsageError` before any call.

    :param side: the side whose credentials in the environment belong to a cluster that is given by its URL.
    """
    with usage_errors():
        return _by_url(text, side, environment) if "://" in text else _by_id(text, environment)


def _by_id(text: str, environment: Mapping[str, str]) -> ClusterConnection:
    if ":" in text or "." in text:
        raise UsageError(f"{text!r} is not a cluster: use an admin URL, http://host:port, or an Airflow connection id.")
    return named_connection(text, environment)


def _by_url(text: str, side: Side, environment: Mapping[str, str]) -> ClusterConnection:
    if problem := next(filter(None, map(admin_url_problem, split_admin_url(text))), ""):
        variables = f"PULSAR_FLEET_{side.upper()}_TOKEN_FILE or …_TOKEN_SECRET"
        remedy = f" Put credentials into the environment: {variables}." if problem == UNSAFE_URL else ""
        raise UsageError(f"The URL of a cluster {problem}: write it as http://host:port.{remedy}")
    return connection_from_environment(
        side,
        name=urlsplit(text).netloc,
        admin_url=text,
        service_url=service_url_from_environment(side, environment),
        environment=environment,
    )


def parse_selection(texts: Iterable[str]) -> Selection:
    """Read `--select`; an invalid name raises `UsageError`."""
    with usage_errors():
        return Selection.parse(texts)


async def reach(connection: ClusterConnection) -> ReachedCluster:
    """Read the cluster's name, and its broker service URL if the connection has none."""
    async with AdminClient(connection, retry_seconds=_PROBE_SECONDS) as admin:
        name = await admin.cluster_name()
        if connection.service_url:
            return ReachedCluster(name, connection)
        try:
            data = without_user_info(await admin.cluster_data(name) or {})
        except PermissionDenied:
            # Only the reading of topic policies needs it, and reports a missing one.
            data = {}
    key = "brokerServiceUrlTls" if connection.admin_url.startswith("https") else "brokerServiceUrl"
    return ReachedCluster(name, replace(connection, service_url=data.get(key) or None))


async def reach_two(source: ClusterConnection, target: ClusterConnection) -> tuple[ReachedCluster, ReachedCluster]:
    """Both clusters; two connections to the same cluster raise `UsageError`."""
    first, second = await asyncio.gather(reach(source), reach(target))
    with usage_errors():
        refuse_same_cluster(source.name, target.name, (first.name, second.name))
    return first, second


async def reach_all(sides: Sequence[ClusterConnection]) -> list[ClusterConnection]:
    """The connections with their broker service URLs; an unreachable cluster keeps its connection unchanged."""
    return list(await asyncio.gather(*map(_reached, sides)))


async def _reached(side: ClusterConnection) -> ClusterConnection:
    try:
        return (await reach(side)).connection
    except Unavailable:
        # The run reports an unreachable cluster and continues with the others.
        return side


def require_cluster(reached: ReachedCluster, name: str, subject: str) -> None:
    """Refuse a cluster other than the cluster `name` that `subject` needs, such as "The plan 7f3a"."""
    if reached.name != name:
        raise PreconditionFailed(
            f"{subject} is for {name!r}, but {reached.connection.name!r} leads to {reached.name!r}; nothing was sent.",
            cluster=reached.name,
        )


MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot that is stored in files."""

    reference: Reference


def cluster_or_snapshot(text: str, side: Side) -> ClusterConnection | StoredSnapshot:
    """An argument of `diff`: a manifest, a folder with a manifest, or a cluster; else `UsageError`."""
    if text.startswith(("http://", "https://")) or not ("://" in text or text.endswith(".json") or Path(text).exists()):
        return named_cluster(text, side)
    path = _manifest(text)
    try:
        content = path.read_bytes()
    except (OSError, ImportError, ValueError) as error:
        raise UsageError(
            f"{text!r} is not a stored snapshot: give its {MANIFEST}, or the folder that contains it."
        ) from error
    return StoredSnapshot(Reference(str(path), hashlib.sha256(content).hexdigest(), len(content)))


async def read_two(
    sides: tuple[ClusterConnection | StoredSnapshot, ClusterConnection | StoredSnapshot],
    selection: Selection | None,
    run: Run,
) -> tuple[Snapshot, Snapshot]:
    """Both sides as snapshots; a cluster is read by the selection of the stored snapshot, if there is one.

    :param selection: None uses that of the stored snapshots; stored snapshots with another one raise `UsageError`.
    """
    stored = [load_snapshot(run.artefacts, side.reference) for side in sides if isinstance(side, StoredSnapshot)]
    chosen = sorted({side.selection for side in stored} | ({selection.texts()} if selection else set()))
    if len(chosen) > 1:
        selections = " and ".join(listed(texts) if texts else "everything" for texts in chosen)
        raise UsageError(
            f"Snapshots of different selections cannot be compared: {selections}. Take them with the same --select."
        )
    chosen_selection = parse_selection(chosen[0] if chosen else ())
    waiting = iter(stored)
    reads = (
        _read(side, chosen_selection, run, name) if isinstance(side, ClusterConnection) else _loaded(next(waiting))
        for side, name in zip(sides, ("first", "second"), strict=True)
    )
    first, second = await asyncio.gather(*reads)
    return first, second


async def _read(connection: ClusterConnection, selection: Selection, run: Run, name: str) -> Snapshot:
    reached = await reach(connection)
    snapshot = await take_snapshot(reached.connection, selection, run.artefacts, run.id, name=name)
    return load_snapshot(run.artefacts, snapshot.reference)


async def _loaded(snapshot: Snapshot) -> Snapshot:
    return snapshot


def _manifest(text: str) -> UPath:
    from upath import UPath

    path = UPath(text if "://" in text else str(Path(text).absolute()))
    return path if path.name.endswith(".json") else path / MANIFEST
