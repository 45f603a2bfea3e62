"""What the tests of commands have in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.shell import Shell

from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments
from pulsar_fleet.cluster.connection import ClusterConnection


@pytest.fixture
def shell(records: Path, blue: ClusterConnection, green: ClusterConnection) -> Shell:
    """A shell in a folder of its own, with a ledger of its own."""
    return Shell.between(records, blue, green)


@pytest.fixture
def documents(shell: Shell) -> ConnectionDocuments:
    """Where the commands of the shell publish."""
    folder = str(shell.folder / "clients")
    shell.environment[CLIENTS_VARIABLE] = folder
    return ConnectionDocuments.open(folder)
