"""The supported lines of Airflow, each in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_UV = Path(sys.executable).parent / "uv"
_PARTS = ("plugins", "dags", "spark_jobs", "pyproject.toml", "README.md", "LICENSE", "NOTICE")


@dataclass(frozen=True)
class Line:
    """A line of Airflow.

    :param release: its newest one.
    :param day: the packages that it is installed with are the newest ones of this day, the one after its release:
        its constraints are such a set.
    """

    release: str
    day: str

    def install(self, environment: Path, *packages: str, no_deps: bool = False, python: str = sys.executable) -> Path:
        """An environment with this Airflow and more packages; one that is there with the same is kept.

        :param packages: they may replace what came with Airflow, but not Airflow itself.
        :param no_deps: without what these packages require.
        :returns: the folder of its programs.
        """
        programs, written = environment / "bin", environment / "installed.txt"
        said = "\n".join([self.release, self.day, python, *packages])
        if written.exists() and written.read_text() == said:
            return programs
        shutil.rmtree(environment, ignore_errors=True)
        _uv("venv", "--seed", "--python", python, str(environment))
        airflow = f"apache-airflow=={self.release}"
        pip = ("pip", "install", "--python", str(programs / "python"), airflow)
        _uv(*pip, "--exclude-newer", self.day)
        _uv(*pip, *packages, *(["--no-deps"] if no_deps else []))
        written.write_text(said)
        return programs


LINES = {
    "3.1": Line("3.1.8", "2026-03-13"),
    "3.2": Line("3.2.2", "2026-05-31"),
    "3.3": Line("3.3.2", "2026-09-19"),
}


PYTHONS = ("3.12", "3.13")
"""Besides the one that runs the tests: with the newest line, where the machine has them."""


def find_python(version: str) -> str:
    """The path of a Python of this machine; the test is skipped where it has none."""
    find = [str(_UV), "-q", "python", "find", "--no-python-downloads", version]
    done = subprocess.run(find, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no Python {version} on the PATH")
    return done.stdout.strip()


def providers() -> list[str]:
    """The providers that the package requires, with their bounds."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    return [package for package in every if package.startswith("apache-airflow-providers-")]


def copy_source(folder: Path) -> Path:
    """What the package is built of, in another folder: a build in the repository would leave its files there."""
    folder.mkdir(parents=True)
    for name in _PARTS:
        subprocess.run(["cp", "-r", str(REPOSITORY / name), str(folder)], check=True)
    return folder


def _uv(*words: str) -> None:
    done = subprocess.run([str(_UV), "-q", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
