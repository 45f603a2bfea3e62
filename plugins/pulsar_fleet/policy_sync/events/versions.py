"""The version of a value, of each field of a resource, and of a cluster's resources, and which version counts (pure).

A value that appears on a cluster without an event was written there, after all versions that the cluster had. The first
scan of a cluster cannot tell when its values were written, so these never win against a version with a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.event_store import Key, StoredDocument
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.merge_resource import TieBreak
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item

BEFORE_EVERYTHING = 0
"""The time of a value whose age is unknown: it was there at the first scan of a cluster of a new fleet."""

BEFORE_THE_FLEET = -1
"""The time of a value that a cluster brought when it joined: it loses against everything that the fleet has."""

Bounds = tuple[int, int]
"""The earliest and the latest time of a write, in ms since 1970 by the reference clock."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """When a value was written, in ms since 1970 by the reference clock, and on which cluster.

    Events with equal versions are identical, so the bounds and what was replaced take no part in comparisons.

    :param bounds: of the time; None if they are unknown.
    :param replaced: cluster → the time of its newest version of this field that the writer had before.
    """

    update_time: int
    source_cluster: str
    bounds: Bounds | None = field(default=None, compare=False)
    replaced: Mapping[str, int] = field(default_factory=dict, compare=False, hash=False)

    def newer_than(self, other: Version | None, tie_break: TieBreak) -> bool:
        """Whether it wins against another version; at equal times the cluster's name decides."""
        if other is None or self.update_time != other.update_time:
            return other is None or self.update_time > other.update_time
        if self.source_cluster == other.source_cluster:
            return False
        smaller = self.source_cluster < other.source_cluster
        return smaller if tie_break is TieBreak.SMALLER else not smaller

    def follows(self, other: Version) -> bool:
        """Whether its writer had the other version, or a later one of the same cluster."""
        if self.source_cluster == other.source_cluster:
            return self.update_time >= other.update_time
        return self.replaced.get(other.source_cluster, BEFORE_THE_FLEET - 1) >= other.update_time

    def certainly_after(self, other: Version) -> bool:
        """Whether the bounds of both times are known and exclude the other order."""
        return bool(self.bounds and other.bounds and self.bounds[0] > other.bounds[1])

    def having_replaced(self, older: Version | None) -> Self:
        """The same, written by someone who had an older version."""
        if older is None:
            return self
        before = {**older.replaced, older.source_cluster: older.update_time}
        before.pop(self.source_cluster, None)
        return type(self)(self.update_time, self.source_cluster, self.bounds, before)

    def as_array(self) -> list[Json]:
        """Its fields in order, without those that say nothing, because there are thousands."""
        head: list[Json] = [self.update_time, self.source_cluster]
        if not self.bounds and not self.replaced:
            return head
        return [*head, list(self.bounds) if self.bounds else None, dict(self.replaced)]

    @classmethod
    def of(cls, array: Json) -> Self:
        """From the array."""
        update_time, source_cluster, *rest = array
        bounds, replaced = rest or (None, {})
        return cls(update_time, source_cluster, (bounds[0], bounds[1]) if bounds else None, replaced)


def is_version(array: Json) -> bool:
    """Whether a JSON value is what `as_array` returns."""
    if not isinstance(array, list) or len(array) not in (2, 4):
        return False
    bounds, replaced = array[2:] or (None, {})
    if not isinstance(array[1], str) or not isinstance(replaced, dict):
        return False
    if bounds is not None and not (isinstance(bounds, list) and len(bounds) == 2):
        return False
    return all(type(at) is int for at in (array[0], *(bounds or ()), *replaced.values()))


EXISTS = ""
"""The field of a tenant or namespace for its existence; its value is True."""


@dataclass(frozen=True, slots=True)
class FieldVersion(Document):
    """The digest of a value, empty for a value that is not set, and its version."""

    digest: str
    version: Version

    def document_of(self) -> Json:
        """As an array, because there are thousands."""
        return self.digest, *self.version.as_array()

    @classmethod
    def fields_of(cls, document: Json) -> Json:
        """From the array."""
        text, *version = document
        return {"digest": text, "version": Version.of(version)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceVersions(Document):
    """The versions of one resource on one cluster; a field that was unset stays, with the version of its removal.

    :param expected: the values that we are about to write; once they are present, they have these versions.
    :param published: whether the event topic has all versions.
    :param deleted_elsewhere: the newest deletion on another cluster that was not carried out here.
    :param withheld: fields that the resource lacks, and nobody knows whether they were removed or it was created again.
    """

    fields: Mapping[str, FieldVersion] = field(default_factory=dict)
    expected: Mapping[str, FieldVersion] = field(default_factory=dict)
    published: bool = True
    deleted_elsewhere: Version | None = None
    withheld: tuple[str, ...] = ()

    @property
    def newest(self) -> Version | None:
        """The newest version of all fields, None without fields."""
        return max((entry.version for entry in self.fields.values()), default=None)

    def version(self, name: str) -> Version | None:
        """The version of a field, None if it was never set."""
        entry = self.fields.get(name)
        return entry.version if entry else None

    def awaiting(self, written: Mapping[str, FieldVersion]) -> Self:
        """The same before these values are written."""
        return replace(self, expected=dict(written))

    def confirming(self) -> Self:
        """The same after the expected values were written and read back: a different value is an edit of these."""
        return replace(self, fields={**self.fields, **self.expected}, expected={})

    def as_published(self) -> Self:
        """The same after all versions were published."""
        return replace(self, published=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedValues:
    """The values of one resource in a scan.

    :param values: empty for a resource that does not exist.
    :param now: when the scan ended, in ms since 1970 by the reference clock.
    :param since: when the scan before began: its values were present then; None if that is unknown.
    :param uncertainty: of both times, in ms; None if it is unknown.
    :param times: field → when it was written and the bounds of this, if the cluster tells.
    :param first: whether this is the first scan of the cluster, so that a value may have any age.
    :param joins: whether the cluster joins a fleet: a value of its first scan loses against every other.
    :param withheld: fields of which it is unknown whether they were removed: they keep their versions.
    :param whole: whether a changed field makes the whole resource newer than all its earlier versions.
    """

    values: Mapping[str, Json]
    now: int
    since: int | None = None
    uncertainty: int | None = None
    times: Mapping[str, tuple[int, Bounds | None]] = field(default_factory=dict)
    first: bool = False
    joins: bool = False
    whole: bool = False
    withheld: frozenset[str] = frozenset()

    def written(self, name: str) -> tuple[int, Bounds | None]:
        """When a changed value was written, at the latest, and the bounds of this."""
        if name in self.times:
            return self.times[name]
        if self.since is None or self.uncertainty is None:
            return self.now, None
        return self.now, (self.since - self.uncertainty, self.now + self.uncertainty)


def next_versions(before: ResourceVersions | None, observed: ObservedValues, own: str) -> ResourceVersions:
    """The versions after a scan; a second scan of the same values changes nothing.

    Expected values that are not present yet stay expected: their writer may be late. A resource that is created again
    after its deletion was found does not have the fields that it lost with it: nobody unset them.
    """
    earlier = before or ResourceVersions()
    names = {*earlier.fields, *earlier.expected, *observed.values} - observed.withheld
    digests = {name: digest(observed.values.get(name)) for name in names}
    arrived = _arrived(earlier, digests, own, whole=observed.whole)
    old = {name: entry.digest for name, entry in earlier.fields.items()}
    changed = [name for name, text in digests.items() if name not in arrived and text != old.get(name, "")]
    fields = {**earlier.fields, **arrived}
    fields |= {name: FieldVersion(digests[name], _new_version(name, earlier, observed, own)) for name in changed}
    if EXISTS in changed and digests[EXISTS]:
        fields = {name: entry for name, entry in fields.items() if entry.digest or name in arrived}
    return replace(
        earlier,
        fields=fields,
        withheld=tuple(sorted(observed.withheld)),
        expected=_still_expected(earlier, arrived, changed, whole=observed.whole),
        published=earlier.published and not changed,
    )


def _arrived(before: ResourceVersions, digests: Mapping[str, str], own: str, *, whole: bool) -> dict[str, FieldVersion]:
    """The expected fields that are present; a whole document has arrived only if all its fields are present."""
    arrived = {name: entry for name, entry in before.expected.items() if entry.digest == digests.get(name)}
    if not whole or len(arrived) == len(before.expected):
        return arrived
    unknown = Version(BEFORE_EVERYTHING, own)
    return {name: FieldVersion(entry.digest, before.version(name) or unknown) for name, entry in arrived.items()}


def _still_expected(
    before: ResourceVersions, arrived: Collection[str], changed: Collection[str], *, whole: bool
) -> Mapping[str, FieldVersion]:
    if whole:
        return {} if changed or len(arrived) == len(before.expected) else before.expected
    return {name: entry for name, entry in before.expected.items() if name not in arrived and name not in changed}


def _new_version(name: str, before: ResourceVersions, observed: ObservedValues, own: str) -> Version:
    """The version of a value that was written without an event: newer than all earlier versions of the field."""
    if observed.first and name not in before.fields:
        if observed.joins:
            return Version(BEFORE_THE_FLEET, own)
        at, bounds = observed.times.get(name, (BEFORE_EVERYTHING, None))
        return Version(at, own, bounds)
    entries = (*before.fields.items(), *before.expected.items())
    older = [entry for key, entry in entries if observed.whole or key == name]
    after = max((entry.version.update_time + 1 for entry in older), default=BEFORE_EVERYTHING)
    at, bounds = observed.written(name)
    latest = max(at, after)
    certain = (bounds[0], max(bounds[1], latest)) if bounds else None
    return Version(latest, own, certain).having_replaced(before.version(name))


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
