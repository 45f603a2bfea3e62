"""`pulsar-fleet runs|evidence`: what the records have of a run, as a list, on the terminal, and in one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from pulsar_fleet.cli.options import AsJson
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.evidence.collect import collect
from pulsar_fleet.evidence.page import evidence_page, file_name
from pulsar_fleet.evidence.verify import audit_ledger, verify_file
from pulsar_fleet.ledger.approval import read_approval
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import RecordedRun, utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.page import TEXT

if TYPE_CHECKING:
    from typer._click import Command, Context


class _RunOrCommand(TyperGroup):
    """`evidence RUN` is `evidence make RUN`."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Take what is no command for a run."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            args = ["make", *args]
        return super().resolve_command(ctx, args)


evidence = typer.Typer(
    cls=_RunOrCommand,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Write everything the records have of a run into one file, or verify such a file: `evidence RUN`.",
)


@evidence.command()
def make(
    run: Annotated[str, typer.Argument(help="The run, as reports and `runs` name it.")],
    folder: Annotated[Path, typer.Option("--folder", help="Where to write the files.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write the evidence of a run as one HTML page and as JSON: request, approvals, changes, phases, proofs, report.

    Only the ledger and the artefact store are read. Secrets are fingerprints there.
    """
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        collected = collect(Run(run, Ledger.open(), Artefacts.open()))
        paths = [folder / file_name(run, ending) for ending in ("html", "json")]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path, content in zip(paths, (evidence_page(collected).encode(), collected.to_bytes()), strict=True):
                path.write_bytes(content)
        except OSError as error:
            raise InvalidRequest(f"The evidence cannot be written to {folder}: {error.strerror or error}.") from error
        terminal.say(f"{counted(len(collected.records), 'record')} of run {run}, digest {collected.head}")
        terminal.say("\n".join(map(str, paths)))
        document = {"run": run, "digest": collected.head, "files": list(map(str, paths))}
        terminal.finish(document, ExitState.DONE)


@evidence.command()
def verify(
    file: Annotated[Path, typer.Argument(help="A page or a JSON file that `evidence` has written.")],
    as_json: AsJson = False,
) -> None:
    """Find every change of an evidence file; compare it with the ledger where the ledger has the run."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InvalidRequest(f"{file} cannot be read: {error.strerror or error}.") from error
        result = verify_file(content, Run("", Ledger.open(), Artefacts.open()))
        terminal.say(result.text())
        document: JsonObject = {"unchanged": not result.problems, "problems": list(result.problems)}
        document |= {"compared": result.compared, "left_out": result.left_out}
        terminal.finish(document, ExitState.DIFFERENT if result.problems else ExitState.DONE)


@evidence.command()
def audit(as_json: AsJson = False) -> None:
    """Check the audit chain of the ledger: what was altered, added or removed past this package, and reports."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        result, left_out = audit_ledger(Ledger.open())
        if left_out:
            terminal.note(left_out)
        terminal.say(f"{counted(result.entries, 'entry')}, digest of the last {result.head}. {result.text()}")
        document = {"entries": result.entries, "head": result.head, "problems": list(result.problems)}
        terminal.finish(document, ExitState.DIFFERENT if result.problems else ExitState.DONE)


def runs(
    run: Annotated[str | None, typer.Argument(help="Show this run; default: list the newest ones.")] = None,
    newest: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the runs that began last, of commands and of DAGs, or show one: its settings, phases, changes, verdicts."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        ledger = Ledger.open()
        if run is None:
            rows = ledger.newest_runs(newest)
            terminal.say(_listed(rows) or "The ledger has no run.")
            terminal.finish({"runs": [_document(row) for row in rows]}, ExitState.DONE)
        record = ledger.require_run(run)
        details = _details(Run(run, ledger, Artefacts.open()))
        lines = [_line(record), *(f"  {name:<10} {text}" for name, texts in details.items() for text in texts)]
        command = command_line("evidence", run)
        terminal.say("\n".join([*lines, f"Evidence: {command}"]), command)
        terminal.finish({**_document(record), "settings": record.conf, **details}, ExitState.DONE)


def _listed(rows: Sequence[RecordedRun]) -> str:
    """Those that have work to do first: running or waiting, and failed ones that a person continues or gives up."""
    parts = {"Going on or failed:": [row for row in rows if not row.over], "Ended:": [row for row in rows if row.over]}
    return "\n".join(line for title, part in parts.items() if part for line in (title, *map(_line, part)))


def _line(run: RecordedRun) -> str:
    about = ["dry run"] if run.conf.get("dry_run") else []
    about += _about(run.conf)
    return f"{_begun(run)}{f'  {listed(about)}' if about else ''}"


def _about(conf: JsonObject) -> list[str]:
    """What the run is about, as its settings name it: namespaces, tenants, patterns or topics."""
    names = ("namespaces", "selection", "namespace", "topics")
    named: str | list[str] = next((conf[name] for name in names if conf.get(name)), [])
    return [named] if isinstance(named, str) else [*map(str, named)]


def _begun(run: RecordedRun) -> str:
    return f"{utc(run.started_at):%Y-%m-%d %H:%M:%S} UTC  {run.state:<10} {run.procedure:<22} {run.run_id}"


def _document(run: RecordedRun) -> JsonObject:
    return {
        "run": run.run_id,
        "procedure": run.procedure,
        "state": run.state,
        "about": _about(run.conf),
        "requested_by": run.requested_by,
        "started": utc(run.started_at).isoformat(timespec="seconds"),
    }


def _details(run: Run) -> dict[str, list[str]]:
    """By kind of record, a line each; changes are counted by cluster and outcome."""
    phases = {entry.namespace: entry for entry in run.ledger.phases(run.id)}
    changes = Counter((change.cluster, change.outcome) for change in run.ledger.changes(run.id))
    approval, report = read_approval(run), run.artefacts.find(run.id, TEXT)
    return {
        "asked by": [run.requester] if run.requester else [],
        "approval": [f"{approval['answer']} by {approval['by']} at {approval['at']}"] if approval else [],
        "phase": [f"{name} {entry.phase} at {utc(entry.at):%H:%M:%S}" for name, entry in sorted(phases.items())],
        "changes": [f"{cluster}: {count:,} {outcome}" for (cluster, outcome), count in sorted(changes.items())],
        "verdict": [f"{row.scope} {row.verdict}: {row.summary}" for row in run.ledger.verdicts(run.id)],
        "report": [report.uri] if report else [],
    }
