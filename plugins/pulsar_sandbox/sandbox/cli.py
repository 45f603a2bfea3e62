"""`pulsar-fleet sandbox`: start, show and stop Pulsar clusters on this machine."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import Json
from pulsar_sandbox.sandbox.clusters import Cluster
from pulsar_sandbox.sandbox.folders import default_sandbox
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION
from pulsar_sandbox.sandbox.request import parse_versions
from pulsar_sandbox.sandbox.sandbox import Sandbox

app = typer.Typer(no_args_is_help=True, help="Real Pulsar clusters on this machine.")
_console = Console()
_errors = Console(stderr=True)
MEBIBYTE = 1024 * 1024
VERSION_HELP = "Pulsar's version, or that of some clusters: blue=3.0.7,green=4.2.4."

Folder = Annotated[Path, typer.Option(help="Where configuration, logs and data are.", default_factory=default_sandbox)]


@app.command()
def up(
    folder: Folder,
    clusters: Annotated[str, typer.Option(help="Names, separated by commas.")] = "blue,green",
    version: Annotated[str, typer.Option(help=VERSION_HELP)] = DEFAULT_VERSION,
    brokers: Annotated[int, typer.Option(help="Brokers in each cluster.")] = 1,
    secure: Annotated[bool, typer.Option("--secure", help="Tokens, authorization and TLS.")] = False,
    shared_store: Annotated[
        bool, typer.Option("--shared-store", help="One configuration store: the same tenants and namespaces.")
    ] = False,
    port_base: Annotated[int | None, typer.Option(help="Use this port and the next ones; else any free.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave them running; 'down' stops them.")] = False,
) -> None:
    """Start clusters. Without --detach they run until Ctrl-C; their data stays for the next time."""
    names = [name.strip() for name in clusters.split(",")]
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    with _plain_errors(), _progress() as progress:
        sandbox = Sandbox.start(
            folder,
            clusters=names,
            version=parse_versions(version),
            brokers=brokers,
            secure=secure,
            shared_store=shared_store,
            port_base=port_base,
            progress=progress,
        )
        if detach:
            sandbox.release()
    _console.print(_table(sandbox))
    if secure:
        _console.print(f"Tokens and trust file: {sandbox.folder / 'security'}", soft_wrap=True)
    if detach:
        _console.print(f"Stop them with: pulsar-fleet sandbox down --folder {sandbox.folder}", soft_wrap=True)
    else:
        _stay(sandbox)


@app.command()
def status(
    folder: Folder, as_json: Annotated[bool, typer.Option("--json", help="For programs, on one line.")] = False
) -> None:
    """Show the clusters of a folder. Exits with 1 if a broker is not healthy."""
    with _plain_errors():
        sandbox = Sandbox.attach(folder)
    if as_json:
        typer.echo(json.dumps(_document(sandbox)))
    else:
        _console.print(_table(sandbox))
    if not all(cluster.is_healthy(number) for cluster in sandbox for number in range(len(cluster.pids))):
        raise typer.Exit(1)


@app.command()
def down(folder: Folder) -> None:
    """Stop the clusters of a folder; their data stays."""
    with _plain_errors(), _progress() as progress:
        progress(f"Stopping the sandbox in {folder}")
        Sandbox.down(folder)
    _console.print("Stopped.")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _stay(sandbox: Sandbox) -> None:
    """Keep the clusters until they are interrupted, or stopped by `down`."""
    _console.print("Running until Ctrl-C.")
    with sandbox:
        try:
            while sandbox.running:
                time.sleep(1)
        except KeyboardInterrupt:
            _console.print("Stopping.")


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except FleetError as error:
        _errors.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the last message after a spinner; without a terminal, one line per message."""
    if not _console.is_terminal:
        yield lambda message: _console.print(message, markup=False, soft_wrap=True)
        return
    with _console.status("Looking around") as spinner:
        yield spinner.update


def _table(sandbox: Sandbox) -> Table:
    versions = ", ".join(sorted(sandbox.layout.versions))
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left", title_style="")
    table.title = f"Pulsar {versions} in {sandbox.folder}"
    for heading in ("cluster", "admin URL", "service URL", "pid"):
        table.add_column(heading, overflow="fold")
    table.add_column("memory", justify="right", no_wrap=True)
    for cluster in sandbox:
        secure = sandbox.layout.secure
        table.add_row(
            cluster.name,
            "\n".join([*cluster.admin_urls, *([cluster.admin_url_tls] if secure else [])]),
            "\n".join([cluster.service_url, *([cluster.service_url_tls] if secure else [])]),
            "\n".join(_pid_and_state(cluster, number) for number in range(len(cluster.pids))),
            f"{cluster.memory / MEBIBYTE:.0f} MiB",
        )
    return table


def _pid_and_state(cluster: Cluster, number: int) -> str:
    state = _state(cluster, number)
    return str(cluster.pids[number]) if state == "healthy" else state


def _state(cluster: Cluster, number: int) -> str:
    if cluster.pids[number] is None:
        return "stopped"
    return "healthy" if cluster.is_healthy(number) else "not healthy"


def _document(sandbox: Sandbox) -> dict[str, Json]:
    clusters: list[Json] = [
        {
            "name": cluster.name,
            "version": cluster.version,
            "admin_urls": list(cluster.admin_urls),
            "service_url": cluster.service_url,
            "admin_url_tls": cluster.admin_url_tls if sandbox.layout.secure else None,
            "service_url_tls": cluster.service_url_tls if sandbox.layout.secure else None,
            "memory_bytes": cluster.memory,
            "brokers": [
                {"pid": pid, "version": cluster.layout.versions[number], "state": _state(cluster, number)}
                for number, pid in enumerate(cluster.pids)
            ],
        }
        for cluster in sandbox
    ]
    return {
        "folder": str(sandbox.folder),
        "secure": sandbox.layout.secure,
        "owner": sandbox.layout.owner,
        "clusters": clusters,
    }


if __name__ == "__main__":
    app()
