"""The form of a connection of type `pulsar`, in one place: Airflow 3.1 asks the hook, later releases the metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field of the form.

    :param number: `number` or `integer` of a field for one, which the form checks. It checks nothing else (3.3.2): the
        hook does, so the button *Test* too.
    """

    label: str
    description: str
    number: str | None = None

    def json_schema(self) -> dict[str, Any]:
        """The schema of its value, which may be missing."""
        if self.number:
            return {"type": [self.number, "null"], "minimum": 1}
        return {"type": ["string", "null"]}


FIELDS: dict[str, FormField] = {
    "service_url": FormField(
        label="Broker service URL",
        description="pulsar://host:6650 or pulsar+ssl://host:6651",
    ),
    "token_file": FormField(
        label="Token file",
        description="Path on the workers of the file with the JWT; read at each use",
    ),
    "oauth2_key_file": FormField(
        label="OAuth 2.0 key file",
        description="Path of a JSON file on the workers: client_id, client_secret",
    ),
    "oauth2_client_id": FormField(
        label="OAuth 2.0 client", description="Instead of a key file; its secret is the password"
    ),
    "oauth2_issuer_url": FormField(
        label="OAuth 2.0 issuer",
        description="https://issuer.example; default: the key file's",
    ),
    "oauth2_audience": FormField(label="OAuth 2.0 audience", description="If the issuer requires one"),
    "oauth2_scope": FormField(label="OAuth 2.0 scope", description="If the issuer requires one"),
    "tls_trust_file": FormField(
        label="TLS trust file",
        description="PEM of the authorities that signed the brokers' keys",
    ),
    "tls_certificate_file": FormField(
        label="TLS certificate file",
        description="Client certificate (PEM), for mTLS",
    ),
    "tls_key_file": FormField(
        label="TLS key file",
        description="Key of the client certificate (PEM), for mTLS",
    ),
    "listener_name": FormField(
        label="Listener name", description="The advertised listener whose addresses workers reach"
    ),
    "cluster_name": FormField(
        label="Cluster name",
        description="For a role that may not read it from the broker",
    ),
    "broker_urls": FormField(
        label="Broker URLs",
        description="Of brokers behind a load balancer: https://{host}.example:8443 or a JSON object",
    ),
    "client_urls": FormField(
        label="Addresses of applications",
        description="Where they differ: pulsar://… pulsar+ssl://… with a space between",
    ),
    "replication_auth": FormField(
        label="Credentials of replication",
        description="Connection with those that brokers of other clusters use here",
    ),
    "broker_hosts": FormField(
        label="Broker hosts", description="For a role that may not list them: one.example,two.example"
    ),
    "timeout_seconds": FormField(label="Timeout of one call, seconds", description="Default: 30", number="number"),
    "max_connections": FormField(
        label="Connections to a broker", description="Default: 8; more are not faster", number="integer"
    ),
}

_HIDDEN = ["schema"]
_LABELS = {"host": "Admin URL", "login": "User name", "password": "Token (JWT) or password"}
_PLACEHOLDERS = {
    "host": "https://pulsar.example",
    "port": "8443; without it Airflow 3.3 refuses to test a stored connection",
    "login": "For basic authentication only; empty for a token",
}


def metadata() -> dict[str, Any]:
    """The form in the metadata of the provider, which Airflow reads from 3.2 on."""
    return {
        "ui-field-behaviour": {"hidden-fields": _HIDDEN, "relabeling": _LABELS, "placeholders": _PLACEHOLDERS},
        "conn-fields": {
            name: {"label": field.label, "description": field.description, "schema": field.json_schema()}
            for name, field in FIELDS.items()
        },
    }


def behaviour() -> dict[str, Any]:
    """Labels of the standard fields, as the hook tells them to Airflow 3.1."""
    return {"hidden_fields": _HIDDEN, "relabeling": _LABELS, "placeholders": _PLACEHOLDERS}


def widgets() -> dict[str, Any]:
    """The other fields, as the hook tells them to Airflow 3.1."""
    from wtforms import IntegerField, StringField

    kinds = {"integer": IntegerField}
    return {
        name: kinds.get(str(field.number), StringField)(field.label, description=field.description)
        for name, field in FIELDS.items()
    }
