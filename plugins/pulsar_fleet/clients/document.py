"""The connection document of a group of applications, in the format of Java's `ControlledClusterFailover` (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json

GROUP = re.compile(r"(?!.*\.json$)[a-z0-9][a-z0-9._-]{0,62}")
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::(\d{1,5}))?"
_ADDRESS = re.compile(rf"pulsar(?:\+ssl)?://{_HOST}(?:,{_HOST})*/?")
_PORT = re.compile(r":(\d+)")
_TLS = "pulsar+ssl://"
_KEYS = {
    "service_url": "serviceUrl",
    "trust_file": "tlsTrustCertsFilePath",
    "auth_plugin": "authPluginClassName",
    "auth_parameters": "authParamsString",
}
TOKEN_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"  # noqa: S105 a class of Java's client
TLS_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
_PARAMETERS = {TOKEN_PLUGIN: re.compile(r"file://\S+"), TLS_PLUGIN: re.compile(r"tlsCertFile:[^,]+,tlsKeyFile:[^,]+")}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDocument(Document):
    """Where the applications of a group connect. It contains no secret: whoever reads it may read all of it.

    :param service_url: of the cluster, `pulsar://host:port` or `pulsar+ssl://…`; several hosts with commas.
    :param trust_file: PEM file on the hosts of the applications, for TLS; empty: what their client has by itself.
    :param auth_plugin: `TOKEN_PLUGIN` or `TLS_PLUGIN`; empty: the applications keep their own credentials.
    :param auth_parameters: of that plugin: it names files on the hosts of the applications.
    """

    service_url: str
    trust_file: str = ""
    auth_plugin: str = ""
    auth_parameters: str = ""

    @property
    def uses_tls(self) -> bool:
        """Whether clients encrypt what they send."""
        return self.service_url.startswith(_TLS)

    def require_valid(self) -> None:
        """Refuse by `InvalidRequest` what a client could not follow, and secrets."""
        ports = [int(port) for port in _PORT.findall(self.service_url)]
        # Python's client takes no IPv6 address (observed, 3.13.0).
        if not _ADDRESS.fullmatch(self.service_url) or max(ports, default=1) > 65535:
            raise InvalidRequest(
                f"{self.service_url!r} is not a service URL: write pulsar://host:6650 or pulsar+ssl://host:6651, "
                "several hosts with commas. An admin URL, http://…, is none, and no client of Python takes an IPv6 "
                "address: use a name."
            )
        if self.trust_file and not self.uses_tls:
            raise InvalidRequest(
                f"{self.service_url} has no TLS, and the document names the trusted certificates {self.trust_file!r}: "
                "use the pulsar+ssl:// address, or leave the certificates out."
            )
        if self.auth_plugin or self.auth_parameters:
            pattern = _PARAMETERS.get(self.auth_plugin)
            if pattern is None:
                raise InvalidRequest(
                    f"{self.auth_plugin!r} is no class of authentication that a document may name: use {TOKEN_PLUGIN} "
                    f"or {TLS_PLUGIN}, or neither: then the applications keep their own credentials."
                )
            if not pattern.fullmatch(self.auth_parameters):
                raise InvalidRequest(
                    "A connection document contains no secret, since every application reads it: as parameters of the "
                    "authentication name files on their hosts, file:///etc/pulsar/token, or "
                    "tlsCertFile:/etc/pulsar/cert.pem,tlsKeyFile:/etc/pulsar/key.pem."
                )

    def document_of(self) -> Json:
        """The document as clients read it; keys that say nothing are left out."""
        values = {key: getattr(self, name) for name, key in _KEYS.items()}
        return {key: value for key, value in values.items() if value}

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """What clients would read; `InvalidRequest` if none could follow it."""
        given = document if isinstance(document, dict) else {}
        fields = {name: str(given.get(key) or "") for name, key in _KEYS.items()}
        cls(**fields).require_valid()
        return fields


def require_group(name: str) -> str:
    """Refuse by `InvalidRequest` a name of a group that cannot be a part of an address; returns it."""
    if not GROUP.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is not a name of a group: use at most 63 lower-case letters, digits, '.', '_' and '-', and no "
            "'.json' at the end."
        )
    return name
