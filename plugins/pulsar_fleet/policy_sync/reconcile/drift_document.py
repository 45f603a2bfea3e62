"""The drift as a document between the task that finds it and the task that repairs it (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.reconciliation_store import MergeBase
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import ComparedResource
from pulsar_fleet.policy_sync.merge.merge_field import Decision, FieldState, Rule
from pulsar_fleet.policy_sync.merge.merge_resource import ClusterValues, MergedResource
from pulsar_fleet.policy_sync.merge.provenance import Provenance

SCHEMA_VERSION = 2


def drift_to_json(compared: Iterable[ComparedResource]) -> JsonObject:
    """As a JSON object."""
    return {"schema_version": SCHEMA_VERSION, "compared": [asdict(resource) for resource in compared]}


def drift_from_json(document: JsonObject) -> tuple[ComparedResource, ...]:
    """Read what `drift_to_json` wrote; another schema version is `InvalidRequest`."""
    if document.get("schema_version") != SCHEMA_VERSION:
        raise InvalidRequest(
            f"The drift has schema version {document.get('schema_version')!r}, this release reads {SCHEMA_VERSION}: "
            "run the reconciliation again."
        )
    return tuple(_resource(resource) for resource in document["compared"])


def _resource(document: JsonObject) -> ComparedResource:
    kind, name = document["item"]
    merged, base = document["merged"], document["base"]
    decisions = {field: _decision(decision) for field, decision in merged["decisions"].items()}
    return ComparedResource(
        item=(Resource(kind), name),
        merged=MergedResource(values=merged["values"], decisions=decisions, lost=merged["lost"]),
        sides=tuple(_side(side) for side in document["sides"]),
        base=MergeBase(**_with_tuples(base, "clusters", "gone")) if base else None,
        **{name: tuple(document[name]) for name in ("missing", "gone", "without_topic")},
    )


def _side(document: JsonObject) -> ClusterValues:
    provenance = {
        field: Provenance(**_with_tuples(entry, "replaced")) for field, entry in document["provenance"].items()
    }
    return ClusterValues(**{**document, "provenance": provenance})


def _decision(document: JsonObject) -> Decision:
    losers = tuple(FieldState(**_with_tuples(loser, "replaced")) for loser in document["losers"])
    return Decision(**{**document, "rule": Rule(document["rule"]), "losers": losers})


def _with_tuples(document: JsonObject, *names: str) -> JsonObject:
    return {**document, **{name: tuple(document[name]) for name in names}}
