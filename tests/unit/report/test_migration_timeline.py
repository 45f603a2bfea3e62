"""The picture of a migration."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pulsar_fleet.ledger.rows import RecordedPhase
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.model import Phase
from pulsar_fleet.report.document import Outcome, Report
from pulsar_fleet.report.migration import store_migration_report
from pulsar_fleet.report.migration_timeline import MOST, migration_picture
from pulsar_fleet.report.page import html_page

BEGAN = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def phases(count: int, names: int = 1) -> list[RecordedPhase]:
    return [
        RecordedPhase(
            namespace=f"acme/n{name}", phase=phase.value, detail=None, at=BEGAN + timedelta(seconds=10 * step)
        )
        for name in range(names)
        for step, phase in enumerate(list(Phase)[:count])
    ]


def texts(picture: bytes) -> set[str]:
    return {element.text or "" for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")}


def test_phases_and_backlogs_are_drawn_with_their_names() -> None:
    began = BEGAN.timestamp()
    picture = migration_picture(phases(12), {"acme/n0": [(began + 50, 400), (began + 60, 100), (began + 70, 0)]})
    assert picture is not None
    assert {"acme/n0", "quiesced", "drained", "entries left to drain", "400"} <= texts(picture)
    assert picture == migration_picture(
        phases(12), {"acme/n0": [(began + 50, 400), (began + 60, 100), (began + 70, 0)]}
    )


def test_without_matplotlib_a_sentence_stands_in_place_of_the_picture(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.open("migrate_namespaces/1")
    for phase in list(Phase)[:3]:
        run.ledger.enter_phase(run.id, "acme/n0", phase.value)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    report = store_migration_report(run, {})
    assert migration_picture(phases(11), {}) is None
    assert "pip install 'pulsar-fleet[reports]'" in report.markdown()
    assert run.artefacts.find(run.id, "migration.svg") is None
    monkeypatch.undo()


def test_a_run_that_only_checked_has_no_picture() -> None:
    assert migration_picture(phases(1, names=3), {}) is None
    assert migration_picture([], {}) is None


def test_of_many_namespaces_some_are_drawn() -> None:
    picture = migration_picture(phases(3, names=MOST + 5), {})
    assert picture is not None
    assert len({text for text in texts(picture) if text.startswith("acme/")}) == MOST


def test_the_page_holds_the_picture_and_obeys_no_html_of_the_text() -> None:
    picture = migration_picture(phases(9), {})
    report = Report(outcome=Outcome.SUCCEEDED, headline="Done", body=("<script>x</script>",))
    page = html_page(report, picture=picture)
    assert ("<svg" in page, "<script>" in page) == (True, False)
