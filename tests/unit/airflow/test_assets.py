"""Events of copied namespaces: one for each, or one for all of a large run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.airflow import assets
from pulsar_fleet.airflow.assets import COPIED, emit_copied
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.verification.snapshots.compare import EqualityResult

RUN: Any = SimpleNamespace(id="onboard_cluster/1")
RESULT = EqualityResult(
    snapshot=Reference(uri="file:///snapshot.json", sha256="0" * 64, size=2),
    equal=True,
    compared={"topics": 3, "namespaces": 2},
    differences=0,
    text="",
    unread=("acme/a: policies",),
)


class Snapshot:
    """Two namespaces, of which the second has no topic."""

    head = SimpleNamespace(cluster="blue")
    counts = {"topics": 3, "subscriptions": 4}  # noqa: RUF012

    def namespaces(self) -> tuple[str, ...]:
        return ("acme/a", "acme/b")

    def rows_by_namespace(self, table: str) -> dict[str, int]:
        return {"topics": {"acme/a": 3}, "subscriptions": {"acme/a": 4}}.get(table, {})


def emitted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Name of the asset → the extra of its event."""
    events: dict[str, Any] = {}
    alias = SimpleNamespace(add=lambda asset, extra: events.update({asset.name: extra}))
    monkeypatch.setattr(assets, "get_current_context", lambda: {"outlet_events": {COPIED: alias}})
    source: Any = Snapshot()
    emit_copied(RUN, source, "green", RESULT)
    return events


def test_a_copied_namespace_has_its_counts_and_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    events = emitted(monkeypatch)
    assert {name: extra["topics"] for name, extra in events.items()} == {
        "pulsar-copied/blue/green/acme/a": 3,
        "pulsar-copied/blue/green/acme/b": 0,
    }
    proof = events["pulsar-copied/blue/green/acme/a"]["proofs"]["snapshot"]
    assert (proof["verdict"], proof["number"], proof["unread"]) == ("equal", 5, ["acme/a: policies"])


def test_a_run_of_many_namespaces_has_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "MOST_NAMESPACES", 1)
    ((name, extra),) = emitted(monkeypatch).items()
    assert (name, extra["namespaces"], extra["subscriptions"]) == ("pulsar-copied/blue/green", 2, 4)
