"""The bookies of a cluster and their groups, which limit how many of them a ledger can ask for, and which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookies(Document):
    """The registered bookies, also those that do not run now.

    :param count: None if they could not be read.
    :param groups: group → the number of its registered bookies; None if they could not be read.
    :param unread: why something could not be read.
    """

    count: int | None = None
    groups: Mapping[str, int] | None = None
    unread: str = ""

    def lacking(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the groups that have no bookie; none where the groups are unknown."""
        groups = self.groups
        return () if groups is None else tuple(name for name in names if not groups.get(name))

    def usable(self, names: Iterable[str]) -> int:
        """How many bookies ledgers of these groups can use: theirs and those in no group (observed, 4.2.4)."""
        groups = self.groups or {}
        return (self.count or 0) - sum(groups.values()) + sum(groups.get(name, 0) for name in names)


def affinity_groups(affinity: Json) -> tuple[str, ...]:
    """The groups that the bookie affinity of a namespace names."""
    keys = ("bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary")
    texts = (str((affinity or {}).get(key) or "") for key in keys)
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


async def read_bookies(admin: AdminClient) -> Bookies:
    """Two calls, for which a broker wants a superuser; an answer that cannot be read makes its part unknown."""
    try:
        answer = await admin.get("/bookies/all")
    except FleetError as error:
        return Bookies(unread=str(error))
    listed = answer.get("bookies") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return Bookies(unread=f"{admin.connection.name} answered without a list: {answer!r}")
    registered = {str(row.get("bookieId")) for row in listed}
    try:
        racks = await admin.get("/bookies/racks-info") or {}
    except FleetError as error:
        return Bookies(count=len(listed), unread=str(error))
    # A group also has bookies that are registered no more.
    return Bookies(
        count=len(listed), groups={group: len(registered & set(members)) for group, members in racks.items()}
    )
