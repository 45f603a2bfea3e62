"""Which runs an abort refuses, by their records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration import abort
from pulsar_fleet.migration.abort import later_runs, require_reversible
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Move, Moves, Phase, Strategy

NAME = NamespaceName("acme", "orders")


@pytest.mark.parametrize("phase", [Phase.PREPARED, Phase.CUT_OVER])
async def test_a_run_whose_namespace_was_moved_back_is_not_undone(
    phase: Phase, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_terminated(*_: Any) -> tuple[()]:
        return ()

    monkeypatch.setattr(abort, "unterminated_partitions", none_terminated)
    run = Run.open("cli/migrate-1")
    run.ledger.enter_phase(run.id, str(NAME), phase)
    moves = Moves("blue", "green", (Move(NAME, Strategy.REDIRECT, "", {}, {}),))
    sides = Sides(*(ClusterConnection(name=name, admin_url="http://127.0.0.1:9") for name in ("blue", "green")))
    if phase is Phase.PREPARED:
        await require_reversible(sides, run, moves)
    else:
        with pytest.raises(PreconditionFailed, match="it was moved back, or created again"):
            await require_reversible(sides, run, moves)


def test_only_a_later_run_that_moved_what_this_changed_forbids_an_abort(records: Path) -> None:
    first, later, third = Run.open("migrate_namespaces/1"), "migrate_namespaces/2", "migrate_namespaces/3"
    first.ledger.enter_phase("migrate_namespaces/0", "acme/a", "finished")
    for name, phases in {"acme/a": ("checked", "frozen"), "acme/b": ("checked",)}.items():
        for phase in phases:
            first.ledger.enter_phase(first.id, name, phase)
    for run_id, name, phase, expected in (
        (later, "acme/a", "checked", {}),
        (later, "acme/b", "frozen", {}),
        (later, "acme/a", "frozen", {"acme/a": later}),
        (later, "acme/a", "checked", {"acme/a": later}),
        (third, "acme/a", "frozen", {"acme/a": third}),
        (third, "acme/a", "aborted", {"acme/a": later}),
        # It has taken the namespace again: of two runs the one that came last is aborted first.
        (first.id, "acme/a", "replicated", {}),
        (later, "acme/a", "replicated", {"acme/a": later}),
        (later, "acme/a", "aborted", {}),
        (later, "acme/a", "checked", {}),
    ):
        first.ledger.enter_phase(run_id, name, phase)
        assert later_runs(first) == expected
