"""Give tests that fail a second try, one after the other, when the rest has ended and their clusters are gone.

`python -m tests.support.second_try [pytest's options]` runs pytest. What fails twice fails the run. What passes alone
is an unstable test: it is printed last with its first failure and kept in `.state/unstable/`, and the run is green.
More than a few dozen failures are the machine's or one defect's: the first try stops there, and nothing runs twice.
As a plug-in of pytest this module collects the failures of the first try and compares the second with them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest

NAME = "tests.support.second_try"
FOLDER = Path(".state/unstable")
_FIRST = FOLDER / "first.json"
_SECOND = "--second-try"
MOST = 40
"""Failures at which the first try stops."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option that `main` uses."""
    parser.addoption(_SECOND, action="store_true", help="run what failed in the try before")


def pytest_configure(config: pytest.Config) -> None:
    """Collect failures where the reports of all workers arrive."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry(config) if config.getoption(_SECOND) else FirstTry())


class FirstTry:
    """Keeps the first failure of each test."""

    def __init__(self) -> None:
        self.failures: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what pytest prints of a failure: its traceback, and what was captured."""
        if report.failed:
            captured = "\n".join(f"--- {title} ---\n{content}" for title, content in report.sections)
            self.failures.setdefault(report.nodeid, (report.longreprtext, captured))

    def pytest_sessionfinish(self) -> None:
        """Hand the failures over to the second try, none of an earlier run among them."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        _FIRST.write_text(json.dumps(self.failures))


class SecondTry:
    """Compares what failed at first with what fails alone."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.first: dict[str, tuple[str, str]] = json.loads(_FIRST.read_text())
        self.tried, self.failed = set[str](), set[str]()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run these tests only. `--last-failed` leaves out what ended its worker and passed in the next one."""
        others = [item for item in items if item.nodeid not in self.first]
        self.config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.nodeid in self.first]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests that ran, and those that failed again."""
        self.tried.add(report.nodeid)
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_report_header(self) -> str:
        """Say why pytest begins again."""
        return f"second try: {len(self.first)} tests that failed, one after the other"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Print and keep the unstable tests, after all that pytest prints."""
        yield
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        if untried := sorted(self.first.keys() - self.tried):
            reporter.write_line(f"\nNot tried again, so they count as failed: {', '.join(untried)}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        unstable = sorted((self.first.keys() & self.tried) - self.failed)
        if unstable:
            reporter.write_line(f"\nUNSTABLE: {len(unstable)} failed at first and passed alone; kept in {FOLDER}/")
        for test in unstable:
            reporter.write_line(f"\n{test}\n{self.first[test][0]}")
            _keep(test, *self.first[test])


def _keep(test: str, failure: str, captured: str) -> None:
    now = datetime.now(UTC)
    name = re.sub(r"\W+", "-", test.rpartition("::")[2])[:100]
    (FOLDER / f"{now:%Y%m%dT%H%M%S}-{name}.txt").write_text(f"{test}\n{now:%c} UTC\n\n{failure}\n{captured}\n")


def main(options: list[str]) -> int:
    """Run pytest, and once more for the tests that failed; this process becomes the second try."""
    status = pytest.main(["-p", NAME, "--maxfail", str(MOST), *options])
    if status == pytest.ExitCode.TESTS_FAILED and len(json.loads(_FIRST.read_text())) < MOST:
        sys.stdout.flush()
        second = ["-p", NAME, *options, _SECOND, "-n", "0", "--dist", "no"]
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *second])
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
