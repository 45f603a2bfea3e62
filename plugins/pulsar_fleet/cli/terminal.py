"""What a command says and where: its result on stdout, everything else on stderr, and the state with which it exits."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.report.progress import progress_lines

_STYLES = {"BLOCKER": "red", "WARNING": "yellow", "  !": "red", "  +": "green", "  -": "red", "  ~": "cyan"}


class ExitState(IntEnum):
    """How a command ended; its JSON says the same by name, under `state`."""

    DONE = 0
    """Nothing to do, equal, or everything done."""
    ERROR = 1
    """A cluster, a file or the ledger failed; the message says which."""
    USAGE = 2
    """The command cannot be meant as it stands."""
    DIFFERENT = 3
    """`diff` and `verify` found differences, `plan` planned changes."""
    REFUSED = 4
    """Blockers, a change without permission, or an operator who said no."""
    PARTLY = 5
    """Conflicts, failures or Ctrl-C: some changes are in place, others are not."""
    INCONCLUSIVE = 6
    """`verify` could not tell; the reasons are in its result."""
    INTERRUPTED = 130
    """Ctrl-C before anything was changed."""


class Usage(InvalidRequest):
    """The command line cannot be meant as it stands."""


class Terminal:
    """Where one command speaks.

    :param as_json: the result is one JSON document on stdout, and the text for people is left out.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        # The Pulsar client writes its log to file descriptor 1, which a reader of the result must not get.
        self._stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        os.dup2(2, 1)
        self._result = Console(file=self._stdout, highlight=False, emoji=False)
        self._aside = Console(stderr=True, highlight=False, emoji=False)
        # What stops a change is part of the result: it need not be said twice.
        logging.getLogger("pulsar_fleet").addHandler(logging.NullHandler())

    def say(self, text: str) -> None:
        """Give the result to people; nothing where a program gets it."""
        if not self.as_json:
            _print(self._result, text)

    def show(self, text: str) -> None:
        """Say what somebody has to read before an answer: beside the result, where a program gets that."""
        _print(self._aside if self.as_json else self._result, text)

    def note(self, text: str, *, style: str | None = None) -> None:
        """Say something beside the result."""
        self._aside.print(text, style=style, markup=False, soft_wrap=True)

    @contextmanager
    def working(self, message: str) -> Iterator[None]:
        """Show that something goes on: a spinner, or one line where nobody watches."""
        if self._aside.is_terminal:
            with self._aside.status(message):
                yield
        else:
            self.note(message)
            yield

    @contextmanager
    def counting(self, message: str, noun: str) -> Iterator[Callable[[int, int], None]]:
        """Show how far something has come, by a callback that takes (done, all)."""
        if not self._aside.is_terminal:
            self.note(message)
            yield progress_lines(noun, self.note)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._aside, transient=True) as bar:
            task = bar.add_task(message, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    def confirmed(self, question: str) -> bool:
        """Ask the operator; no answer is a no."""
        try:
            return typer.confirm(question, err=True)
        except typer.Abort:
            return False

    def finish(self, document: JsonObject, state: ExitState) -> NoReturn:
        """Give the result and exit."""
        if self.as_json:
            text = json.dumps({"state": state.name.lower(), **document}, indent=1, ensure_ascii=False)
            self._stdout.write(f"{text}\n")
        self._stdout.flush()
        raise typer.Exit(state)

    @contextmanager
    def plain_errors(self) -> Iterator[None]:
        """Turn what we understand into one sentence on stderr and an exit state."""
        try:
            yield
        except FleetError as error:
            self._fail(str(error), _state(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            self._fail(f"{error.filename or 'A file'!r} cannot be used: {error.strerror or error}.", ExitState.ERROR)
        except KeyboardInterrupt:
            self._fail("Interrupted.", ExitState.INTERRUPTED)

    def _fail(self, message: str, state: ExitState) -> NoReturn:
        self.note(message, style="red")
        raise typer.Exit(state)


def _print(console: Console, text: str) -> None:
    for line in text.splitlines():
        style = next((style for start, style in _STYLES.items() if line.startswith(start)), None)
        console.print(line, style=style, markup=False, soft_wrap=True)


def is_watched() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def require_consent(what: str, *, yes: bool) -> None:
    """Refuse to change `what` where nobody said yes and nobody can be asked."""
    if not yes and not is_watched():
        raise PreconditionFailed(
            f"This changes {what}, and nobody can be asked here: say --yes. Nothing has been changed."
        )


def _state(error: FleetError) -> ExitState:
    states = {Usage: ExitState.USAGE, PreconditionFailed: ExitState.REFUSED, Conflict: ExitState.PARTLY}
    return next((state for kind, state in states.items() if isinstance(error, kind)), ExitState.ERROR)
