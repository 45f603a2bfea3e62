"""The selection of tenants and namespaces that a run covers (pure)."""

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
    """Selected tenants and namespaces; an empty selection is all of them except system namespaces.

    `public/default`, which every cluster creates, is selected only when it or its tenant is named, or it has a topic; a
    pattern does not name it.

    :param patterns: regular expressions that match the whole of `tenant/namespace`.
    """

    tenants: frozenset[str] = frozenset()
    namespaces: frozenset[NamespaceName] = frozenset()
    patterns: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """Parse `tenant`, `tenant/namespace`, or `re:` and a pattern of `tenant/namespace`; else `InvalidRequest`."""
        expressions = tuple(texts)
        names = [text for text in expressions if not text.startswith(PATTERN)]
        patterns = frozenset(text.removeprefix(PATTERN) for text in expressions if text.startswith(PATTERN))
        for pattern in patterns:
            _compiled(pattern)
        return cls(
            tenants=frozenset(text for text in names if "/" not in text),
            namespaces=frozenset(NamespaceName.parse(text) for text in names if "/" in text),
            patterns=patterns,
        )

    @property
    def everything(self) -> bool:
        """Whether the selection is empty, so that it selects everything."""
        return not (self.tenants or self.namespaces or self.patterns)

    @property
    def named_tenants(self) -> frozenset[str] | None:
        """The tenants of the selection; None where only the cluster can list them."""
        if self.everything or self.patterns:
            return None
        return self.tenants | {namespace.tenant for namespace in self.namespaces}

    def texts(self) -> tuple[str, ...]:
        """The selection as `parse` reads it, sorted."""
        patterns = (PATTERN + pattern for pattern in sorted(self.patterns))
        return (*sorted(self.tenants), *sorted(map(str, self.namespaces)), *patterns)

    def has_tenant(self, name: str) -> bool:
        """Whether the selection may include this tenant or one of its namespaces."""
        named = self.named_tenants
        return named is None or name in named

    def has(self, namespace: NamespaceName) -> bool:
        """Whether the selection includes this namespace."""
        if str(namespace) in SYSTEM_NAMESPACES:
            return False
        if self.everything or self.names(namespace):
            return True
        return any(_compiled(pattern).fullmatch(str(namespace)) for pattern in self.patterns)

    def names(self, namespace: NamespaceName) -> bool:
        """Whether the user named the namespace or its tenant."""
        return namespace.tenant in self.tenants or namespace in self.namespaces

    def absent(self, tenants: Iterable[str], namespaces: Iterable[NamespaceName]) -> tuple[str, ...]:
        """Selected tenants, namespaces and patterns that are in neither list."""
        present = set(namespaces)
        names = [str(namespace) for namespace in present]
        unmatched = (pattern for pattern in self.patterns if not any(map(_compiled(pattern).fullmatch, names)))
        missing = Selection(
            tenants=self.tenants - set(tenants), namespaces=self.namespaces - present, patterns=frozenset(unmatched)
        )
        return missing.texts()


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(
            f"The selection {PATTERN + pattern!r} is not a valid regular expression ({error}): it must match the whole "
            "of tenant/namespace, for example re:acme/.*"
        ) from error
