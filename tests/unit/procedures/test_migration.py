"""The change windows of a migration, the run of its next wave, and when it can be undone; without a cluster."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.approval import APPROVED, REJECTED, store_approval
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import MOVES, WAVES
from pulsar_fleet.migration.model import Moves, Phase, Strategy
from pulsar_fleet.migration.prepare import lease
from pulsar_fleet.migration.procedure import Migration
from pulsar_fleet.migration.waves.planner import Limits, Member, plan_waves
from pulsar_fleet.procedures import failback, migration, runner
from pulsar_fleet.procedures.failback import FAILBACK
from pulsar_fleet.procedures.migration import MIGRATION
from pulsar_fleet.procedures.procedure import NextRun, NotYet, Said, Session, Skipped
from pulsar_fleet.procedures.runner import may_have_changed

NOW = datetime(2026, 3, 2, 21, 0, tzinfo=UTC)
CONF = {"blue": "b", "green": "g", "namespaces": ["acme/orders"], "change_windows": [], "freeze_windows": []}

SIDES = {name: (ClusterConnection(name=name, admin_url="http://127.0.0.1:9"),) for name in ("blue", "green")}


@pytest.fixture
def run(records: object) -> Run:
    """A run of a migration that has begun."""
    run = Run.open("migrate_namespaces/1")
    run.ledger.start_run(run.id, MIGRATION.name, CONF)
    return run


@pytest.fixture
def renewed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Renewals of the lease; the time is `NOW`."""
    renewals: list[bool] = []

    async def keep_lease(_: Migration) -> None:
        renewals.append(True)

    monkeypatch.setattr(Migration, "keep_lease", keep_lease)
    monkeypatch.setattr(migration, "datetime", SimpleNamespace(now=lambda zone: NOW.astimezone(zone)))
    return renewals


def look(run: Run, window: str) -> Said:
    """Look once whether this change window is open."""
    session = Session({**CONF, "change_windows": [window]}, run, {}, SIDES)
    return asyncio.run(migration.wait_for_window(session))


def test_inside_a_change_window_a_wave_goes_on(run: Run, renewed: list[bool]) -> None:
    assert look(run, "daily 21:00-22:00") == "This wave may be cut over now."
    assert renewed == []


@pytest.mark.parametrize(
    ("window", "again"),
    [("daily 21:01-22:00", timedelta(minutes=1)), ("daily 23:00-24:00", timedelta(minutes=2))],
    ids=["opens soon", "opens after the lease"],
)
def test_outside_a_change_window_a_wave_looks_again_when_it_opens(
    run: Run, window: str, again: timedelta, renewed: list[bool]
) -> None:
    said = look(run, window)
    assert isinstance(said, NotYet)
    assert (said.seconds, renewed) == (again.total_seconds(), [True])


def test_a_wave_whose_change_window_never_opens_fails(run: Run, renewed: list[bool]) -> None:
    with pytest.raises(PreconditionFailed, match="correct 'change_windows'"):
        look(run, "2026-01-01T00:00/2026-01-02T00:00")


def following(run: Run, **conf: Any) -> NextRun | Skipped | None:
    return runner.following(MIGRATION, run, {**CONF, "next_waves": True, **conf})


def test_after_a_wave_the_next_one_of_the_same_plan_follows(run: Run) -> None:
    members = [
        Member(namespace=NamespaceName("acme", name), strategy=Strategy.REDIRECT, reason="it drains")
        for name in ("a", "b")
    ]
    run.artefacts.write_json(run.id, WAVES, plan_waves(members, Limits(namespaces=1)).to_json())
    # What nobody approved, and what has changed nothing, is followed by no wave.
    assert isinstance(following(run), Skipped)
    store_approval(run, "wave 1", REJECTED, by="ops", at="")
    assert isinstance(following(run), Skipped)
    store_approval(run, "wave 1", APPROVED, by="ops", at="")
    assert isinstance(following(run, dry_run=True), Skipped)
    follows = following(run)
    assert isinstance(follows, NextRun)
    assert (follows.id, follows.settings) == (f"{run.id}__wave-2", {"continues": run.id, "wave": 2})
    off = following(run, next_waves=False)
    assert isinstance(off, Skipped)
    assert f"--continues {run.id} --wave 2" in off.reason
    second = Run.open(f"{run.id}__wave-2")
    store_approval(second, "wave 2", APPROVED, by="ops", at="")
    assert following(second, continues=run.id, wave=2) is None


@pytest.mark.parametrize(
    ("phases", "commands"),
    [
        ((), ()),
        ((Phase.CHECKED, Phase.PREPARED), ("pulsar-fleet abort migrate_namespaces/1",)),
        ((Phase.PREPARED, Phase.QUIESCED), ("pulsar-fleet abort migrate_namespaces/1",)),
        ((Phase.QUIESCED, Phase.CUT_OVER), ()),
    ],
    ids=["nothing", "prepared", "quiesced", "cut over"],
)
def test_a_run_can_be_aborted_until_a_topic_is_terminated(
    run: Run, phases: tuple[Phase, ...], commands: tuple[str, ...]
) -> None:
    for phase in phases:
        run.ledger.enter_phase(run.id, "acme/orders", phase)
    assert migration.end_migration(run, CONF, {"cut_over": "no answer"}).undo == commands


class Named:
    """A cluster that says its name, or does not answer."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def cluster_name(self) -> str:
        if not self._name:
            raise Unavailable("it does not answer")
        return self._name


def session_of(run: Run, blue: str, green: str) -> Session:
    """The session of a run whose connections lead to these clusters; an empty name does not answer."""
    clusters: Any = {"blue": Named(blue), "green": Named(green)}
    return Session(CONF, run, clusters, SIDES)


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were restored, of which no other process has the lease."""
    done: list[str] = []

    async def restore(migration: Migration) -> tuple[str, ...]:
        done.append(migration.run.id)
        return ("publishRate of acme/orders",)

    async def require_own(*_: object) -> None:
        return None

    monkeypatch.setattr(Migration, "restore", restore)
    monkeypatch.setattr(lease, "require_own", require_own)
    return done


@pytest.mark.parametrize("stored", [True, False], ids=["names", "moves of an earlier release"])
def test_a_run_is_restored_on_its_own_clusters_also_if_one_is_down(run: Run, restored: list[str], stored: bool) -> None:
    assert isinstance(asyncio.run(migration.restore(session_of(run, "", ""))), Skipped)
    if stored:
        asyncio.run(migration.require_clusters(session_of(run, "blue", "green")))
    else:
        run.artefacts.write_json(run.id, MOVES, Moves("blue", "green", ()).to_json())
    run.ledger.enter_phase(run.id, "acme/orders", Phase.FROZEN)
    for blue, green in (("green", "blue"), ("blue", "other"), ("other", "")):
        with pytest.raises(PreconditionFailed, match=r"leads to .* now; nothing was sent"):
            asyncio.run(migration.restore(session_of(run, blue, green)))
    assert restored == []
    for green in ("green", ""):
        assert "1 change" in str(asyncio.run(migration.restore(session_of(run, "blue", green))))
    assert restored == [run.id] * 2


def test_a_failback_that_gave_up_a_part_is_not_resumed(records: object, restored: list[str]) -> None:
    run = Run.open("cli/fail-back-1")
    run.ledger.start_run(run.id, FAILBACK.name, CONF)
    for name, phases in {"acme/a": (Phase.QUIESCED, Phase.CUT_OVER), "acme/b": (Phase.FROZEN, Phase.ABORTED)}.items():
        for phase in phases:
            run.ledger.enter_phase(run.id, name, phase)
    with pytest.raises(PreconditionFailed, match="Start another failback of these only"):
        asyncio.run(failback.require_failback(session_of(run, "blue", "green")))
    assert (
        "Start another failback of acme/b only" in failback.end_failback(run, CONF, {"cut_over": "interrupted"}).instead
    )


def test_a_run_whose_gates_passed_has_changed_nothing(run: Run) -> None:
    run.ledger.enter_phase(run.id, "acme/orders", Phase.CHECKED)
    assert not may_have_changed(run)
    run.ledger.enter_phase(run.id, "acme/orders", Phase.PREPARED)
    assert may_have_changed(run)
