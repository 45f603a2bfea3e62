"""How to reach one cluster, as a value that never shows its secrets."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pulsar_fleet.cluster.errors import Rejected
from pulsar_fleet.cluster.oauth2 import OAuth2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """Where a cluster answers and who we are there.

    :param name: what a person calls it: the Airflow connection id, or the cluster's name on the command line.
    :param admin_url: base of the admin API, `http://host:port`, without `/admin/v2`.
    :param service_url: `pulsar://…` or `pulsar+ssl://…` for messages.
    :param token: a JWT, or None without token authentication.
    :param token_file: a file that holds the JWT; read at each use, so that rotated tokens are seen.
    :param oauth2: where to get tokens instead, and as whom.
    :param tls_trust_file: PEM of the certificate authorities to trust; the system's when None.
    :param tls_certificate_file: PEM of our own certificate, for mTLS; with `tls_key_file`.
    :param cluster_name: the cluster's own name, for a role that may not ask the broker for it.
    :param broker_hosts: hosts that calls may be redirected to with the token, for a role that may not list the brokers.
    :param timeout_seconds: for one HTTP call.
    :param max_connections: HTTP connections to one broker; more than 8 gain nothing (measured).
    """

    name: str
    admin_url: str
    service_url: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    oauth2: OAuth2 | None = None
    tls_trust_file: str | None = None
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    cluster_name: str | None = None
    broker_hosts: tuple[str, ...] = ()
    timeout_seconds: float = 30.0
    max_connections: int = 8

    def __post_init__(self) -> None:
        parts = urlsplit(self.admin_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Rejected(
                f"The admin URL {self.admin_url!r} of {self.name!r} is not usable: "
                "write it as http://host:port or https://host:port."
            )
        if self.service_url and urlsplit(self.service_url).scheme not in ("pulsar", "pulsar+ssl"):
            raise Rejected(
                f"The service URL {self.service_url!r} of {self.name!r} is not usable: "
                "write it as pulsar://host:port or pulsar+ssl://host:port."
            )

    def read_token(self) -> str | None:
        """The JWT to send, or None; a token file that cannot be read is `Rejected`. See `OAuth2.access_token`."""
        if self.oauth2:
            return self.oauth2.access_token()
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text().strip()
        except OSError as error:
            raise Rejected(f"The token file {self.token_file!r} of {self.name!r} cannot be read: {error}.") from error

    def require_service_url(self) -> str:
        """The broker service URL; its absence is `Rejected` with what to add."""
        if not self.service_url:
            raise Rejected(
                f"{self.name!r} has no broker service URL, which reading or redirecting messages needs: "
                'add "service_url": "pulsar://host:port" to the extras of the connection '
                "(of a cluster that is named by its URL: set PULSAR_FLEET_SOURCE_SERVICE_URL or …_TARGET_…)."
            )
        return self.service_url
