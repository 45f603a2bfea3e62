"""Errors of the ledger's database as one sentence each: what is wrong with it and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, Unavailable
from pulsar_fleet.ledger.artefacts import LEDGER_VARIABLE

_NOT_OURS = "name another file in {variable}, or move this one away: a new ledger is then created"
_SET = f"set {LEDGER_VARIABLE} to sqlite:///…/ledger.db or postgresql://…"
_RIGHTS = "give this process the right to write it and its folder, or name another database in {variable}"
_CAUSES: Mapping[str, tuple[type[FleetError], str]] = {
    "is full": (Unavailable, "the disk is full: free some space, then run again"),
    "no space left": (Unavailable, "the disk is full: free some space, then run again"),
    "is locked": (Unavailable, "another process holds it for more than 30 s: let that process end, then run again"),
    "readonly": (InvalidRequest, f"it is read-only: {_RIGHTS}"),
    "read-only": (InvalidRequest, f"it is read-only: {_RIGHTS}"),
    "permission denied": (InvalidRequest, f"permission denied: {_RIGHTS}"),
    "unable to open": (InvalidRequest, f"it cannot be opened: {_RIGHTS}"),
    "not a database": (InvalidRequest, f"it is not a database: {_NOT_OURS}"),
    "malformed": (InvalidRequest, "it is damaged: restore it from a backup"),
    "disk i/o error": (InvalidRequest, "its disk has an error: check the disk"),
}
"""Part of the driver's message, in lower case → the error and its sentence."""


def parsed_url(text: str) -> sa.URL:
    """The URL of a ledger; `InvalidRequest` for a text that is none, without its password."""
    try:
        return sa.make_url(text)
    except sa.exc.ArgumentError as error:
        raise InvalidRequest(f"The ledger cannot be opened: it is not a URL; {_SET}.") from error
    except ValueError as error:
        raise InvalidRequest(f"The ledger cannot be opened: its port is not a number; {_SET}.") from error


def created_engine(url: sa.URL, options: Mapping[str, Any]) -> sa.Engine:
    """The database of a URL, not connected yet.

    :raises InvalidRequest: SQLAlchemy has no such database, or its driver is not installed.
    """
    try:
        return sa.create_engine(url, **options)
    except sa.exc.NoSuchModuleError as error:
        raise InvalidRequest(
            f"The ledger cannot be opened: {url.drivername!r} is no database of SQLAlchemy; {_SET}."
        ) from error
    except ImportError as error:
        raise InvalidRequest(f"{LEDGER_VARIABLE} needs the package {error.name!r}, which is not installed.") from error


def explain_errors(engine: sa.Engine) -> None:
    """From now on every failure of this database that an operator can remove is a `FleetError`.

    Others, such as violated constraints, are raised by SQLAlchemy as before.
    """
    name = engine.url.render_as_string(hide_password=True)

    @sa.event.listens_for(engine, "handle_error")
    def explain(context: sa.ExceptionContext) -> None:
        problem = database_problem(name, context.original_exception)
        if problem is None and isinstance(context.sqlalchemy_exception, sa.exc.OperationalError):
            problem = Unavailable(f"The ledger {name} cannot be used: {_line(context.original_exception)}.")
        if problem is not None:
            raise problem from context.original_exception


def database_problem(name: str, error: BaseException) -> FleetError | None:
    """The error that an operator can act on; None for others."""
    text = str(error).lower()
    for part, (kind, cause) in _CAUSES.items():
        if part in text:
            return kind(f"The ledger {name} cannot be used: {cause.format(variable=LEDGER_VARIABLE)}.")
    return None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")
