"""The version of each field of a resource on one cluster, and which version counts (pure).

A value that appears on a cluster without an event was written there, after all versions that the cluster had. The first
scan of a cluster cannot tell when its values were written, so these never win against a version with a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.policy_sync.events.ordering.version import BEFORE_EVERYTHING, BEFORE_THE_FLEET, Bounds, Version
from pulsar_fleet.policy_sync.merge.provenance import digest

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
