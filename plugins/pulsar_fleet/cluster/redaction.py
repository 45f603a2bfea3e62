"""Secrets in the brokers' documents: found, replaced by a fingerprint, put back where they are needed (pure)."""

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


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces a secret by a keyed fingerprint: equal secrets stay comparable, and cannot be guessed without the key.

    :param key: random bytes that the whole installation shares; the same key is needed to compare two snapshots.
    """

    key: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        """Which key it is, without telling the key."""
        return self._digest("key id")[:8]

    def seal(self, secret: str) -> str:
        """The fingerprint that stands for `secret`; a fingerprint stays as it is."""
        return secret if secret.startswith(REDACTED) else REDACTED + self._digest(secret)[:24]

    def redact(self, document: Json) -> Json:
        """The document with every secret replaced by its fingerprint."""
        return _walk(document, lambda key, text: self.seal(text) if is_secret_key(key) else text)

    def secrets(self, document: Json) -> dict[str, str]:
        """Fingerprint → secret, for every secret in the document. Keep it in memory only."""
        found: dict[str, str] = {}

        def note(key: str, text: str) -> str:
            if is_secret_key(key) and not text.startswith(REDACTED):
                found[self.seal(text)] = text
            return text

        _walk(document, note)
        return found

    def _digest(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()


def is_secret_key(key: str) -> bool:
    """Whether what a document or a configuration holds under this key must not be shown."""
    return bool(_SECRET_KEY.search(key))


def fingerprints(document: Json) -> frozenset[str]:
    """The fingerprints that a document holds in the place of secrets."""
    found: set[str] = set()

    def note(_key: str, text: str) -> str:
        if text.startswith(REDACTED):
            found.add(text)
        return text

    _walk(document, note)
    return frozenset(found)


def restore_secrets(document: Json, secrets: Mapping[str, str]) -> Json:
    """The document with its secrets back; one that is not in `secrets` is `PreconditionFailed`, since it would be
    overwritten.
    """

    def restore(key: str, text: str) -> str:
        if not text.startswith(REDACTED):
            return text
        if text not in secrets:
            raise PreconditionFailed(
                f"The secret {key!r} ({text}) is not at hand, so it cannot be written: give the connection of the "
                "cluster that holds it, or set it by hand."
            )
        return secrets[text]

    return _walk(document, restore)


def _walk(node: Json, visit: Callable[[str, str], str], key: str = "") -> Json:
    if isinstance(node, dict):
        return {name: _walk(value, visit, str(name)) for name, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_walk(value, visit, key) for value in node]
    if isinstance(node, str) and node:
        return visit(key, node)
    return node
