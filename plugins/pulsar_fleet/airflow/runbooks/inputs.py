"""What tasks are given, as values: the settings of the form, and what the references of a migration stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.migration.frozen import Frozen
    from pulsar_fleet.migration.moves import Moves
    from pulsar_fleet.migration.phases import Strategy
    from pulsar_fleet.migration.sides import Sides
    from pulsar_fleet.migration.surveyed import Expectations
    from pulsar_fleet.migration.waivers import Waiver


def clusters_of(params: dict[str, Any]) -> list[ClusterConnection]:
    """All clusters of the form."""
    from pulsar_fleet.airflow.connection import cluster_connection

    return [cluster_connection(name) for name in params["clusters"]]


def sides_of(params: dict[str, Any]) -> Sides:
    """Blue and green of the form."""
    from pulsar_fleet.airflow.connection import cluster_connection
    from pulsar_fleet.migration.sides import Sides

    return Sides(cluster_connection(params["blue"]), cluster_connection(params["green"]))


def strategy_of(params: dict[str, Any]) -> Strategy | None:
    """The strategy of the form; None for `auto`."""
    from pulsar_fleet.migration.phases import Strategy

    return None if params["strategy"] == "auto" else Strategy(params["strategy"])


def expected_of(params: dict[str, Any], *, returns: bool = False) -> Expectations:
    """What the gates depend on; `returns`: the run leads back from green to blue."""
    from pulsar_fleet.migration.surveyed import Expectations

    return Expectations(drain_minutes=params["drain_timeout_minutes"], returns=returns)


def waivers_of(params: dict[str, Any]) -> list[Waiver]:
    """The waivers of the form."""
    from pulsar_fleet.migration.waivers import Waiver

    return [Waiver.parse(found) for found in params["waivers"]]


def moves_of(reference: JsonObject) -> Moves:
    """What moves, from its reference."""
    from pulsar_fleet.migration.moves import Moves
    from pulsar_fleet.records.artefacts import Artefacts, Reference

    return Moves.from_json(Artefacts.open().read_json(Reference.from_json(reference)))


def frozen_of(reference: JsonObject) -> Frozen:
    """How the cluster was before it was held still, from its reference."""
    from pulsar_fleet.migration.frozen import Frozen
    from pulsar_fleet.records.artefacts import Artefacts, Reference

    return Frozen.from_json(Artefacts.open().read_json(Reference.from_json(reference)))
