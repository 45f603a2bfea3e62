"""The kind of a test is what it owns; what it may change follows from it.

`unit` owns nothing. `namespace` owns namespaces of its own names on the clusters of its worker, and changes nothing
else there. `cluster` also changes what others see of these clusters, such as a redirect, and takes it back. `fleet`
starts clusters, a scheduler or a Spark cluster of its own. CONTRIBUTING.md says how to choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_sandbox import Sandbox
from pulsar_sandbox.sandbox.clusters import Cluster

KINDS = ("unit", "namespace", "cluster", "fleet")
AREAS = (
    "migration",
    "policy_sync",
    "verification",
    "onboarding",
    "fleets",
    "replication",
    "read_only",
    "sandbox",
    "pairs",
    "airflow",
)
AREA_OF_FOLDER = {
    **{area: area for area in AREAS},
    **dict.fromkeys(("planning", "snapshot", "preflight", "cluster", "cli", "airflow"), "onboarding"),
    "messages": "verification",
}
_TESTS = Path(__file__).parents[1]
_CHANGES_A_CLUSTER = re.compile(r"/admin/v2/(?:clusters/[^/]+|brokers|resource-quotas)/(?!.*pulsar-fleet-probe-)")
"""Not: what makes clusters known to each other, which others may have done; a probe, which names what is not there."""
_SHARED = frozenset({"clusters", "alone", "secured"})
_SHARING = {
    "alone": ("tests/contract/read_only/",),
    "secured": (
        "tests/contract/cluster/test_admin.py",
        "tests/contract/migration/test_gates.py",
        "tests/contract/preflight/test_bookies.py",
    ),
}
_OWN = "start_clusters"
StartClusters = Callable[..., Sandbox]
"""`Sandbox.start`, as the fixture `start_clusters` gives it to the fixtures and tests that start clusters."""


def kind_of(item: pytest.Item) -> str:
    """The kind that a test says, or else the one that follows from its fixtures; a benchmark owns what it starts."""
    said = [marker.name for marker in item.iter_markers() if marker.name in KINDS]
    if said:
        return said[0]  # The closest one: that of the function before that of the module.
    fixtures: list[str] = item.fixturenames  # type: ignore[attr-defined]
    if _OWN in fixtures or "bench" in item.path.parts:
        return "fleet"
    if _SHARED.intersection(fixtures):
        return "namespace"
    return "unit"


def area_of(item: pytest.Item) -> str | None:
    """The part of the product whose long tests a test belongs to."""
    said = [marker.name for marker in item.iter_markers() if marker.name in AREAS]
    folders = item.path.relative_to(_TESTS).parts
    return said[0] if said else AREA_OF_FOLDER.get(folders[1]) if folders[0] == "contract" else None


class FilesThatShare(LoadFileScheduling):  # type: ignore[misc]
    """A file runs in one worker, and so do all files that share a cluster besides blue and green."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (cluster for cluster, files in _SHARING.items() if nodeid.startswith(files))
        return next(shared, nodeid.partition("::")[0])


class Kinds:
    """Marks each test with its kind, a long one also with its area, and refuses what the kind does not own."""

    def __init__(self) -> None:
        self.kind = ""
        self.started: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A long test without an area ends the collection."""
        problems = []
        for item in items:
            kind, area = kind_of(item), area_of(item)
            if kind not in {marker.name for marker in item.iter_markers()}:
                item.add_marker(kind)
            if item.get_closest_marker("long") and area is None and "browser" not in item.path.parts:
                problems.append(f"{item.nodeid} has no area: mark it as one of {', '.join(AREAS)}")
            elif area is not None:
                item.add_marker(area)
        if problems:
            raise pytest.UsageError("\n".join(problems))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Judge calls by the kind of this test until the next; a long test may change clusters."""
        self.kind = "" if item.get_closest_marker("long") else kind_of(item)

    def allow(self, what: str, *kinds: str) -> None:
        """Refuse what a test of this kind does not own."""
        if self.kind and self.kind not in kinds:
            pytest.fail(f"A {self.kind} test may not {what}: mark it {' or '.join(kinds)}.")

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Judge every admin call of this process, and every start and stop of a cluster."""
        start, call = Sandbox.start.__func__, BrokerHttp.call  # type: ignore[attr-defined]

        def start_watched(cls: type[Sandbox], folder: Path | str, **options: Any) -> Sandbox:
            self.allow(f"start clusters in {folder}", "fleet")
            sandbox: Sandbox = start(cls, folder, **options)
            self.started += [cluster.name for cluster in sandbox]
            return sandbox

        async def call_watched(http: BrokerHttp, method: str, path: str, **options: Any) -> Any:
            if method != "GET" and _CHANGES_A_CLUSTER.match(path):
                self.allow(f"change a cluster by {method} {path}", "cluster", "fleet")
            return await call(http, method, path, **options)

        patch.setattr(Sandbox, "start", classmethod(start_watched))
        patch.setattr(BrokerHttp, "call", call_watched)
        for name in ("kill", "restart", "upgrade"):
            patch.setattr(Cluster, name, self._watched(getattr(Cluster, name), name))

    def start_shared(self, folder: Path, **options: Any) -> Sandbox:
        """Start what belongs to the worker and not to the test that happens to be the first to use it."""
        kind, self.kind = self.kind, ""
        try:
            return Sandbox.start(folder, **options)
        finally:
            self.kind = kind

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker tells how many clusters it started."""
        if output := getattr(session.config, "workeroutput", None):
            output["clusters"] = self.started

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> FilesThatShare | None:
        """With `--dist loadfile`."""
        return FilesThatShare(config, log) if config.getoption("dist") == "loadfile" else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """The clusters of all workers are counted where they are reported."""
        self.started += getattr(node, "workeroutput", {}).get("clusters", ())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Clusters are what a run of the tests costs."""
        if self.started:
            terminalreporter.write_line(f"started clusters: {len(self.started)} ({', '.join(self.started)})")

    def _watched(self, method: Any, name: str) -> Any:
        def watched(cluster: Cluster, *arguments: Any, **options: Any) -> Any:
            self.allow(f"{name} a broker", "cluster", "fleet")
            return method(cluster, *arguments, **options)

        return watched
