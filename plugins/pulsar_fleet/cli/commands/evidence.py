"""`pulsar-fleet evidence`: everything the records have of a run in one file, and whether such a file was changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from pulsar_fleet.cli.options import AsJson
from pulsar_fleet.cli.terminal import ExitState, Terminal
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.evidence.collect import collect
from pulsar_fleet.evidence.page import evidence_page, file_name
from pulsar_fleet.evidence.verify import verify_file
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.audit import check_chain
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run

if TYPE_CHECKING:
    from typer._click import Command, Context

_NEWEST = 20


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
    no_args_is_help=True,
    help="Write everything the records have of a run into one file, or verify such a file: `evidence RUN`.",
)


@evidence.command()
def make(
    run: Annotated[str, typer.Argument(help="The run, as reports and `evidence list` name it.")],
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
        document = {"unchanged": not result.problems, "problems": list(result.problems), "compared": result.compared}
        terminal.finish(document, ExitState.DIFFERENT if result.problems else ExitState.DONE)


@evidence.command()
def audit(as_json: AsJson = False) -> None:
    """Check the audit chain of the ledger: whether a record was altered, added or removed past this package."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        result = check_chain(Ledger.open().engine)
        outcome = "\n".join(["CHANGED:", *result.problems]) if result.problems else "UNCHANGED."
        terminal.say(f"{counted(result.entries, 'entry')}, digest of the last {result.head}. {outcome}")
        document = {"entries": result.entries, "head": result.head, "problems": list(result.problems)}
        terminal.finish(document, ExitState.DIFFERENT if result.problems else ExitState.DONE)


@evidence.command("list")
def list_runs(as_json: AsJson = False) -> None:
    """The runs that began last, newest first."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        runs = Ledger.open().newest_runs(_NEWEST)
        terminal.say("\n".join(f"{run.started_at:%Y-%m-%d %H:%M:%S}  {run.state:<10} {run.run_id}" for run in runs))
        terminal.finish({"runs": [run.run_id for run in runs]}, ExitState.DONE)
