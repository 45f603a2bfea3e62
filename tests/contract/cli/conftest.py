"""What the tests of commands have in common."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import uvicorn
from tests.support.shell import Shell

from pulsar_fleet.airflow.web import clients as route
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


@pytest.fixture
def served(shell: Shell, documents: ConnectionDocuments, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The documents as Airflow's server has them, for the token `t0`: their address."""
    (shell.folder / "token").write_text("t0")
    monkeypatch.setenv(route.TOKEN_VARIABLE, str(shell.folder / "token"))
    monkeypatch.setenv(CLIENTS_VARIABLE, documents.folder)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = uvicorn.Server(uvicorn.Config(route.app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
