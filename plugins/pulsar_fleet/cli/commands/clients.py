"""`pulsar-fleet clients …`: the document that says where the applications of a group connect."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from socket import gethostname
from typing import Annotated

import typer

from pulsar_fleet.cli.clusters import named_cluster, reach
from pulsar_fleet.cli.interrupts import run_interruptibly
from pulsar_fleet.cli.options import CLUSTER_HELP, AsJson, DryRun, Yes
from pulsar_fleet.cli.runs import recorded_run, require_permitted
from pulsar_fleet.cli.terminal import ExitState, Terminal, UsageError, require_consent, usage_errors
from pulsar_fleet.clients.choice import address_of, asked_document, next_document
from pulsar_fleet.clients.document import ConnectionDocument, require_group
from pulsar_fleet.clients.store import ConnectionDocuments, Publication, Reader
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted, duration, listed
from pulsar_fleet.ledger.run import this_user
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.migration.preflight.redirect_probe import require_answer

PROCEDURE = "set_clients"
_MOST = 10
_WITH_TLS = "pulsar+ssl://"

clients = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="The documents that say where groups of applications connect, which their clients follow while they run.",
)


@clients.command()
def show(
    group: Annotated[str, typer.Argument(help="The group; default: every group.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show where the applications of a group connect, since when, and who has changed it. Exits with 3 on a problem."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        documents = ConnectionDocuments.open()
        with usage_errors():
            names = [require_group(group)] if group else documents.groups()
        published = [one for name in names if (one := documents.current(name))]
        problems = [problem for name in names if (problem := _problem(documents, name))]
        if group and not (published or documents.newest(group)):
            raise NotFound(f"{documents.folder} has no document of {group!r}: `pulsar-fleet clients show` lists all.")
        lines = [_line(one) for one in published]
        document: JsonObject = {"folder": documents.folder, "groups": [one.to_json() for one in published]}
        if group:
            history = documents.history(group)[:_MOST]
            lines += [f"  {one.version:>4}  {one.at}  {one.by}  {one.cluster}  {one.why}".rstrip() for one in history]
            document["history"] = [one.to_json() for one in history]
            readers = documents.readers(group)
            document["readers"] = [reader.to_json() for reader in readers]
            lines += [_read_by(readers)] if readers else []
        terminal.say("\n".join(lines) or f"{documents.folder} has no connection document.")
        for problem in problems:
            terminal.note(problem, style="red")
        state = ExitState.DIFFERENT if problems else ExitState.DONE
        terminal.finish({**document, "problems": problems}, state)


@clients.command(name="set")
def set_(
    group: Annotated[str, typer.Argument(help="The group of applications, such as orders.")],
    cluster: Annotated[str, typer.Argument(help=f"Where they connect. {CLUSTER_HELP}")],
    service_url: Annotated[
        str,
        typer.Option(
            help="What applications use to reach it, such as a proxy. Default: the addresses of applications of the "
            "connection, else its service URL, else that of the cluster."
        ),
    ] = "",
    trust_file: Annotated[
        str,
        typer.Option(
            help="PEM file with the trusted certificates, on the hosts of the applications. Default: that of the last "
            "version for this cluster."
        ),
    ] = "",
    auth_plugin: Annotated[
        str, typer.Option(help="Class of Java's client. Default: as in the last version for this cluster.")
    ] = "",
    auth_parameters: Annotated[
        str, typer.Option(help="Of that class: a file on the hosts of the applications, file:///etc/pulsar/token.")
    ] = "",
    new: Annotated[bool, typer.Option("--new", help="The group has no document yet.")] = False,
    restart_java: Annotated[
        bool,
        typer.Option(
            "--restart-java",
            help="You restart the Java clients of the group: the document may then change TLS, and add or leave out a "
            "trust file or credentials.",
        ),
    ] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Do not ask the service URL whether the cluster answers there.")
    ] = False,
    why: Annotated[str, typer.Option(help="For those who read the history.")] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let the applications of a group connect to a cluster: clients that follow the document move while they run."""
    terminal = Terminal(as_json=as_json)
    with terminal.plain_errors():
        with usage_errors():
            require_group(group)
            documents = ConnectionDocuments.open()
            asked = asked_document(service_url, trust_file, auth_plugin, auth_parameters)
        expected, history = documents.newest(group), documents.history(group)
        if not history and not new:
            raise UsageError(
                f"{group!r} has no connection document in {documents.folder}: check the name and the folder, or add "
                "--new to begin one."
            )
        before = documents.latest(group)
        name, connection = _reached(cluster, service_url if unverified else "", history)
        url = service_url or address_of(connection, before)
        if not url:
            raise UsageError(f"{name} names no service URL: add --service-url with what applications use.")
        with usage_errors():
            wanted = next_document(asked, url, name, before, history, restart_java=restart_java)
        if not unverified:
            run_interruptibly(require_answer(connection, name, url))
        if before and before.document == wanted and not _problem(documents, group):
            terminal.say(f"The applications of {group} connect there: {_line(before)}")
            terminal.finish({"changed": False, **before.to_json()}, ExitState.DONE)
        terminal.show(_difference(group, name, before, wanted))
        if dry_run:
            terminal.finish({"changed": False, "document": wanted.to_json()}, ExitState.DONE)
        _approve(terminal, f"Let the applications of {group} connect to {name}?", yes=yes)
        conf = {"group": group, "cluster": cluster, "document": wanted.to_json(), "why": why}
        with recorded_run(terminal, "clients-set", PROCEDURE, conf) as run:
            by = f"{this_user()} on {gethostname()}"
            # Stopped half-way, it could not say whether clients move.
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                made = documents.publish(group, wanted, cluster=name, by=by, why=why, expected=expected)
            finally:
                signal.signal(signal.SIGINT, handler)
        terminal.say(_published(made, documents.folder, first=not history))
        terminal.finish({"changed": True, "run": run.id, "folder": documents.folder, **made.to_json()}, ExitState.DONE)


def _reached(cluster: str, trusted_url: str, history: Sequence[Publication]) -> tuple[str, ClusterConnection]:
    """The cluster's own name and its connection.

    :param trusted_url: with one the cluster need not answer: its brokers may serve all the same, and nobody else could
        move the clients back.
    """
    named = named_cluster(cluster, Side.SOURCE)
    # That of the environment is of whichever cluster the shell was set up for.
    named = replace(named, service_url=None) if "://" in cluster else named
    try:
        reached = run_interruptibly(reach(named))
    except FleetError as error:
        if not trusted_url:
            way = "If you know where the applications reach it: --service-url with --unverified."
            raise type(error)(f"{error} {way}", status=error.status) from error
        return next((one.cluster for one in history if one.document.service_url == trusted_url), named.name), named
    return reached.name, reached.connection


def _approve(terminal: Terminal, question: str, *, yes: bool) -> None:
    require_consent("where applications connect", yes=yes)
    # Not by another person: who moves clients can move them back, and at night there may be nobody else.
    require_permitted(yes=yes, by_another=False)
    if not yes and not terminal.confirm(question):
        raise PreconditionFailed("It was not approved. Applications stay where they are.")


def _read_by(readers: Sequence[Reader]) -> str:
    now = time.time()
    hosts = (f"{reader.host} ({duration(max(0.0, now - reader.at))} ago)" for reader in readers)
    return f"  read from Airflow's server by {counted(len(readers), 'host')}: {listed(hosts, _MOST)}"


def _problem(documents: ConnectionDocuments, group: str) -> str:
    try:
        return documents.problem(group)
    except FleetError as error:
        return str(error)


def _difference(group: str, cluster: str, before: Publication | None, wanted: ConnectionDocument) -> str:
    """Every field that changes, a line each."""
    had, have = before.document.to_json() if before else {}, wanted.to_json()
    changed = [key for key in {**had, **have} if had.get(key) != have.get(key)]
    lines = (f"  {key}: {had.get(key, '(none)')} → {have.get(key, '(none)')}" for key in changed)
    return "\n".join([f"{group} → {cluster}:", *lines])


def _published(made: Publication, folder: str, *, first: bool) -> str:
    url = made.document.service_url
    kind = _WITH_TLS if made.document.uses_tls else "pulsar://"
    lines = [
        f"{_line(made)}, in {folder}",
        f"Change the default of the applications to {url} before you restart one: a Java client begins there at every "
        "start, others while they cannot read the document.",
        f"Java clients whose default is no {kind} address cannot follow it: restart them with one." if first else "",
    ]
    return "\n".join(filter(None, lines))


def _line(one: Publication) -> str:
    return f"{one.group}: {one.document.service_url} ({one.cluster}), version {one.version} of {one.at} by {one.by}"
