"""The key for fingerprints of secrets: one for the whole installation."""

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


def open_redactor() -> Redactor:
    """The redactor with the key PULSAR_FLEET_FINGERPRINT_KEY, else with a key file that the first call creates.

    Set the variable if workers do not share a disk: snapshots with different keys cannot be compared.
    """
    key = os.environ.get(KEY_VARIABLE)
    if key is not None:
        if len(key) < _SHORTEST:
            raise InvalidRequest(f"{KEY_VARIABLE} is too short: it needs at least {_SHORTEST} random characters.")
        return Redactor(key.encode())
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
        # The link fails if another process was first: then its key is used.
        os.link(name, path)
    except FileExistsError:
        return
    finally:
        Path(name).unlink()
