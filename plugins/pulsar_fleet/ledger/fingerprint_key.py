"""The key under which secrets are fingerprinted: one for the whole installation."""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.ledger.artefacts import default_home

KEY_VARIABLE = "PULSAR_FLEET_FINGERPRINT_KEY"
_SHORTEST = 16


def open_seal() -> Redactor:
    """The installation's seal: from PULSAR_FLEET_FINGERPRINT_KEY, else from a key file that the first call makes.

    Where workers do not share a disk, set the variable: snapshots under different keys cannot be compared.
    """
    given = os.environ.get(KEY_VARIABLE)
    if given is not None:
        if len(given) < _SHORTEST:
            raise InvalidRequest(f"{KEY_VARIABLE} is too short: give at least {_SHORTEST} random characters.")
        return Redactor(given.encode())
    path = default_home() / "fingerprint.key"
    if not path.exists():
        _create(path)
    return Redactor(path.read_bytes())


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_hex(32).encode())
        # Linking fails when another process was first: then its key counts.
        os.link(name, path)
    except FileExistsError:
        return
    finally:
        Path(name).unlink()
