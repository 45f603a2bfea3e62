"""The output of a command: its result on stdout, everything else on stderr, and its exit state."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.polling import ShownLines
from pulsar_fleet.report.progress import progress_lines

_STYLES = {"BLOCKER": "red", "WARNING": "yellow", "  !": "red", "  +": "green", "  -": "red", "  ~": "cyan"}
_NOTE_SECONDS = 30.0
_LEAST_COLUMN = 12
"""Characters: a table of narrower columns is printed as it is stored, so that its names can be copied."""


class ExitState(IntEnum):
    """How a command ended; its JSON contains the name under `state`."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    DIFFERENT = 3
    REFUSED = 4
    PARTLY = 5
    INCONCLUSIVE = 6
    INTERRUPTED = 130


MEANINGS: Mapping[ExitState, str] = {
    ExitState.DONE: "nothing to do, equal, or all of it done",
    ExitState.ERROR: "a cluster, a file or the ledger failed, or a snapshot is incomplete; stderr says which",
    ExitState.USAGE: "the command is invalid; no call was made to a cluster, or only one for its name",
    ExitState.DIFFERENT: "`diff` and `verify` found differences, `plan` planned changes, `reconcile` left drift, "
    "`doctor` found a fault, a failover loses messages or differs from its forecast, "
    "`evidence verify` found a change, `clients show` a document that is not what was published, "
    "`move-clients` that its clients are led elsewhere by now",
    ExitState.REFUSED: "blockers, a gate, changes without permission, or you did not agree",
    ExitState.PARTLY: "conflicts, failures or Ctrl-C: some changes are in place, others are not",
    ExitState.INCONCLUSIVE: "`verify`, `doctor` or a forecast could not read everything; the reasons are in its result",
    ExitState.INTERRUPTED: "Ctrl-C before anything was changed",
}
"""What each state means; the table in docs/onboard_cluster.md has the same words."""


PAGES: Mapping[str, tuple[str, str]] = {
    "migration": ("Migration, failback, abort", "migration_failures.md"),
    "replication": ("Replication, failover, moves of clients", "replicate_namespaces.md"),
    "links": ("Links between clusters", "replicate_namespaces.md"),
    "clients": ("Connection documents", "clients.md"),
    "onboarding": ("Onboarding", "onboard_cluster.md"),
    "planning": ("Plans and what they change", "onboard_cluster.md"),
    "preflight": ("Checks before a change", "migration_gates.md"),
    "snapshot": ("Snapshots", "onboard_cluster.md"),
    "policy_sync": ("Reconciliation and metadata", "reconcile_policies.md"),
    "read_only": ("Read-only serving", "serve_read_only.md"),
    "verification": ("Verification", "verify_clusters.md"),
    "messages": ("Reading and writing messages", "provider.md"),
    "procedures": ("All procedures", "capacity.md"),
    "settings": ("Settings of a run", "capacity.md"),
    "cluster": ("Clusters and connections", "provider.md"),
    "ledger": ("Ledger and artefacts", "evidence.md"),
    "evidence": ("Evidence", "evidence.md"),
    "report": ("Reports", "evidence.md"),
    "fleet": ("The pages", "fleet_page.md"),
    "airflow": ("Airflow", "provider.md"),
    "cli": ("The terminal", "onboard_cluster.md#from-a-terminal"),
}
"""Package that raises an error → the heading of its messages in docs/messages.md, and the page that says more."""


class UsageError(InvalidRequest):
    """The command line is invalid."""

    CODE = "usage-error"
    ACTS = "you: correct the command"


class Terminal:
    """The output of one command.

    The methods that print take the commands that a person may call next, as values: the JSON lists them, and no text
    is searched for them, since a topic may have the name of a command.

    :param as_json: the result is one JSON document on stdout, without the text for people.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._next: dict[str, None] = {}
        # The Pulsar client writes its log to file descriptor 1, where a program reads the result.
        self._stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        os.dup2(2, 1)
        self._result = Console(file=self._stdout, highlight=False, emoji=False)
        self._notes = Console(stderr=True, highlight=False, emoji=False)
        # Problems are part of the result: the log must not repeat them.
        logging.getLogger("pulsar_fleet").addHandler(logging.NullHandler())

    def say(self, text: str, *commands: str) -> None:
        """Print a part of the result for people; with `as_json` only the commands are kept."""
        self._collect(commands)
        if not self.as_json:
            with self._writing():
                print_text(self._result, text)

    def show(self, text: str, *commands: str) -> None:
        """Print what an operator must read before a question; with `as_json` on stderr."""
        self._collect(commands)
        print_text(self._notes if self.as_json else self._result, text)

    def note(self, text: str, *commands: str, style: str | None = None) -> None:
        """Print a note on stderr."""
        self._collect(commands)
        self._notes.print(text, style=style, markup=False, soft_wrap=True)

    @contextmanager
    def status(self, message: str) -> Iterator[Callable[[str], None]]:
        """Show that the command is working: a spinner, or one line without a terminal.

        It yields a callback that shows how far the work is: on the spinner's one line, which is cut at the width of the
        screen; without a terminal at most one line in 30 s, and the same again after ten minutes.
        """
        if self._notes.is_terminal:
            with self._notes.status(message) as spinner:
                yield lambda line: spinner.update(Text(f"{message}: {line}", no_wrap=True, overflow="ellipsis"))
            return
        self.note(message)
        began, shown = time.monotonic(), ShownLines(_NOTE_SECONDS)

        def note(line: str) -> None:
            if time.monotonic() - began >= _NOTE_SECONDS and shown.is_due(line):
                self.note(f"{message}: {line}")

        yield note

    @contextmanager
    def progress(self, message: str, noun: str) -> Iterator[Callable[[int, int], None]]:
        """Show progress, by a callback for (done, total)."""
        if not self._notes.is_terminal:
            self.note(message)
            yield progress_lines(noun, self.note)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._notes, transient=True) as bar:
            task = bar.add_task(message, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def confirm(self, question: str) -> bool:
        """Ask the operator; without an answer the result is False."""
        try:
            return typer.confirm(question, err=True)
        except typer.Abort:
            return False

    def require_answer(self, question: str, subject: str) -> None:
        """Ask the operator, before anything was changed.

        :raises PreconditionFailed: the answer is not yes.
        """
        if not self.confirm(question):
            raise PreconditionFailed(f"The {subject} was not approved. Nothing has been changed.")

    def finish(self, document: JsonObject, state: ExitState) -> NoReturn:
        """Print the result and exit; its JSON has under `next` the commands that may follow."""
        with self._writing():
            if self.as_json:
                text = json.dumps(
                    {"state": state.name.lower(), **document, "next": list(self._next)}, indent=1, ensure_ascii=False
                )
                self._stdout.write(f"{text}\n")
            self._stdout.flush()
        raise typer.Exit(state)

    @contextmanager
    def plain_errors(self) -> Iterator[None]:
        """Turn known errors into one sentence on stderr and an exit state."""
        try:
            yield
        except FleetError as error:
            self._stop(error, state_of(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            self._stop(error, ExitState.ERROR)
        except KeyboardInterrupt as interrupt:
            self._stop(interrupt, ExitState.INTERRUPTED)

    def _stop(self, error: FleetError | OSError | KeyboardInterrupt, state: ExitState) -> NoReturn:
        """Say an error on stderr, and print it as JSON where a program reads the result."""
        described = error_document(error)
        self.note(described["message"], style="red")
        if self.as_json:
            self.finish({"error": described}, state)
        raise typer.Exit(state)

    def _collect(self, commands: Iterable[str]) -> None:
        self._next.update(dict.fromkeys(commands))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an error of stdout into one sentence; a closed pipe ends the command as usual."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self.note(f"The result cannot be written to stdout: {error.strerror or error}.", style="red")
            raise typer.Exit(ExitState.ERROR) from error


def print_text(console: Console, text: str) -> None:
    """Print line by line; tables of Markdown as tables where a person reads them and each column has room."""
    lines, draws = text.splitlines(), console.is_terminal
    while lines:
        size = 0
        if draws:
            size = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
        if size > 1 and set(lines[1]) <= set("|-: ") and console.width // len(_cells(lines[1])) >= _LEAST_COLUMN:
            console.print(_table(lines[:size]))
            del lines[:size]
            continue
        line = lines.pop(0)
        style = next((style for start, style in _STYLES.items() if line.startswith(start)), None)
        console.print(line, style=style, markup=False, soft_wrap=True)


def _table(lines: Sequence[str]) -> Table:
    """A table of Markdown for a terminal: cells are wrapped, nothing is cut."""
    head, *rows = [_cells(line) for number, line in enumerate(lines) if number != 1]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in head:
        table.add_column(Text(name), overflow="fold")
    last = len(head) - 1
    for row in rows:
        table.add_row(*map(Text, [*row[:last], " | ".join(row[last:])]))
    return table


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace("`", "").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise an `InvalidRequest` of the block as `UsageError`: the command line caused it."""
    try:
        yield
    except InvalidRequest as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from error


def is_interactive() -> bool:
    """Whether an operator can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def require_consent(subject: str, *, yes: bool) -> None:
    """Refuse to change `subject` without --yes where no operator can be asked."""
    if not yes and not is_interactive():
        raise PreconditionFailed(
            f"This changes {subject}, and there is no terminal to ask on: add --yes. Nothing has been changed."
        )


def error_document(error: BaseException) -> JsonObject:
    """An error for a program: `code`, `message`, who `acts`, `page`; of a broker's answer `cluster` and `status`."""
    match error:
        case FleetError():
            _, page = PAGES[_raised_in(error)]
            described = {"code": error.CODE, "message": str(error), "acts": error.ACTS, "page": f"docs/{page}"}
            origin = {"cluster": error.cluster, "status": error.status}
            return described | {name: value for name, value in origin.items() if value is not None}
        case OSError():
            place = repr(error.filename) if error.filename else "A file or its disk"
            return {"code": "file-error", "message": f"{place} cannot be used: {error.strerror or error}."}
        case KeyboardInterrupt():
            return {"code": "interrupted", "message": "Interrupted."}
    return {"code": "defect", "message": f"{type(error).__name__}: {error}"}


def _raised_in(error: FleetError) -> str:
    """The package whose code raised an error, or the error that it says in a command's words."""
    first = error.__cause__ if isinstance(error.__cause__, FleetError) else error
    modules = [str(frame.f_globals.get("__name__")).split(".") for frame, _ in traceback.walk_tb(first.__traceback__)]
    packages = [names[1] for names in modules if names[0] == "pulsar_fleet" and names[1:]]
    return packages[-1] if packages and packages[-1] in PAGES else "cli"


def state_of(error: FleetError) -> ExitState:
    """How a command ends that stops with an error."""
    states = {UsageError: ExitState.USAGE, PreconditionFailed: ExitState.REFUSED, Conflict: ExitState.PARTLY}
    return next((state for kind, state in states.items() if isinstance(error, kind)), ExitState.ERROR)
