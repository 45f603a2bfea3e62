"""How brokers of other clusters authenticate to a cluster to which they replicate, as cluster data has it (pure)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.oauth2 import OAuth2

_PLUGINS = "org.apache.pulsar.client.impl.auth."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationAuth:
    """Credentials and trust of the brokers that replicate to a cluster. Every path is one on these brokers.

    Without a credential brokers use that of their own configuration, `brokerClientAuthenticationParameters` (observed);
    without a trust file they do not use that of their configuration (observed): they trust what their JVM trusts.

    :param token: a JWT; it is stored in the cluster data, which a superuser can read.
    :param token_file: a file with the JWT.
    :param oauth2: a client of an issuer.
    :param user: the user of basic authentication; its password too is stored in the cluster data.
    :param tls_trust_file: PEM of the authorities that signed the certificates of the cluster.
    :param tls_certificate_file: PEM of a client certificate; needs `tls_key_file`.
    """

    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    oauth2: OAuth2 | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls_trust_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None

    def cluster_data(self) -> JsonObject:
        """The keys of a cluster's data for it; `authenticationParameters` may hold a secret."""
        trust = {"brokerClientTrustCertsFilePath": self.tls_trust_file} if self.tls_trust_file else {}
        plugin, parameters = self._authentication()
        return {**trust, "authenticationPlugin": plugin, "authenticationParameters": parameters} if plugin else trust

    def _authentication(self) -> tuple[str, str]:
        if self.oauth2:
            return f"{_PLUGINS}oauth2.AuthenticationOAuth2", _oauth2_parameters(self.oauth2)
        if self.token or self.token_file:
            parameters = f"token:{self.token}" if self.token else f"file://{self.token_file}"
            return f"{_PLUGINS}AuthenticationToken", parameters
        if self.user:
            parameters = json.dumps({"userId": self.user, "password": self.password})
            return f"{_PLUGINS}AuthenticationBasic", parameters
        if self.tls_certificate_file:
            files = f"tlsCertFile:{self.tls_certificate_file},tlsKeyFile:{self.tls_key_file}"
            return f"{_PLUGINS}AuthenticationTls", files
        return "", ""


def _oauth2_parameters(oauth2: OAuth2) -> str:
    if oauth2.key_file:
        key = f"file://{oauth2.key_file}"
    else:
        content = {"type": "client_credentials", "client_id": oauth2.client_id, "client_secret": oauth2.client_secret}
        key = f"data:application/json;base64,{base64.b64encode(json.dumps(content).encode()).decode()}"
    fields = {
        "type": "client_credentials",
        "privateKey": key,
        "issuerUrl": oauth2.issuer_url,
        "audience": oauth2.audience,
        "scope": oauth2.scope,
    }
    return json.dumps({name: value for name, value in fields.items() if value})
