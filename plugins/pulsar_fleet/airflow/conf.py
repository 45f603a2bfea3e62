"""Validate and read the configuration of a DAG run. Airflow itself ignores unknown keys without a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pulsar_fleet.airflow.hooks.pulsar import cluster_connection
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.model import Moves, Strategy
    from pulsar_fleet.migration.preflight.view import Expectations
    from pulsar_fleet.migration.preflight.waivers import Waiver
    from pulsar_fleet.migration.prepare.original_settings import OriginalSettings


def refuse_unknown_settings(conf: Mapping[str, Json] | None, settings: Iterable[str]) -> None:
    """Refuse a configuration key that the DAG does not define, and propose the closest setting.

    :param settings: the DAG's own params. The params of the task's context contain the unknown keys too.
    """
    names = sorted(settings)
    for key in conf or {}:
        if key not in names:
            similar = difflib.get_close_matches(key, names, n=1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"the settings are {', '.join(names)}."
            raise InvalidRequest(f"Unknown setting {key!r} in the run's configuration; {hint}")


def parse_namespaces(texts: Sequence[str]) -> tuple[NamespaceName, ...]:
    """The namespaces of a configuration, in order and without duplicates; an invalid name raises `InvalidRequest`."""
    if not texts:
        raise InvalidRequest(
            "The run's configuration names no namespace: set 'namespaces', for example [\"acme/orders\"]."
        )
    return tuple(dict.fromkeys(NamespaceName.parse(text) for text in texts))


def refuse_same_cluster(source: str, target: str, names: tuple[str, str]) -> None:
    """Refuse two connections to the same cluster (equal cluster names)."""
    if names[0] == names[1]:
        raise InvalidRequest(
            f"Connections {source!r} and {target!r} both lead to cluster {names[0]!r}; name two different clusters."
        )


def clusters_of(params: dict[str, Any]) -> list[ClusterConnection]:
    """All clusters of the form."""
    return [cluster_connection(name) for name in params["clusters"]]


def sides_of(params: dict[str, Any]) -> Sides:
    """Blue and green of the form."""
    from pulsar_fleet.migration.clusters import Sides

    return Sides(cluster_connection(params["blue"]), cluster_connection(params["green"]))


def strategy_of(params: dict[str, Any]) -> Strategy | None:
    """The strategy of the form; None for `auto`."""
    from pulsar_fleet.migration.model import Strategy

    return None if params["strategy"] == "auto" else Strategy(params["strategy"])


def expectations_of(params: dict[str, Any], *, is_failback: bool = False) -> Expectations:
    """The settings that the gates depend on; `is_failback`: the run is a failback from green to blue."""
    from pulsar_fleet.migration.preflight.view import Expectations

    return Expectations(drain_minutes=params["drain_timeout_minutes"], is_failback=is_failback)


def waivers_of(params: dict[str, Any]) -> list[Waiver]:
    """The waivers of the form."""
    from pulsar_fleet.migration.preflight.waivers import Waiver

    return [Waiver.parse(waiver) for waiver in params["waivers"]]


def moves_of(reference: JsonObject) -> Moves:
    """The namespaces of the migration, read from the artefact."""
    from pulsar_fleet.ledger.artefacts import Artefacts, Reference
    from pulsar_fleet.migration.model import Moves

    return Moves.from_json(Artefacts.open().read_json(Reference.from_json(reference)))


def original_settings_of(reference: JsonObject) -> OriginalSettings:
    """The cluster's settings before the freeze, read from the artefact."""
    from pulsar_fleet.ledger.artefacts import Artefacts, Reference
    from pulsar_fleet.migration.prepare.original_settings import OriginalSettings

    return OriginalSettings.from_json(Artefacts.open().read_json(Reference.from_json(reference)))


async def require_two_clusters(source: str, target: str, namespaces: Sequence[NamespaceName]) -> JsonObject:
    """Read the names of both clusters; refuse two connections to one cluster, and namespaces missing on the source."""
    connections = cluster_connection(source), cluster_connection(target)
    async with AdminClient(connections[0]) as source_admin, AdminClient(connections[1]) as target_admin:
        names = (await source_admin.cluster_name(), await target_admin.cluster_name())
        refuse_same_cluster(source, target, names)
        for namespace in namespaces:
            if await source_admin.namespace(namespace) is None:
                raise NotFound(await _no_such_namespace(source_admin, namespace, names[0]))
    return {"source": names[0], "target": names[1]}


async def _no_such_namespace(admin: AdminClient, namespace: NamespaceName, cluster: str) -> str:
    if await admin.tenant(namespace.tenant) is None:
        existing = ", ".join(await admin.tenants())
        return f"Namespace {str(namespace)!r} does not exist on {cluster}. The tenants of {cluster} are: {existing}."
    existing = ", ".join(str(name) for name in await admin.namespaces(namespace.tenant)) or "none"
    return (
        f"Namespace {str(namespace)!r} does not exist on {cluster}. Tenant {namespace.tenant!r} contains: {existing}."
    )
