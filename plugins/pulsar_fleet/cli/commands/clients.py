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
from pulsar_fleet.migration.preflight.redirect_probe import advertised_addresses, probe_stored

PROCEDURE = "set_clients"
_MOST = 10

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
        if not group:
            known = [one for name in documents.groups() if (one := documents.published(name))]
            problems = [problem for one in known if (problem := documents.problem(one.group))]
            terminal.say("\n".join(map(_line, known)) or "There is no connection document.")
            _finish(terminal, problems, {"groups": [one.to_json() for one in known]})
        with usage_errors():
            newest = documents.published(require_group(group))
        if newest is None:
            raise NotFound(f"There is no connection document of {group!r}: `pulsar-fleet clients show` lists those.")
        history = documents.history(group)[:_MOST]
        rows = (f"  {one.version:>4}  {one.at}  {one.by}  {one.cluster}  {one.why}" for one in history)
        terminal.say("\n".join(line.rstrip() for line in (_line(newest), *rows)))
        document = {**newest.to_json(), "history": [one.to_json() for one in history]}
        _finish(terminal, [problem] if (problem := documents.problem(group)) else [], document)


@clients.command(name="set")
def set_(
    group: Annotated[str, typer.Argument(help="The group of applications, such as orders.")],
    cluster: Annotated[str, typer.Argument(help=f"Where they connect. {CLUSTER_HELP}")],
    service_url: Annotated[
        str, typer.Option(help="What applications use to reach it, such as a proxy. Default: that of the cluster.")
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
    change_tls: Annotated[
        bool, typer.Option("--change-tls", help="From pulsar:// to pulsar+ssl://, or back: Java clients are restarted.")
    ] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Only the applications reach the service URL, not this host.")
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
                service_url=service_url or "pulsar://any",
                trust_file=trust_file if service_url else "",
                auth_plugin=auth_plugin,
                auth_parameters=auth_parameters,
            )
            given.require_valid()
        expected, history = documents.newest(group), documents.history(group)
        if not history and not new:
            raise UsageError(f"{group!r} has no connection document: check the name, or add --new to begin one.")
        named = named_cluster(cluster, Side.SOURCE)
        # That of the environment is of whichever cluster the shell was set up for.
        named = replace(named, service_url=None) if "://" in cluster else named
        reached = run_interruptibly(reach(named))
        url = service_url or reached.connection.service_url
        if not url:
            raise UsageError(f"{reached.name} names no service URL: add --service-url with what applications use.")
        given = replace(given, service_url=url, trust_file=trust_file)
        wanted = _completed(given, reached.name, history)
        with usage_errors():
            wanted.require_valid()
            _require_followed(wanted, history, change_tls=change_tls)
        if not unverified:
            run_interruptibly(_require_answer(reached.connection, reached.name, url))
        before = _current(documents, group)
        if before and before.document == wanted and not _problem(documents, group):
            terminal.say(f"The applications of {group} connect there: {_line(before)}")
            terminal.finish({"changed": False, **before.to_json()}, ExitState.DONE)
        terminal.show(_difference(group, reached.name, before, wanted))
        if dry_run:
            terminal.finish({"changed": False, "document": wanted.to_json()}, ExitState.DONE)
        require_consent(f"where the applications of {group} connect", yes=yes)
        require_permitted(yes=yes)
        if not yes and not terminal.confirm(f"Let the applications of {group} connect to {reached.name}?"):
            raise PreconditionFailed("It was not approved. Applications stay where they are.")
        conf = {"group": group, "cluster": cluster, "document": wanted.to_json(), "why": why}
        with recorded_run(terminal, "clients-set", PROCEDURE, conf) as run:
            by = f"{this_user()} on {gethostname()}"
            # Stopped half-way, it could not say whether clients move.
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                made = documents.publish(group, wanted, cluster=reached.name, by=by, why=why, expected=expected)
            finally:
                signal.signal(signal.SIGINT, handler)
        terminal.say(
            f"{_line(made)}\nAn application that starts while it cannot read the document begins at its own default: "
            f"change that to {url} before you restart one. Java clients begin there at every start, for one interval."
        )
        terminal.finish({"changed": True, "run": run.id, **made.to_json()}, ExitState.DONE)


def _completed(given: ConnectionDocument, cluster: str, history: Sequence[Publication]) -> ConnectionDocument:
    """With what the last version for this cluster had: the files of one cluster are none of the other."""
    last = next((one.document for one in history if one.cluster == cluster), None)
    if last is None:
        return given
    wanted = given if given.trust_file or not given.uses_tls else replace(given, trust_file=last.trust_file)
    if wanted.auth_plugin:
        return wanted
    return replace(wanted, auth_plugin=last.auth_plugin, auth_parameters=last.auth_parameters)


def _require_followed(wanted: ConnectionDocument, history: Sequence[Publication], *, change_tls: bool) -> None:
    """Refuse what a running Java client cannot follow: by its byte code it keeps what a document leaves out, and never
    changes between connections with and without TLS (3.0.7, 4.2.4, 5.0.1)."""
    if change_tls or not history:
        return
    newest, had = history[0].version, history[0].document
    if had.uses_tls != wanted.uses_tls:
        raise InvalidRequest(
            f"{wanted.service_url} and version {newest}, {had.service_url}, differ in TLS: a Java client that runs "
            "cannot change between pulsar:// and pulsar+ssl://, nor come back. Name an address of the same kind by "
            "--service-url; or add --change-tls, and restart the Java clients of the group with the new address as "
            "their default."
        )
    for name, options in (("trust_file", "--trust-file"), ("auth_plugin", "--auth-plugin and --auth-parameters")):
        if getattr(had, name) and not getattr(wanted, name):
            raise InvalidRequest(
                f"Version {newest} has {getattr(had, name)!r}, and this one would leave it out: a Java client would "
                f"keep it on the other cluster. Add {options}."
            )


async def _require_answer(connection: ClusterConnection, name: str, url: str) -> None:
    """Refuse a service URL at which the cluster does not answer, or another one does."""
    async with AdminClient(connection) as admin:
        try:
            advertised = await advertised_addresses(admin)
        except FleetError:
            advertised = {}
    (probe,) = await probe_stored(connection, {"brokerServiceUrl": url}, advertised)
    own = {address for addresses in advertised.values() for address in addresses.values()}
    if probe.answered in own and probe.answered:
        return
    found = probe.error or probe.detail.replace("{green}", name) or f"{probe.answered} answers there"
    raise PreconditionFailed(
        f"It is not known that {url} leads to {name}: {found}. Applications stay where they are. Correct "
        "--service-url; or add --unverified, if only the applications reach it."
    )


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


def _line(one: Publication) -> str:
    return f"{one.group}: {one.document.service_url} ({one.cluster}), version {one.version} of {one.at} by {one.by}"


def _finish(terminal: Terminal, problems: Sequence[str], document: JsonObject) -> None:
    for problem in problems:
        terminal.note(problem, style="red")
    terminal.finish({**document, "problems": list(problems)}, ExitState.DIFFERENT if problems else ExitState.DONE)
