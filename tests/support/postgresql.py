"""A PostgreSQL server of its own for tests that need one, on a socket in its own folder, without a port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import sqlalchemy as sa

_DEBIAN = Path("/usr/lib/postgresql")
_USER = "postgres"


def reason_to_skip() -> str:
    """What is missing for a server and a connection to it; empty if nothing is."""
    if _programs() is None:
        return "PostgreSQL is not installed here. Debian: apt-get install postgresql"
    if find_spec("psycopg2") is None:
        return "The driver psycopg2 is not installed here: pip install -r docker/drivers.txt"
    return ""


@contextmanager
def server() -> Iterator[Callable[[], str]]:
    """A running server; each call creates an empty database and returns its URL for SQLAlchemy."""
    programs = _programs()
    assert programs is not None, reason_to_skip()
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    # The server refuses to run as root.
    account = _USER if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    shutil.chown(folder, account)

    def run(program: str, *arguments: str) -> None:
        command = [programs / program, "-D", folder / "data", *arguments]
        subprocess.run(command, check=True, user=account, cwd=folder, stdout=subprocess.DEVNULL)

    run("initdb", "-U", _USER, "-A", "trust", "--no-sync")
    try:
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"-c listen_addresses='' -k {folder}", "start")
        try:
            yield lambda: _new_database(folder)
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`: that on PATH, or else Debian's newest."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).parent] if on_path else sorted(_DEBIAN.glob("*/bin"))
    return folders[-1] if folders else None


def _new_database(folder: Path) -> str:
    name = f"test_{uuid4().hex}"
    engine = sa.create_engine(_url(folder, _USER), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    return _url(folder, name)


def _url(folder: Path, database: str) -> str:
    return f"postgresql+psycopg2://{_USER}@/{database}?host={folder}"
