"""The stored versions of one cluster's resources, and when it was last scanned (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.event_store import Key, StoredDocument
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.versions import ResourceVersions
from pulsar_fleet.policy_sync.merge.view import Item

SCOPE = ("scan", "")
BEGAN = "began"


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The versions of resources in the ledger, loaded for a later save with optimistic locking."""

    documents: Mapping[Key, StoredDocument]

    def of(self, item: Item) -> ResourceVersions | None:
        """The versions of one resource; None if it was never scanned."""
        stored = self.documents.get(key_of(item))
        return ResourceVersions.from_json(stored.document) if stored else None

    def items(self) -> set[Item]:
        """Every resource that was ever scanned."""
        return {(Resource(kind), name) for kind, name in self.documents if (kind, name) != SCOPE}

    def confirming(self, items: Collection[Item]) -> Self:
        """The same after the expected values of these resources were written and read back."""
        written = {key_of(item): versions.confirming() for item in items if (versions := self.of(item))}
        confirmed = {key: replace(self.documents[key], document=entry.to_json()) for key, entry in written.items()}
        return replace(self, documents={**self.documents, **confirmed})

    def write_count(self, key: Key) -> int:
        """How often a document was written."""
        return self.documents[key].version if key in self.documents else 0

    def covers(self, scope: Mapping[str, Json]) -> bool:
        """Whether the last full scan had this scope, so that a resource without versions did not exist then."""
        stored = self.documents.get(SCOPE)
        return stored is not None and {**stored.document, BEGAN: None} == {**scope, BEGAN: None}

    @property
    def scan_began(self) -> int | None:
        """When the last recorded full scan began, in ms since 1970 by the reference clock; None if never."""
        stored = self.documents.get(SCOPE)
        return stored.document.get(BEGAN) if stored else None


def key_of(item: Item) -> Key:
    """The key of a resource in the ledger."""
    return item[0].value, item[1]
