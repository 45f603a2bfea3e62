"""Access tokens for client credentials of OAuth 2.0, got as Pulsar's own clients do, and kept until they are old."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.errors import InvalidRequest, Unauthenticated, Unavailable
from pulsar_fleet.cluster.json import JsonObject

if TYPE_CHECKING:  # executors need it only where OAuth 2.0 is used
    import httpx

TIMEOUT_SECONDS = 10.0
RENEW_BEFORE_SECONDS = 60.0
"""Before its end a token is asked for anew; of a token that lives less than twice as long, at half its life."""

UNSAID_LIFE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """Where to get tokens, and as whom.

    :param issuer_url: base under which `.well-known/openid-configuration` lies; None takes it from the key file.
    :param key_file: Pulsar's JSON file with `client_id` and `client_secret`; read at each request for a token.
    :param audience: what the issuer shall make the token for, where it wants to know.
    """

    key_file: str
    issuer_url: str | None = None
    audience: str | None = None
    scope: str | None = None

    @classmethod
    def given(cls, fields: Mapping[str, str | None], *, whose: str) -> OAuth2 | None:
        """What the fields of a connection say; None when they say nothing, `InvalidRequest` without a key file."""
        found = {name: value for name, value in fields.items() if value}
        if found and "key_file" not in found:
            raise InvalidRequest(
                f'{whose!r} asks for OAuth 2.0 without a key: add the extra "oauth2_key_file", a file on the workers.'
            )
        return cls(**found) if found else None

    def access_token(self) -> str:
        """A token that is valid now; a second call gives the same one while it is.

        Asks the issuer and waits for it, about once in a token's life.

        :raises FleetError: `InvalidRequest` for a key file that cannot be used, `Unauthenticated` when the issuer
            does not know us, `Unavailable` when it cannot be asked. No message holds a secret.
        """
        with _ASKING:
            kept = _KEPT.get(self)
            if kept is None or time.monotonic() >= kept.renew_at:
                kept = _KEPT[self] = self._ask()
            return kept.token

    def _ask(self) -> _Kept:
        import httpx

        key = self._key()
        issuer = self.issuer_url or key.get("issuer_url")
        if not issuer:
            raise InvalidRequest(
                f"The OAuth 2.0 key file {self.key_file!r} names no issuer_url: add it there, or as the extra "
                '"oauth2_issuer_url" of the connection.'
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
                        f"{issuer} gives no token to client {key['client_id']!r}: {_said(answer)}. "
                        f"Check the key file {self.key_file!r}, the audience and the scope.",
                    )
                granted = answer.raise_for_status().json()
                return _Kept.of(str(granted["access_token"]), granted.get("expires_in"))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"{issuer} could not be asked for a token: {type(error).__name__}: {error}.") from error

    def _key(self) -> JsonObject:
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
class _Kept:
    token: str
    renew_at: float

    @classmethod
    def of(cls, token: str, expires_in: object) -> _Kept:
        life = float(str(expires_in)) if expires_in is not None else UNSAID_LIFE_SECONDS
        return cls(token, time.monotonic() + max(life - RENEW_BEFORE_SECONDS, life / 2))


def _said(answer: httpx.Response) -> str:
    """The issuer's reason, which never repeats what we sent."""
    try:
        found = answer.json()
        return " ".join(str(found.get("error_description") or found.get("error") or answer.status_code).split())[:200]
    except (ValueError, AttributeError):
        return f"it answered {answer.status_code}"


_KEPT: dict[OAuth2, _Kept] = {}
_ASKING = Lock()
