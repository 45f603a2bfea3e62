"""`pulsar-fleet clients …`: the document that says where the applications of a group connect."""

from __future__ import annotations

import signal
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
from pulsar_fleet.clients.document import ConnectionDocument, require_group
from pulsar_fleet.clients.store import ConnectionDocuments, Publication
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import this_user
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.migration.preflight.redirect_probe import advertised_addresses, probe_hosts

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
        published = [one for name in names if (one := _current(documents, name))]
        problems = [problem for name in names if (problem := _problem(documents, name))]
        if group and not (published or documents.newest(group)):
            raise NotFound(f"{documents.folder} has no document of {group!r}: `pulsar-fleet clients show` lists all.")
        lines = [_line(one) for one in published]
        document: JsonObject = {"folder": documents.folder, "groups": [one.to_json() for one in published]}
        if group:
            history = documents.history(group)[:_MOST]
            lines += [f"  {one.version:>4}  {one.at}  {one.by}  {one.cluster}  {one.why}".rstrip() for one in history]
            document["history"] = [one.to_json() for one in history]
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
            given = ConnectionDocument(
                service_url=service_url or (f"{_WITH_TLS}any" if trust_file else "pulsar://any"),
                trust_file=trust_file,
                auth_plugin=auth_plugin,
                auth_parameters=auth_parameters,
            )
            given.require_valid()
        expected, history = documents.newest(group), documents.history(group)
        if not history and not new:
            raise UsageError(
                f"{group!r} has no connection document in {documents.folder}: check the name and the folder, or add "
                "--new to begin one."
            )
        before = _current(documents, group) or next(iter(history), None)
        name, connection = _reached(cluster, service_url if unverified else "", history)
        url = service_url or _address(connection, before)
        if not url:
            raise UsageError(f"{name} names no service URL: add --service-url with what applications use.")
        wanted = replace(given, service_url=url)
        if not restart_java or (before and before.cluster != name):
            # To leave files out needs the option and the cluster that clients are on: nobody sees it in a move.
            wanted = _completed(wanted, name, history)
        with usage_errors():
            wanted.require_valid()
            if before and not restart_java:
                _require_followed(wanted, before, name)
        if not unverified:
            run_interruptibly(_require_answer(connection, name, url))
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


def _address(connection: ClusterConnection, before: Publication | None) -> str:
    """What applications use: of the kind that they use now, where the connection has both."""
    # It may also have those of the admin API.
    named = [url for url in connection.client_urls if url.startswith(("pulsar://", _WITH_TLS))]
    alike = [url for url in named if before and url.startswith(_WITH_TLS) == before.document.uses_tls]
    return next(iter((*alike, *named)), "") or connection.service_url or ""


def _completed(given: ConnectionDocument, cluster: str, history: Sequence[Publication]) -> ConnectionDocument:
    """With what the last version for this cluster had: the files of one cluster are none of the other."""
    last = next((one.document for one in history if one.cluster == cluster), None)
    if last is None:
        return given
    wanted = given if given.trust_file or not given.uses_tls else replace(given, trust_file=last.trust_file)
    if wanted.auth_plugin:
        return wanted
    return replace(wanted, auth_plugin=last.auth_plugin, auth_parameters=last.auth_parameters)


def _require_followed(wanted: ConnectionDocument, before: Publication, cluster: str) -> None:
    """Refuse what a running Java client cannot follow, or not come back from.

    By its byte code it keeps what a document leaves out, and never changes between connections with and without TLS
    (3.0.7, 4.2.4, 5.0.1).
    """
    had, number = before.document, before.version
    way = "or add --restart-java, and restart the Java clients of the group with the new address as their default."
    if had.uses_tls != wanted.uses_tls:
        raise InvalidRequest(
            f"{wanted.service_url} and version {number}, {had.service_url}, differ in TLS: a Java client that runs "
            "cannot change between pulsar:// and pulsar+ssl://, nor come back. Name an address of the same kind by "
            f"--service-url; {way}"
        )
    for name, options in (("trust_file", "--trust-file"), ("auth_plugin", "--auth-plugin and --auth-parameters")):
        old, new = getattr(had, name), getattr(wanted, name)
        if old and not new:
            raise InvalidRequest(
                f"Version {number} has {old!r}, and this one would leave it out: a Java client would keep it on the "
                f"other cluster. Add {options}; {way}"
            )
        if new and not old and before.cluster != cluster:
            raise InvalidRequest(
                f"This version has {new!r}, and version {number} has none: a Java client that comes back would keep "
                f"it. Begin with a document of the present cluster that has {options} too; {way}"
            )


async def _require_answer(connection: ClusterConnection, name: str, url: str) -> None:
    """Refuse a service URL at which the cluster does not answer, or another one does."""
    async with AdminClient(connection) as admin:
        try:
            advertised = await advertised_addresses(admin)
        except FleetError as error:
            raise PreconditionFailed(_unknown(url, name, str(error))) from error
    own = {_host(address) for addresses in advertised.values() for address in addresses.values()}
    # Nobody has said of another address that it is the cluster's: it gets no credentials.
    anonymous = url not in (connection.service_url, *connection.client_urls)
    probes = await probe_hosts(connection, url, advertised, anonymous=anonymous)
    # By hosts: a proxy may end TLS, and its brokers have none.
    if other := next((one for one in probes if one.answered and _host(one.answered) not in own), None):
        raise PreconditionFailed(_unknown(url, name, f"at {_host(other.url)} {other.answered} answers"))
    if any(one.answered for one in probes) and not any(one.detail for one in probes):
        return
    texts = [one.error or one.detail or f"{_host(one.url)} answers" for one in probes]
    found = "; ".join(text.replace("{green}", name).rstrip(".") for text in texts)
    asks = ". It got no credentials: those are sent to addresses of the connection only" if anonymous else ""
    raise PreconditionFailed(_unknown(url, name, f"{found}{asks}"))


def _unknown(url: str, name: str, why: str) -> str:
    return (
        f"It is not known that {url} leads to {name}: {why.rstrip('.')}. Applications stay where they are. Correct the "
        "address; or add --unverified, if you know that the applications reach the cluster there."
    )


def _host(address: str) -> str:
    return address.partition("://")[2]


def _approve(terminal: Terminal, question: str, *, yes: bool) -> None:
    require_consent("where applications connect", yes=yes)
    # Not by another person: who moves clients can move them back, and at night there may be nobody else.
    require_permitted(yes=yes, by_another=False)
    if not yes and not terminal.confirm(question):
        raise PreconditionFailed("It was not approved. Applications stay where they are.")


def _current(documents: ConnectionDocuments, group: str) -> Publication | None:
    """What clients follow; of a group whose files are damaged nothing, so that it can be published again."""
    try:
        return documents.published(group)
    except FleetError:
        return None


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
        f"An application that starts while it cannot read the document begins at its own default: change that to {url} "
        "before you restart one. Java clients begin there at every start, for one interval.",
        f"Java clients whose default is no {kind} address cannot follow it: restart them with one." if first else "",
    ]
    return "\n".join(filter(None, lines))


def _line(one: Publication) -> str:
    return f"{one.group}: {one.document.service_url} ({one.cluster}), version {one.version} of {one.at} by {one.by}"
