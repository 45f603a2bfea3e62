"""Which tenants and namespaces are meant (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import SYSTEM_NAMESPACES, NamespaceName

PATTERN = "re:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which tenants and namespaces are meant; empty means all but the brokers' own.

    `public/default`, which every cluster makes for itself, only counts when it is named or holds a topic.

    :param patterns: regular expressions over the whole of `tenant/namespace`.
    """

    tenants: frozenset[str] = frozenset()
    namespaces: frozenset[NamespaceName] = frozenset()
    patterns: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Read names: `tenant`, `tenant/namespace`, or `re:` and a pattern of `tenant/namespace`; else
        `InvalidRequest`.
        """
        given = tuple(texts)
        names = [text for text in given if not text.startswith(PATTERN)]
        patterns = frozenset(text.removeprefix(PATTERN) for text in given if text.startswith(PATTERN))
        for pattern in patterns:
            _compiled(pattern)
        return cls(
            tenants=frozenset(text for text in names if "/" not in text),
            namespaces=frozenset(NamespaceName.parse(text) for text in names if "/" in text),
            patterns=patterns,
        )

    @property
    def everything(self) -> bool:
        """Whether nothing was named."""
        return not (self.tenants or self.namespaces or self.patterns)

    @property
    def named_tenants(self) -> frozenset[str] | None:
        """The tenants of all that was named; None where only the cluster can tell which they are."""
        if self.everything or self.patterns:
            return None
        return self.tenants | {one.tenant for one in self.namespaces}

    def texts(self) -> tuple[str, ...]:
        """What `parse` reads."""
        patterns = (PATTERN + pattern for pattern in sorted(self.patterns))
        return (*sorted(self.tenants), *sorted(map(str, self.namespaces)), *patterns)

    def has_tenant(self, name: str) -> bool:
        """Whether anything of this tenant may be meant."""
        named = self.named_tenants
        return named is None or name in named

    def has(self, namespace: NamespaceName) -> bool:
        """Whether this namespace is meant."""
        if str(namespace) in SYSTEM_NAMESPACES:
            return False
        return self.everything or self.names(namespace)

    def names(self, namespace: NamespaceName) -> bool:
        """Whether the namespace, its tenant, or a pattern that fits it was named by the user."""
        named = namespace.tenant in self.tenants or namespace in self.namespaces
        return named or any(_compiled(pattern).fullmatch(str(namespace)) for pattern in self.patterns)

    def absent(self, tenants: Iterable[str], namespaces: Iterable[NamespaceName]) -> tuple[str, ...]:
        """What was named and is in neither list."""
        found = set(namespaces)
        unmatched = {one for one in self.patterns if not any(_compiled(one).fullmatch(str(name)) for name in found)}
        missing = Selection(
            tenants=self.tenants - set(tenants), namespaces=self.namespaces - found, patterns=frozenset(unmatched)
        )
        return missing.texts()


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(
            f"The selection {PATTERN + pattern!r} is no regular expression ({error}): it has to match the whole of "
            "tenant/namespace, for example re:acme/.*"
        ) from error
