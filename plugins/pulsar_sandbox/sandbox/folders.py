"""Folders of the sandbox: below `.state` of the checkout, or of the working directory outside of a checkout."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

JARS_VARIABLE = "PULSAR_FLEET_SANDBOX_JARS"


def _state() -> Path:
    checkout = Path(__file__).parents[3]
    return (checkout if (checkout / "pyproject.toml").exists() else Path.cwd()) / ".state"


def jar_cache() -> Path:
    """Return the folder of Pulsar's jars, one folder per version; PULSAR_FLEET_SANDBOX_JARS names another."""
    folder = os.environ.get(JARS_VARIABLE)
    return Path(folder).expanduser().absolute() if folder else _state() / "jars"


def default_sandbox() -> Path:
    """Return the folder of the sandbox that the command line means when none is given."""
    return _state() / "sandbox"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock that other processes wait for; it ends with this process at the latest."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
