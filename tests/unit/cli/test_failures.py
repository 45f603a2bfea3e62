"""What a shell shows when a place cannot be used: one sentence, no traceback, the documented exit state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_fleet.cli.terminal import ExitState


def fleet(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`pulsar-fleet …` in a process of its own."""
    environment = {**os.environ, "AIRFLOW_HOME": str(home), **variables}
    command = [sys.executable, "-m", "pulsar_fleet.cli", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_ledger_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_bytes(b"x" * 4096)
    done = fleet(tmp_path, "undo", "cli/apply-1", "--yes", PULSAR_FLEET_LEDGER=f"sqlite:///{file}")
    assert (done.returncode, done.stdout) == (ExitState.ERROR, "")
    assert done.stderr.startswith(f"The ledger sqlite:///{file} cannot be used: it is not a database")
    assert len(done.stderr.splitlines()) == 1


def test_a_place_that_is_read_only_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.touch()
    done = fleet(
        tmp_path,
        "plan",
        "http://127.0.0.1:1",
        "http://127.0.0.1:2",
        PULSAR_FLEET_LEDGER=f"sqlite:///file:{file}?mode=ro&uri=true",
    )
    assert done.returncode == ExitState.ERROR
    assert "cannot be used: it is read-only" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("url", ["http://a:1,", "http://blue:8080/admin/v2"])
def test_an_admin_url_that_cannot_be_used_is_one_sentence(tmp_path: Path, url: str) -> None:
    done = fleet(tmp_path, "snapshot", url)
    assert done.returncode == ExitState.USAGE
    assert "write it as http://host:port" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "write",
    ["Terminal(as_json=True).finish({}, ExitState.DONE)", "Terminal(as_json=False).say('Equal: blue and green.')"],
)
def test_a_full_disk_behind_stdout_is_one_sentence(write: str) -> None:
    script = f"import typer\nfrom pulsar_fleet.cli.terminal import ExitState, Terminal\ntyper.run(lambda: {write})"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.stderr == "The result cannot be written to stdout: No space left on device.\n"
    assert done.returncode == ExitState.ERROR
