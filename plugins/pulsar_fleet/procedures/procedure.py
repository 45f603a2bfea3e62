"""What a procedure is: its clusters and settings, what it checks, and its steps in their order (pure)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsar_fleet.settings.setting import Setting, Settings, setting
from pulsar_fleet.settings.shared import approval, connection

if TYPE_CHECKING:
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.preflight.findings import Finding

CHECK, APPROVE, REPORT = "check", "approve_plan", "write_report"


@dataclass(frozen=True, slots=True)
class Session:
    """What a check or a step works with.

    :param conf: every setting of the run.
    :param clusters: an open client for each cluster of the procedure.
    """

    conf: JsonObject
    run: Run
    clusters: Mapping[str, AdminClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What a run would do, and what forbids it.

    :param headline: one sentence.
    :param changes: a line each; without one nobody is asked.
    :param findings: a blocker among them stops the run.
    """

    headline: str
    changes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A step after the approval.

    :param name: of the task and of the line on the terminal.
    :param work: returns what it did, in one sentence. A second call must do what is left.
    """

    name: str
    work: Callable[[Session], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """Check, approval, steps, report.

    :param name: the id of the DAG, such as `unload_namespaces`; the command has hyphens.
    :param summary: one sentence, for the help of the command and the page of the DAG.
    :param clusters: setting that names a cluster's connection → what the cluster is.
    :param own_settings: its other settings; those of the approval and of a dry run are added.
    :param validate: refuses settings by `InvalidRequest` before any call.
    :param check: reads the clusters and changes nothing.
    """

    name: str
    summary: str
    clusters: Mapping[str, str]
    own_settings: Settings
    check: Callable[[Session], Awaitable[Checked]]
    work: tuple[Step, ...]
    validate: Callable[[JsonObject], None] = field(default=lambda conf: None)  # noqa: ARG005

    @property
    def settings(self) -> dict[str, Setting]:
        """Every setting, for the form, the command and the table in `docs/`."""
        named = {
            name: connection(f"pulsar_{name}", name.replace("_", " ").capitalize(), text)
            for name, text in self.clusters.items()
        }
        dry_run = setting(False, type="boolean", title="Dry run", description="Stop after the check; change nothing.")
        return {**named, **self.own_settings, **approval("the plan"), "dry_run": dry_run}

    def steps(self) -> tuple[str, ...]:
        """The ids of the tasks, in their order."""
        return (CHECK, APPROVE, *(step.name for step in self.work), REPORT)
