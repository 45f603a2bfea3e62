"""Provider metadata for the `apache_airflow_provider` entry point: the connection type `pulsar`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Provider metadata: the connection type, its form and its hook."""

    def text(label: str, description: str) -> dict[str, Any]:
        return {"label": label, "description": description, "schema": {"type": ["string", "null"]}}

    return {
        "package-name": "pulsar-fleet",
        "name": "Apache Pulsar",
        "description": "Runbooks for fleets of Apache Pulsar clusters.",
        "versions": [version("pulsar-fleet")],
        "connection-types": [
            {
                "connection-type": "pulsar",
                "hook-class-name": "pulsar_fleet.airflow.hooks.pulsar.PulsarHook",
                "hook-name": "Apache Pulsar cluster",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login"],
                    "relabeling": {"host": "Admin URL", "password": "Token (JWT)"},
                    "placeholders": {"host": "https://pulsar.example:8443"},
                },
                "conn-fields": {
                    "service_url": text("Broker service URL", "pulsar://host:6650 or pulsar+ssl://host:6651"),
                    "token_file": text("Token file", "Path on the workers of the file with the JWT; read at each use"),
                    "oauth2_key_file": text(
                        "OAuth 2.0 key file", "Path of a JSON file on the workers: client_id, client_secret"
                    ),
                    "oauth2_client_id": text("OAuth 2.0 client", "Instead of a key file; its secret is the password"),
                    "oauth2_issuer_url": text("OAuth 2.0 issuer", "https://issuer.example; default: the key file's"),
                    "oauth2_audience": text("OAuth 2.0 audience", "If the issuer requires one"),
                    "oauth2_scope": text("OAuth 2.0 scope", "If the issuer requires one"),
                    "tls_trust_file": text("TLS trust file", "PEM of the authorities that signed the brokers' keys"),
                    "tls_certificate_file": text("TLS certificate file", "Client certificate (PEM), for mTLS"),
                    "tls_key_file": text("TLS key file", "Key of the client certificate (PEM), for mTLS"),
                    "cluster_name": text("Cluster name", "For a role that may not read it from the broker"),
                    "broker_urls": text(
                        "Broker URLs", "Of brokers behind a load balancer: https://{host}.example:8443 or a JSON object"
                    ),
                    "broker_hosts": text("Broker hosts", "For a role that may not list them: one.example,two.example"),
                    "timeout_seconds": text("Timeout of one call, seconds", "Default: 30"),
                    "max_connections": text("Connections to a broker", "Default: 8; more are not faster"),
                },
            }
        ],
    }
