"""A change leads to the long tests of what it concerns, and the table has when those were last green."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support import long_areas
from tests.support.kinds import AREAS
from tests.support.long_areas import ROOMS, concerned, read_table, record

PROCEDURES = long_areas.REPOSITORY / "plugins" / "pulsar_fleet" / "procedures"
NOW = datetime(2026, 11, 29, tzinfo=UTC)


def test_every_area_has_rooms() -> None:
    assert {*ROOMS} == {*AREAS}


def test_every_procedure_concerns_an_area() -> None:
    files = [f"plugins/pulsar_fleet/procedures/{file.name}" for file in PROCEDURES.glob("[a-z]*.py")]
    assert {file for file in files if not concerned([file])} == set()


def test_a_change_concerns_the_areas_that_import_it() -> None:
    abort, parts = "plugins/pulsar_fleet/migration/abort.py", "plugins/pulsar_fleet/cluster/text.py"
    assert {*concerned([abort])} >= {"migration", "pairs", "fleets"}
    assert {"sandbox", "read_only", "policy_sync"} & {*concerned([abort])} == set()
    assert {*concerned([parts])} >= {*AREAS} - {"pairs", "airflow"}
    assert concerned(["docs/evidence.md", "docker/Dockerfile"]) == {}


@pytest.mark.parametrize(
    ("path", "areas"),
    [
        ("dags/onboard_cluster.py", {"airflow"}),
        ("tests/contract/cli/test_migration.py", {"onboarding"}),
        ("plugins/pulsar_sandbox/sandbox/jars.py", {"sandbox"}),
        ("plugins/pulsar_fleet/airflow/run.py", {"airflow"}),
        ("plugins/pulsar_sandbox/sandbox/removed.py", {"sandbox"}),
        ("tests/dags/test_read_only_copy.py", {"read_only"}),
        ("tests/dags/test_links.py", set()),
        (
            "plugins/pulsar_fleet/ledger/migrations/versions/9999_new.py",
            {*AREAS} - {"fleets", "pairs", "airflow"},
        ),
    ],
)
def test_a_file_leads_to_its_areas(path: str, areas: set[str]) -> None:
    assert {*concerned([path])} == areas


def test_the_table_keeps_the_other_areas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_areas, "TABLE", tmp_path / "long.toml")
    record(["migration", "pairs"], 900, "abc", NOW)
    record(["pairs"], 3600, "def", NOW)
    assert read_table() == {
        "migration": {"commit": "abc", "date": "2026-11-29"},
        "pairs": {"commit": "def", "date": "2026-11-29", "seconds": 3600},
    }


def test_an_area_that_was_never_green_is_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_areas, "TABLE", tmp_path / "long.toml")
    record(["sandbox"], 1, "no-such-commit", NOW)
    assert long_areas.outdated() == {area: [] for area in AREAS}


def test_a_base_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert long_areas.main("changed", "no-such-branch") == 2
    assert "write CHANGED=1, or CHANGED=main~3" in capsys.readouterr().err
