"""Which document leads the clients of a group to a cluster: its address, and files that Java clients keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.clients.store import ConnectionDocuments, Publication
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.text import command_line

_WITH_TLS = "pulsar+ssl://"


def asked_document(service_url: str, trust_file: str, auth_plugin: str, auth_parameters: str) -> ConnectionDocument:
    """What a person asks for, valid by itself: without an address one that stands for any of its kind."""
    asked = ConnectionDocument(
        service_url=service_url or (f"{_WITH_TLS}any" if trust_file else "pulsar://any"),
        trust_file=trust_file,
        auth_plugin=auth_plugin,
        auth_parameters=auth_parameters,
    )
    asked.require_valid()
    return asked


def next_document(
    asked: ConnectionDocument,
    url: str,
    cluster: str,
    before: Publication | None,
    history: Sequence[Publication],
    *,
    restart_java: bool,
) -> ConnectionDocument:
    """The document that leads clients to a cluster at an address; `InvalidRequest` for what they could not follow.

    :param before: what they follow now.
    :param restart_java: the Java clients are restarted, which may then get other files.
    """
    wanted = replace(asked, service_url=url)
    if not restart_java or (before and before.cluster != cluster):
        # To leave files out needs the option and the cluster that clients are on: nobody sees it in a move.
        wanted = _completed(wanted, cluster, history)
    wanted.require_valid()
    if before and not restart_java:
        _require_followed(wanted, before, cluster)
    return wanted


def require_led_to(documents: ConnectionDocuments, group: str, cluster: str) -> Publication:
    """What the clients of a group follow; `PreconditionFailed` where that is not this cluster."""
    published = documents.latest(group)
    if published is None:
        raise PreconditionFailed(
            f"{documents.folder} has no connection document of {group!r}. Begin one for {cluster}, and let the "
            "applications follow it: pulsar-fleet clients set, with --new."
        )
    if published.cluster != cluster:
        raise PreconditionFailed(
            f"They are not led to {cluster}: {published.text()}. Look: {command_line('clients', 'show', group)}. No "
            "client was moved."
        )
    return published


def address_of(connection: ClusterConnection, before: Publication | None) -> str:
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
