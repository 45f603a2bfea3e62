"""Name entries that only one side would deliver: positions on both sides, key and publish time."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.verification.subscriptions.correspondence import Discrepancy
from pulsar_fleet.verification.subscriptions.verdict import Delivery, Kind


class DeliveryNames:
    """Names the entries of one topic.

    :param lookups: entries that the broker is asked about, of all subscriptions together; others get positions only.
    """

    def __init__(
        self, topic: TopicName, numbers: Mapping[Side, Ledgers], admins: Mapping[Side, AdminClient], lookups: int
    ) -> None:
        self._topic = topic
        self._numbers = numbers
        self._admins = admins
        self._lookups = lookups
        self._known: dict[tuple[Side, Position], Mapping[str, str]] = {}

    async def examples(self, found: Discrepancy) -> list[Delivery]:
        """The first of both kinds."""
        return [
            await self._delivery(kind, *place)
            for kind, portion in ((Kind.REDELIVERED, found.redelivered), (Kind.SKIPPED, found.skipped))
            for place in portion.first
        ]

    async def _delivery(self, kind: Kind, source: int | None, target: int | None) -> Delivery:
        here = None if source is None else self._numbers[Side.SOURCE].at(source)
        there = None if target is None else self._numbers[Side.TARGET].at(target)
        known = await self._described(Side.SOURCE, here) if here else await self._described(Side.TARGET, there)
        return Delivery(
            kind,
            str(here) if here else None,
            str(there) if there else None,
            known.get("x-pulsar-partition-key"),
            known.get("x-pulsar-publish-time"),
        )

    async def _described(self, side: Side, position: Position | None) -> Mapping[str, str]:
        if position is None:
            return {}
        if (side, position) not in self._known and len(self._known) < self._lookups:
            self._known[side, position] = await self._admins[side].entry_properties(self._topic, position)
        return self._known.get((side, position), {})
