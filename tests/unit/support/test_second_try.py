"""The second try of failed tests: what it prints, keeps and returns, with workers as `make test` has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.second_try import FOLDER, MOST

REPOSITORY = Path(__file__).parents[3]
PASSES = "def test_passes():\n    pass\n"
FAILS_ONCE = """
from pathlib import Path

def test_fails_once():
    first = Path(__file__).with_suffix(".tried")
    if not first.exists():
        first.touch()
        print("the broker said no")
        assert 1 == 2
"""
FAILS_TWICE = "def test_fails_twice():\n    assert 1 == 3\n"
CRASHES_ONCE = FAILS_ONCE.replace("assert 1 == 2", "import os; os._exit(1)")
NEEDS_NO_WORKER = "import os\n\n\ndef test_worker():\n    assert 'PYTEST_XDIST_WORKER' not in os.environ\n"


def run(folder: Path, *arguments: str, **modules: str) -> subprocess.CompletedProcess[str]:
    """Run these test modules in two workers."""
    for name, text in modules.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "tests.support.second_try", "-n", "2", "--dist", "loadfile", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(REPOSITORY)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def kept(folder: Path) -> list[str]:
    return [path.read_text() for path in (folder / FOLDER).glob("*.txt")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mixed")


@pytest.fixture(scope="module")
def mixed(folder: Path) -> subprocess.CompletedProcess[str]:
    """A run with tests of every kind."""
    modules = {"passes": PASSES, "once": FAILS_ONCE, "twice": FAILS_TWICE, "crash": CRASHES_ONCE}
    return run(folder, **modules, worker=NEEDS_NO_WORKER)


def test_what_fails_twice_fails_the_run(mixed: subprocess.CompletedProcess[str]) -> None:
    assert mixed.returncode == 1, mixed.stdout
    assert "test_fails_twice" not in mixed.stdout.split("UNSTABLE")[1]


def test_what_fails_once_is_printed_last_and_kept(mixed: subprocess.CompletedProcess[str], folder: Path) -> None:
    last = mixed.stdout.split("UNSTABLE")[1]
    assert "test_once.py::test_fails_once\n" in last
    assert "assert 1 == 2" in last
    (text,) = [text for text in kept(folder) if "test_once.py" in text]
    assert "assert 1 == 2" in text
    assert "the broker said no" in text


def test_the_second_try_has_no_workers(mixed: subprocess.CompletedProcess[str]) -> None:
    assert "test_worker.py::test_worker\n" in mixed.stdout.split("UNSTABLE")[1]


def test_a_test_that_ended_its_worker_is_tried_again(mixed: subprocess.CompletedProcess[str]) -> None:
    last = mixed.stdout.split("UNSTABLE")[1]
    assert "test_crash.py::test_fails_once\n" in last
    assert "crashed while running" in last


def test_a_second_run_has_no_failures_of_the_first(mixed: subprocess.CompletedProcess[str], folder: Path) -> None:
    before = kept(folder)
    ended = run(folder, "--ignore", "test_twice.py")
    assert ended.returncode == 0, ended.stdout
    assert "UNSTABLE: 1 " in ended.stdout
    ended = run(folder, "--ignore", "test_twice.py", "--ignore", "test_worker.py")
    assert ended.returncode == 0, ended.stdout
    assert "second try" not in ended.stdout
    assert len(kept(folder)) == len(before) + 1


def test_a_module_that_cannot_be_collected_fails_the_run(tmp_path: Path) -> None:
    assert run(tmp_path, broken="import nothing_like_it\n", passes=PASSES).returncode not in (0, 5)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_many_failures_end_the_run_with_their_reason(tmp_path: Path, workers: str) -> None:
    """A full disk fails all tests on clusters, each after a minute."""
    fails = "".join(f"def test_disk_{number}():\n    assert 1 == 2\n\n\n" for number in range(MOST + 60))
    ended = run(tmp_path, "-n", workers, *(["--dist", "no"] if workers == "0" else []), disk=fails)
    assert ended.returncode not in (0, 5), ended.stdout
    assert "assert 1 == 2" in ended.stdout
    assert f"stopping after {MOST} failures" in ended.stdout
    assert "second try" not in ended.stdout
