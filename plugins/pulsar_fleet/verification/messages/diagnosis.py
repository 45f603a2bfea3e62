"""Ask the brokers about the named differences, one entry each, and say why each of them is one."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.positions import SOURCE_POSITION
from pulsar_fleet.verification.messages.causes import Cause, Circumstances, Headers, explanation, why_extra, why_missing
from pulsar_fleet.verification.messages.differences import Difference, Kind
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict
from pulsar_fleet.verification.request import Pair, VerifyRequest

PAYLOAD_ALONE = ["payload"]


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains differences between two clusters; up to two HTTP calls for each that is named, none for the others."""

    source: AdminClient
    target: AdminClient

    async def explain(self, request: VerifyRequest, pair: Pair, found: TopicVerdict) -> TopicVerdict:
        """The verdict with causes; inconclusive if every difference is named and has an innocent one."""
        if found.verdict is not Verdict.DIFFERENT or not found.differing or not found.differences:
            return found
        topic = TopicName.parse(pair.topic)
        around = await self._circumstances(request, pair, topic)
        named = tuple([await self._explained(topic, each, around) for each in found.differences])
        causes = [each.cause for each in named if each.cause]
        if found.reordered or found.differing > len(named) or not all(cause.innocent for cause in causes):
            return replace(found, differences=named)
        reason = explanation(causes, around)
        return replace(found, differences=named, verdict=Verdict.INCONCLUSIVE, reason=reason)

    async def _explained(self, topic: TopicName, each: Difference, around: Circumstances) -> Difference:
        if each.kind is Kind.REORDERED:
            return each
        return replace(each, cause=await self._cause(topic, each, around))

    async def _circumstances(self, request: VerifyRequest, pair: Pair, topic: TopicName) -> Circumstances:
        policies: JsonObject = await self.source.namespace(topic.namespace) or {}
        return Circumstances(
            source=request.source.name,
            target=request.target.name,
            replicated=pair.publish_time,
            ttl_seconds=policies.get("message_ttl_in_seconds") or 0,
            now=round(time.time() * 1000),
        )

    async def _cause(self, topic: TopicName, each: Difference, around: Circumstances) -> Cause:
        if each.copies:
            return Cause.LOST if each.kind is Kind.MISSING else Cause.DUPLICATED
        if each.kind is Kind.MISSING:
            return why_missing(await _entry(self.source, topic, each.source), each.publish_time, around)
        entry = await _entry(self.target, topic, each.target)
        if each.kind is Kind.EXTRA:
            return why_extra(entry, await self._original(topic, entry, around), around)
        by_cipher = [name for name, _, _ in each.fields] == PAYLOAD_ALONE and not around.replicated
        return Cause.ENCRYPTED if by_cipher and (entry or {}).get("x-pulsar-is-encrypted") == "true" else Cause.ALTERED

    async def _original(self, topic: TopicName, entry: Headers, around: Circumstances) -> Headers:
        """The source's entry that a replicated one came from."""
        if entry is None or entry.get("x-pulsar-replicated-from") != around.source:
            return {}
        origin = json.loads(entry.get("x-pulsar-property") or "{}").get(SOURCE_POSITION)
        return await _entry(self.source, topic, origin) if origin else {}


async def _entry(admin: AdminClient, topic: TopicName, place: str | None) -> Headers:
    try:
        return await admin.entry_properties(topic, Position.parse((place or "").partition("[")[0]))
    except NotFound:
        return None
