"""Which document leads the clients of a group to a cluster: its address, and files that Java clients keep (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.clients.store import Publication
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest

_WITH_TLS = "pulsar+ssl://"


def address_of(connection: ClusterConnection, before: Publication | None) -> str:
    """What applications use: of the kind that they use now, where the connection has both."""
    # It may also have those of the admin API.
    named = [url for url in connection.client_urls if url.startswith(("pulsar://", _WITH_TLS))]
    alike = [url for url in named if before and url.startswith(_WITH_TLS) == before.document.uses_tls]
    return next(iter((*alike, *named)), "") or connection.service_url or ""


def completed(given: ConnectionDocument, cluster: str, history: Sequence[Publication]) -> ConnectionDocument:
    """With what the last version for this cluster had: the files of one cluster are none of the other."""
    last = next((one.document for one in history if one.cluster == cluster), None)
    if last is None:
        return given
    wanted = given if given.trust_file or not given.uses_tls else replace(given, trust_file=last.trust_file)
    if wanted.auth_plugin:
        return wanted
    return replace(wanted, auth_plugin=last.auth_plugin, auth_parameters=last.auth_parameters)


def require_followed(wanted: ConnectionDocument, before: Publication, cluster: str) -> None:
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
