"""Examples of entries that only one cluster would deliver: positions on both clusters, key and publish time."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.verification.subscriptions.correspondence import Discrepancy
from pulsar_fleet.verification.subscriptions.verdict import Delivery, Kind


class DeliveryExamples:
    """Describes entries of one topic.

    :param lookups: entries of all subscriptions whose headers are read; other examples have positions only.
    """

    def __init__(
        self, topic: TopicName, ledgers: Mapping[Side, Ledgers], admins: Mapping[Side, AdminClient], lookups: int
    ) -> None:
        self._topic = topic
        self._numbers = ledgers
        self._admins = admins
        self._lookups = lookups
        self._headers: dict[tuple[Side, Position], Mapping[str, str]] = {}

    async def examples(self, discrepancy: Discrepancy) -> list[Delivery]:
        """The first redelivered and the first skipped entries."""
        return [
            await self._delivery(kind, *place)
            for kind, portion in ((Kind.REDELIVERED, discrepancy.redelivered), (Kind.SKIPPED, discrepancy.skipped))
            for place in portion.first
        ]

    async def _delivery(self, kind: Kind, source: int | None, target: int | None) -> Delivery:
        source_position = None if source is None else self._numbers[Side.SOURCE].at(source)
        target_position = None if target is None else self._numbers[Side.TARGET].at(target)
        headers = (
            await self._described(Side.SOURCE, source_position)
            if source_position
            else await self._described(Side.TARGET, target_position)
        )
        return Delivery(
            kind,
            str(source_position) if source_position else None,
            str(target_position) if target_position else None,
            headers.get("x-pulsar-partition-key"),
            headers.get("x-pulsar-publish-time"),
        )

    async def _described(self, side: Side, position: Position | None) -> Mapping[str, str]:
        if position is None:
            return {}
        if (side, position) not in self._headers and len(self._headers) < self._lookups:
            self._headers[side, position] = await self._admins[side].entry_properties(self._topic, position)
        return self._headers.get((side, position), {})
