"""The bookies of a cluster, which limit how many of them a ledger can ask for."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookies(Document):
    """The registered bookies, also those that do not run now.

    :param count: None if they could not be read.
    :param unread: why they could not be read.
    """

    count: int | None = None
    unread: str = ""


async def read_bookies(admin: AdminClient) -> Bookies:
    """One call, for which a broker wants a superuser; an answer that cannot be read makes the number unknown."""
    try:
        answer = await admin.get("/bookies/all")
    except FleetError as error:
        return Bookies(unread=str(error))
    listed = answer.get("bookies") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return Bookies(unread=f"{admin.connection.name} answered without a list: {answer!r}")
    return Bookies(count=len(listed))
