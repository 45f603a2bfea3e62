"""`pulsar-fleet snapshot|diff|check|plan|export`: the commands that change no cluster."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Self

import typer

from pulsar_fleet.cli.clusters import cluster_or_snapshot, named_cluster, parse_selection, reach, reach_two, read_two
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import (
    AsJson,
    Cluster,
    Select,
    Source,
    Subscriptions,
    Target,
    Topics,
    Waivers,
    waiver_documents,
)
from pulsar_fleet.cli.runs import PlannedPair, plan_pair, recorded_run
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError
from pulsar_fleet.cli.text import differences_text, findings_text, snapshot_text
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.onboarding.results import TakenSnapshot
from pulsar_fleet.onboarding.steps import take_snapshot
from pulsar_fleet.planning.build import align, require_comparable
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.render import plan_text
from pulsar_fleet.preflight.findings import Finding, blockers
from pulsar_fleet.preflight.waivers import parse_waivers
from pulsar_fleet.snapshot.model import Snapshot


def export(
    cluster: Cluster,
    folder: Annotated[Path, typer.Argument(help="Folder of the files; their comments and order are kept.")],
    select: Select = None,
    topics: Topics = True,
    as_json: AsJson = False,
) -> None:
    """Write the resources of a cluster as YAML, one file per tenant and namespace; no file is deleted."""
    from pulsar_fleet.policy_sync.reconcile.desired_state_files import Exported, export_cluster

    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        connection, selection = named_cluster(cluster, Side.SOURCE), parse_selection(select or ())
        with terminal.status(f"Reading {connection.name}"):

            async def read() -> Exported:
                reached = await reach(connection)
                return await export_cluster(reached.connection, selection, folder, topics=topics)

            exported = run_interruptibly(read())
    terminal.say(f"{counted(len(exported.written), 'file')} written, {exported.unchanged} unchanged, in {folder}")
    for name in exported.stale:
        terminal.say(f"  {name}: the cluster has no such resource; delete the file if it is obsolete")
    terminal.finish(exported.to_json(), ExitState.DONE)


# With --out the snapshot is stored directly in that folder.
_NO_RUN_FOLDER = "."


def snapshot(
    cluster: Cluster,
    select: Select = None,
    out: Annotated[str | None, typer.Option(help="Folder or URL to store it in; default: the artefact store.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the snapshot; default: the name of the cluster.")] = None,
    as_json: AsJson = False,
) -> None:
    """Read the resources of a cluster and store them: tables and a manifest. It loads topics with subscriptions."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        connection = named_cluster(cluster, Side.SOURCE)
        selection = parse_selection(select or ())
        began = time.monotonic()
        conf: JsonObject = {"cluster": cluster, "selection": list(selection.texts()), "out": out, "name": name}
        with (
            recorded_run(terminal, "snapshot", "snapshot", conf) as run,
            terminal.status(f"Reading {connection.name}"),
        ):
            store = Artefacts.open(out if "://" in out else str(Path(out).absolute())) if out else run.artefacts
            folder = _NO_RUN_FOLDER if out else run.id

            async def read() -> TakenSnapshot:
                reached = await reach(connection)
                must_exist = not selection.everything
                return await take_snapshot(
                    reached.connection, selection, store, folder, name=name or reached.name, must_exist=must_exist
                )

            stored = run_interruptibly(read())
    terminal.say(snapshot_text(stored, time.monotonic() - began))
    terminal.finish(stored.to_json(), ExitState.DONE if stored.complete else ExitState.ERROR)


def diff(
    first: Annotated[str, typer.Argument(help="A cluster, or the manifest.json or folder of a stored snapshot.")],
    second: Annotated[str, typer.Argument(help="The same; names of clusters are translated to those of this one.")],
    select: Select = None,
    as_json: AsJson = False,
) -> None:
    """Compare two clusters or stored snapshots in both directions. Exits with 3 if they differ."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        sides = cluster_or_snapshot(first, Side.SOURCE), cluster_or_snapshot(second, Side.TARGET)
        selection = parse_selection(select) if select else None
        conf: JsonObject = {"first": first, "second": second, "selection": select}
        with recorded_run(terminal, "diff", "diff", conf) as run, terminal.status(f"Reading {first} and {second}"):
            ours, theirs = run_interruptibly(read_two(sides, selection, run))
        require_comparable(ours, theirs)
        aligned = align(ours, theirs)
        entries, left_alone = tuple(aligned.differences()), aligned.left_alone
    names = _labels(ours, theirs)
    terminal.say(differences_text(names, entries, left_alone))
    document: JsonObject = {
        "first": names[0],
        "second": names[1],
        "equal": not entries,
        "differences": [asdict(entry) for entry in entries],
        "not_compared": [entry.to_json() for entry in left_alone],
    }
    terminal.finish(document, ExitState.DIFFERENT if entries else ExitState.DONE)


def check(
    source: Source,
    target: Target,
    select: Select = None,
    lag_hours: Annotated[
        int, typer.Option(min=0, help="How long messages may wait on the source before they are copied later.")
    ] = 0,
    waivers: Waivers = None,
    as_json: AsJson = False,
) -> None:
    """Find incompatibilities between two clusters before any write. Exits with 4 on a blocker."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        selection = parse_selection(select or ())
        _, planned = _plan_two(terminal, "check", source, target, selection, lag_hours=lag_hours, waivers=waivers)
    stopping = blockers(planned.findings)
    terminal.say(f"{planned.line}\n{findings_text(planned.findings)}")
    document: JsonObject = {
        "source": planned.plan.source,
        "target": planned.plan.target,
        "blockers": len(stopping),
        "warnings": len(planned.findings) - len(stopping),
        "findings": [finding.to_json() for finding in planned.findings],
    }
    terminal.finish(document, ExitState.REFUSED if stopping else ExitState.DONE)


def plan(
    source: Source,
    target: Target,
    select: Select = None,
    subscriptions: Subscriptions = True,
    waivers: Waivers = None,
    out: Annotated[Path | None, typer.Option(help="Write the plan to this file, for `apply`.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the changes that copy the source to the target. Exits with 3 if there are changes."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        if out and not out.absolute().parent.is_dir():
            raise UsageError(f"There is no folder {str(out.absolute().parent)!r} to write the plan to.")
        line, file = make_plan(
            terminal, source, target, parse_selection(select or ()), subscriptions=subscriptions, waivers=waivers
        )
        document = file.to_json()
        if out:
            out.write_text(json.dumps(document, indent=1))
    terminal.say(f"{line}\n{findings_text(file.findings)}\n\n{plan_text(file.plan)}")
    state = ExitState.DONE if file.plan.empty else ExitState.DIFFERENT
    if blockers(file.findings):
        state = ExitState.REFUSED
    elif not file.plan.empty:
        command = _apply_command(file, out, waivers or ())
        terminal.say(f"\nApply it with: {command}", command)
    terminal.finish(document, state)


def make_plan(
    terminal: Terminal,
    source: str,
    target: str,
    selection: Selection,
    *,
    subscriptions: bool,
    waivers: Sequence[str] | None,
) -> tuple[str, PlanFile]:
    """Read, check and plan; returns a line with what was compared, and the plan file."""
    run_id, planned = _plan_two(
        terminal, "plan", source, target, selection, subscriptions=subscriptions, waivers=waivers
    )
    file = PlanFile(
        run=run_id,
        source=source,
        target=target,
        selection=selection.texts(),
        subscriptions=subscriptions,
        plan=planned.plan,
        findings=planned.findings,
    )
    return planned.line, file


def _plan_two(
    terminal: Terminal,
    command: str,
    source: str,
    target: str,
    selection: Selection,
    *,
    subscriptions: bool = True,
    lag_hours: int = 0,
    waivers: Sequence[str] | None,
) -> tuple[str, PlannedPair]:
    """Read two clusters of the command line and plan; returns the id of the run too."""
    documents = waiver_documents(waivers)
    accepted = parse_waivers(documents)
    sides = named_cluster(source, Side.SOURCE), named_cluster(target, Side.TARGET)
    conf: JsonObject = {
        "source": source,
        "target": target,
        "selection": list(selection.texts()),
        "subscriptions": subscriptions,
        "lag_hours": lag_hours,
        "waivers": documents,
    }
    with recorded_run(terminal, command, command, conf) as run, terminal.status(f"Reading {source} and {target}"):

        async def read() -> PlannedPair:
            ours, theirs = await reach_two(*sides)
            return await plan_pair(
                ours, theirs, selection, run, subscriptions=subscriptions, lag_hours=lag_hours, waivers=accepted
            )

        return run.id, run_interruptibly(read())


def _labels(first: Snapshot, second: Snapshot) -> tuple[str, str]:
    if first.cluster != second.cluster:
        return first.cluster, second.cluster
    return f"{first.cluster} at {first.began}", f"{second.cluster} at {second.began}"


def _apply_command(file: PlanFile, out: Path | None, waivers: Sequence[str]) -> str:
    accepted = [word for text in waivers for word in ("--waiver", text)]
    words: Sequence[str] = [str(out)] if out else [file.source, file.target, *_options(file), *accepted]
    return command_line("apply", *words)


def _options(file: PlanFile) -> list[str]:
    selected = [word for text in file.selection for word in ("--select", text)]
    return selected if file.subscriptions else [*selected, "--no-subscriptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile(Document):
    """Everything that `apply` needs, without secrets.

    :param run: id of the run that made the plan.
    :param source: the cluster to copy, as given on the command line; `target` likewise.
    """

    SCHEMA_VERSION = 1

    run: str
    source: str
    target: str
    selection: tuple[str, ...]
    subscriptions: bool
    plan: Plan
    findings: tuple[Finding, ...]

    def to_json(self) -> JsonObject:
        """A JSON object with a digest over its content."""
        content = Document.to_json(self)
        return {**content, "sha256": _digest(content)}

    @classmethod
    def from_text(cls, text: str, name: str) -> Self:
        """Read the result of `to_json`; an invalid or altered document raises `UsageError`.

        :param name: name of the file, for messages.
        """
        try:
            document = json.loads(text)
            content = {key: document[key] for key in (*cls.__slots__, "schema_version")}
            sha256 = document["sha256"]
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{name!r} is not a plan: make one with: pulsar-fleet plan SOURCE TARGET --out {name}"
            ) from error
        if content["schema_version"] != cls.SCHEMA_VERSION:
            raise UsageError(
                f"The plan {name!r} has schema version {content['schema_version']!r}, this release reads "
                f"{cls.SCHEMA_VERSION}: make the plan again."
            )
        if sha256 != _digest(content):
            raise UsageError(f"The plan {name!r} was altered after it was made: make the plan again.")
        return cls.from_json(content)


def _digest(content: JsonObject) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
