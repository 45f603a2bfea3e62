"""Secrets in the brokers' documents: replace them by fingerprints, and restore them where they are needed (pure)."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import Json

REDACTED = "redacted:"
_SECRET_KEY = re.compile(
    r"(secret(?!.*(class|provider))|password|passwd|private_?key|authparam|authenticationparameters"
    r"|credential(?!.*id$)|token(?!.*(claim|header|algorithm|prefix))|sslfactorypluginparams)",
    re.IGNORECASE,
)


_USER_INFO = re.compile(r"(?<=://)[^\s/]+(?=@)")
"""User and password in a URL, whatever its key is called."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces a secret by a keyed fingerprint: equal secrets stay comparable, and cannot be guessed without the key.

    A secret is what a key such as `password` names, and user and password in any URL, whose other parts stay.

    :param key: random bytes that the whole installation shares; two snapshots compare only under the same key.
    """

    key: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        """Identifies the key without revealing it."""
        return self._digest("key id")[:8]

    def fingerprint(self, secret: str) -> str:
        """The fingerprint that replaces `secret`; a fingerprint is returned unchanged."""
        return secret if secret.startswith(REDACTED) else REDACTED + self._digest(secret)[:24]

    def redact(self, document: Json) -> Json:
        """The document with every secret replaced by its fingerprint."""
        return _walk(document, self._redacted)

    def secrets(self, document: Json) -> dict[str, str]:
        """Fingerprint → secret, for every secret in the document. Keep it in memory only."""
        secrets_by_fingerprint: dict[str, str] = {}

        def collect(key: str, text: str) -> str:
            for secret in [text] if is_secret_key(key) else _USER_INFO.findall(text):
                if not secret.startswith(REDACTED):
                    secrets_by_fingerprint[self.fingerprint(secret)] = secret
            return text

        _walk(document, collect)
        return secrets_by_fingerprint

    def _redacted(self, key: str, text: str) -> str:
        if is_secret_key(key):
            return self.fingerprint(text)
        return _USER_INFO.sub(lambda secret: self.fingerprint(secret[0]), text)

    def _digest(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()


def is_secret_key(key: str) -> bool:
    """Whether the value under this key of a document or a configuration is a secret."""
    return bool(_SECRET_KEY.search(key))


def without_user_info(document: Json) -> Json:
    """The document without user and password in its URLs: for what is printed, compared or reached without them."""
    return _walk(document, lambda _key, text: re.sub(rf"{_USER_INFO.pattern}@", "", text))


def fingerprints(document: Json) -> frozenset[str]:
    """The fingerprints that replace secrets in a document."""
    texts: set[str] = set()

    def collect(_key: str, text: str) -> str:
        texts.update(part for part in (text, *_USER_INFO.findall(text)) if part.startswith(REDACTED))
        return text

    _walk(document, collect)
    return frozenset(texts)


def restore_secrets(document: Json, secrets: Mapping[str, str]) -> Json:
    """The document with its secrets restored; a fingerprint that `secrets` does not have is `PreconditionFailed`.

    Writing the document with the fingerprint would overwrite the secret.
    """

    def secret(key: str, text: str) -> str:
        if not text.startswith(REDACTED):
            return text
        if text not in secrets:
            raise PreconditionFailed(
                f"The secret {key!r} ({text}) is not available, so it cannot be written: name the connection of the "
                "cluster that holds it, or set it by hand."
            )
        return secrets[text]

    def restore(key: str, text: str) -> str:
        return _USER_INFO.sub(lambda part: secret(key, part[0]), secret(key, text))

    return _walk(document, restore)


def _walk(node: Json, visit: Callable[[str, str], str], key: str = "") -> Json:
    if isinstance(node, dict):
        return {name: _walk(value, visit, str(name)) for name, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_walk(value, visit, key) for value in node]
    if isinstance(node, str) and node:
        return visit(key, node)
    return node
