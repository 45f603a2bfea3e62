"""Access tokens by the client credentials flow of OAuth 2.0, as Pulsar's clients request them, cached until renewal."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.errors import InvalidRequest, Unauthenticated, Unavailable
from pulsar_fleet.cluster.json import JsonObject

if TYPE_CHECKING:  # executors need it only where OAuth 2.0 is used
    import httpx

TIMEOUT_SECONDS = 10.0
RENEW_BEFORE_SECONDS = 60.0
"""A token is renewed this long before it expires; one with less than twice this lifetime, at half its lifetime."""

DEFAULT_LIFETIME_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """The issuer of tokens and our credentials there.

    :param key_file: Pulsar's JSON file with `client_id` and `client_secret`; read at each request for a token. Without
        it `client_id` and `client_secret` are given themselves.
    :param issuer_url: base URL of `.well-known/openid-configuration`; None reads it from the key file.
    :param audience: audience of the token, where the issuer needs one.
    """

    key_file: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    issuer_url: str | None = None
    audience: str | None = None
    scope: str | None = None

    @classmethod
    def from_fields(cls, fields: Mapping[str, str | None], *, connection_name: str) -> OAuth2 | None:
        """Build it from fields of a connection; None when all are empty, `InvalidRequest` without a client's secret."""
        values = {name: value for name, value in fields.items() if value}
        whole = "key_file" in values or {"client_id", "client_secret", "issuer_url"} <= set(values)
        if values and not whole:
            raise InvalidRequest(
                f"{connection_name!r} asks for OAuth 2.0 without a key: add the extra "
                '"oauth2_key_file", a file on the workers, or "oauth2_client_id" and "oauth2_issuer_url" with the '
                'secret as password or as "oauth2_client_secret".'
            )
        return cls(**values) if values else None

    def cached_token(self) -> str | None:
        """The token that `access_token` would return without a call; None if it has to call the issuer."""
        cached = _CACHE.get(self)
        return cached.token if cached and time.monotonic() < cached.renew_at else None

    def access_token(self, refused: str | None = None) -> str:
        """A valid token; a second call returns the same token until it is renewed.

        Blocks while the issuer is called, about once per lifetime of a token.

        :param refused: a token that a broker did not accept, which is not returned again.
        :raises FleetError: `InvalidRequest` for an unusable key file, `Unauthenticated` when the issuer rejects our
            credentials, `Unavailable` when the issuer cannot be called. No message contains a secret.
        """
        with _CACHE_LOCK:
            cached = _CACHE.get(self)
            if cached is None or time.monotonic() >= cached.renew_at or cached.token == refused:
                cached = _CACHE[self] = self._request()
            return cached.token

    def _request(self) -> _CachedToken:
        import httpx

        key = self._key()
        issuer = self.issuer_url or key.get("issuer_url")
        if not issuer:
            raise InvalidRequest(
                f"The OAuth 2.0 key file {self.key_file!r} has no issuer_url: add it there, or add the extra "
                '"oauth2_issuer_url" to the connection.'
            )
        form = {
            "grant_type": "client_credentials",
            "client_id": key["client_id"],
            "client_secret": key["client_secret"],
        }
        form |= {name: value for name, value in (("audience", self.audience), ("scope", self.scope)) if value}
        try:
            with httpx.Client(timeout=TIMEOUT_SECONDS) as http:
                configuration = http.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration").raise_for_status()
                answer = http.post(configuration.json()["token_endpoint"], data=form)
                if answer.status_code in (400, 401, 403):
                    raise Unauthenticated(
                        f"{issuer} refuses a token to client {key['client_id']!r}: {_reason(answer)}. "
                        f"Check {self._place}, the audience and the scope.",
                    )
                granted = answer.raise_for_status().json()
                return _CachedToken.of(str(granted["access_token"]), granted.get("expires_in"))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"{issuer} did not return a token: {type(error).__name__}: {error}.") from error

    @property
    def _place(self) -> str:
        return f"the OAuth 2.0 key file {self.key_file!r}" if self.key_file else "the client of the connection"

    def _key(self) -> JsonObject:
        if not self.key_file:
            return {"client_id": self.client_id, "client_secret": self.client_secret}
        try:
            key = json.loads(Path(self.key_file.removeprefix("file://")).read_text())
            if key["client_id"] and key["client_secret"]:
                return dict(key)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(
                f"The OAuth 2.0 key file {self.key_file!r} cannot be read ({type(error).__name__}): it is a JSON "
                "object with client_id, client_secret and issuer_url."
            ) from error
        raise InvalidRequest(f"The OAuth 2.0 key file {self.key_file!r} has no client_id or client_secret.")


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: str
    renew_at: float

    @classmethod
    def of(cls, token: str, expires_in: object) -> _CachedToken:
        life = float(str(expires_in)) if expires_in is not None else DEFAULT_LIFETIME_SECONDS
        return cls(token, time.monotonic() + max(life - RENEW_BEFORE_SECONDS, life / 2))


def _reason(answer: httpx.Response) -> str:
    """The issuer's reason; it never contains our request."""
    try:
        document = answer.json()
        reason = document.get("error_description") or document.get("error") or answer.status_code
        return " ".join(str(reason).split())[:200]
    except (ValueError, AttributeError):
        return f"it answered {answer.status_code}"


_CACHE: dict[OAuth2, _CachedToken] = {}
_CACHE_LOCK = Lock()
