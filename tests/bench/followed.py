"""A group of applications that follow a document, moved by the commands of the operator."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.shell import Said, Shell

from pulsar_fleet.clients.store import CLIENTS_VARIABLE
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.migration.clusters import Sides

GROUP = "bench"


@dataclass(frozen=True, slots=True)
class Command:
    """What was run, from when to when, in microseconds since 1970, and what it said where it failed."""

    name: str
    began: int
    ended: int
    complaint: str = ""


@dataclass(slots=True)
class Group:
    """Applications of these namespaces, which read `document`.

    :param exact: producers are held while clients move.
    :param commands: that were run, in order.
    """

    shell: Shell
    namespaces: Sequence[NamespaceName]
    document: str
    exact: bool = False
    commands: list[Command] = field(default_factory=list)

    async def move(self) -> str:
        """A migration that moves the clients; returns its run."""
        said = await self._run("move", "migrate", *self._all, "--strategy", "replicate_then_move_clients", *self._moved)
        return str(said.document["runs"][0]["run"]) if not said.state else ""

    async def return_from(self, run: str) -> None:
        """Take a run back."""
        await self._run("return", "return-clients", run, *self._held)

    async def replicate(self) -> None:
        """Replicate both ways, with what is stored."""
        await self._run("replicate", "replicate", *self._all, "--history")

    async def move_again(self) -> str:
        """Move the clients, whose namespaces replicate both ways by now; returns its run."""
        said = await self._run("move again", "move-clients", *self._all, "--accept-transactions", *self._moved)
        return str(said.document["run"]) if not said.state else ""

    async def complete(self) -> None:
        """End that they can return."""
        await self._run("complete", "migrate", *self._all)

    @property
    def complaints(self) -> list[str]:
        """What commands that failed said."""
        return [f"{command.name}: {command.complaint}" for command in self.commands if command.complaint]

    @property
    def _all(self) -> tuple[str, ...]:
        return (*self.shell.sides, *(word for name in self.namespaces for word in ("--namespaces", str(name))))

    @property
    def _held(self) -> tuple[str, ...]:
        return ("--exact",) if self.exact else ()

    @property
    def _moved(self) -> tuple[str, ...]:
        return (*_GROUP, "--accept-readers", *self._held)

    async def _run(self, name: str, *words: str) -> Said:
        began = _now()
        said = await asyncio.to_thread(self.shell.run, *words, "--yes", "--json")
        self.commands.append(Command(name, began, _now(), said.err[-2000:] if said.state else ""))
        return said


_GROUP = ("--group", GROUP)


@contextmanager
def following(
    sides: Sides, folder: Path, namespaces: Sequence[NamespaceName], *, exact: bool = False
) -> Iterator[Group]:
    """A group whose document leads to blue, served to Java and Python clients by HTTP."""
    folder.mkdir(parents=True)
    shell = Shell.between(folder, sides.blue, sides.green)
    shell.environment |= {
        CLIENTS_VARIABLE: str(folder / "clients"),
        "PULSAR_FLEET_LEDGER": f"sqlite:///{folder}/ledger.db",
        "PULSAR_FLEET_ARTEFACTS": str(folder / "artefacts"),
    }
    said = shell.run("clients", "set", GROUP, shell.sides[0], "--new", "--yes")
    assert said.state == 0, said.err
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(folder / "clients"))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield Group(shell, namespaces, f"http://127.0.0.1:{server.server_port}/{GROUP}.json", exact)
        finally:
            server.shutdown()
            thread.join()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _now() -> int:
    return time.time_ns() // 1000
