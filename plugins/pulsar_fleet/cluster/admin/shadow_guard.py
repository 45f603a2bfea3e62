"""The calls by which a shadow topic would delete the ledgers of its source, refused before they are sent.

A shadow topic shares the ledgers of its source and treats them as its own (measured with 4.2.4): what its own retention
does not keep is deleted, although the source still needs it, and so is everything when the shadow is truncated or
deleted. Only a retention of -1/-1 keeps a shadow from trimming. Brokers of 5.0 leave the source alone (measured with
5.0.1): there a shadow topic may be deleted without force, as its removal needs it, and all else is refused as well.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import unquote

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName

RETIRED_FROM = "pulsar-fleet.shadow-retired-from"
"""The property of a shadow topic that is being taken away: the source with which it may still share ledgers."""

INFINITE: Mapping[str, int] = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}

_NAMESPACE = re.compile(r"^/namespaces/([^/]+)/([^/]+)(?:/(retention))?$")
_TOPIC = re.compile(r"^/persistent/([^/]+)/([^/]+)/([^/]+)(?:/([^/]+))?$")


class Effect(Enum):
    """What a call does to shadow topics, if there are any where it takes effect."""

    LOWERS = auto()
    """It sets a retention that does not keep everything."""
    UNCOVERS = auto()
    """It removes a retention of a topic, so that another one is in effect."""
    DELETES = auto()
    """It deletes ledgers whatever the retention is."""
    REMOVES = auto()
    """It deletes a topic without force: before 5.0.0 with the ledgers of its source."""
    FORGETS = auto()
    """It changes what makes a topic a shadow of its source, so that nobody recognises it any more."""
    CREATES = auto()
    """It makes a topic a shadow topic, so that the retention in effect counts from now on."""


@dataclass(frozen=True, slots=True)
class Endangered:
    """Where a call takes effect: all topics of a namespace, or one topic.

    :param source: the topic whose ledgers the topic is going to share.
    :param remaining: of a topic, whether its global retention remains (True) or its local one (False); None: neither.
    """

    effect: Effect
    where: NamespaceName | TopicName
    source: str = ""
    remaining: bool | None = None


def is_infinite(retention: Json) -> bool:
    """Whether a retention keeps every ledger."""
    return isinstance(retention, dict) and all(retention.get(key) == value for key, value in INFINITE.items())


def endangered(call: Call) -> Endangered | None:
    """What a call may endanger, if shadow topics are there; None for a call that cannot."""
    if call.method not in ("PUT", "POST", "DELETE"):
        return None
    try:
        if match := _NAMESPACE.match(call.path):
            return _in_namespace(call, NamespaceName(unquote(match[1]), unquote(match[2])), match[3])
        if match := _TOPIC.match(call.path):
            topic = TopicName(NamespaceName(unquote(match[1]), unquote(match[2])), unquote(match[3])).parent
            return _of_topic(call, topic, match[4] or "")
    except InvalidRequest:
        return None
    return None


def _in_namespace(call: Call, name: NamespaceName, setting: str | None) -> Endangered | None:
    if setting == "retention":
        kept = call.method != "DELETE" and is_infinite(call.body)
        return None if kept else Endangered(Effect.LOWERS, name)
    # Without force a broker deletes only a namespace without topics.
    forced = call.method == "DELETE" and dict(call.params).get("force") == "true"
    return Endangered(Effect.DELETES, name) if forced else None


def _of_topic(call: Call, topic: TopicName, setting: str) -> Endangered | None:
    deletes = call.method == "DELETE"
    if setting == "retention":
        if deletes:
            return Endangered(Effect.UNCOVERS, topic, remaining=dict(call.params).get("isGlobal") != "true")
        return None if is_infinite(call.body) else Endangered(Effect.LOWERS, topic)
    if deletes and setting == "policies":
        return Endangered(Effect.UNCOVERS, topic)
    if deletes and setting in ("", "partitions", "truncate"):
        removes = setting != "truncate" and dict(call.params).get("force") != "true"
        return Endangered(Effect.REMOVES if removes else Effect.DELETES, topic)
    if deletes and setting == "properties":
        removed = dict(call.params).get("key") in (SHADOW_SOURCE, RETIRED_FROM)
        return Endangered(Effect.FORGETS, topic) if removed else None
    return _with_properties(call, topic, setting)


def _with_properties(call: Call, topic: TopicName, setting: str) -> Endangered | None:
    properties = call.body if isinstance(call.body, dict) else {}
    if setting == "partitions":
        properties = properties.get("properties") or {}
    source = properties.get(SHADOW_SOURCE)
    if source is None or setting not in ("", "partitions", "properties"):
        return None
    if setting == "properties":
        return Endangered(Effect.FORGETS, topic, source=str(properties.get(RETIRED_FROM) or source))
    return Endangered(Effect.CREATES, topic, source=str(source))


_REASONS = {
    Effect.LOWERS: "does not keep everything with this retention",
    Effect.UNCOVERS: "does not keep everything without this policy",
    Effect.DELETES: "deletes the ledgers that it shares with its source",
    Effect.REMOVES: "deletes the ledgers that it shares with its source",
    Effect.FORGETS: "is then no longer known to share the ledgers of its source",
    Effect.CREATES: "is in a namespace without a retention of -1/-1, or has a shorter one itself",
}


class ShadowGuard:
    """Sees every write of the admin client; reads from the broker whether the call concerns a shadow topic.

    A call that can endanger nothing costs nothing. One that can costs two reads for a topic; for a namespace two, and
    two for each of its topics. Where a read fails, its error is raised and nothing is sent: unknown is not safe.

    :param deletes_shadows_alone: whether every broker keeps the ledgers of a source when its shadow topic is deleted;
        it is asked only before such a deletion.
    """

    def __init__(self, http: BrokerHttp, admin: str, deletes_shadows_alone: Callable[[], Awaitable[bool]]) -> None:
        self._http = http
        self._admin = admin
        self._deletes_shadows_alone = deletes_shadows_alone

    async def check(self, call: Call) -> None:
        """Return if the call may be sent.

        :raises PreconditionFailed: data of a source would be deleted.
        """
        danger = endangered(call)
        if danger is None:
            return
        for shadow, source in (await self._shadows(danger)).items():
            if not await self._is_safe(danger, shadow, source):
                raise PreconditionFailed(
                    f"{call.text()} on {self._http.connection.name}: data of {source} would be deleted, because its "
                    f"shadow topic {shadow} {_REASONS[danger.effect]}; nothing was sent.",
                    cluster=self._http.connection.name,
                )

    async def _shadows(self, danger: Endangered) -> dict[TopicName, TopicName]:
        """The shadow topics where the call takes effect, with the sources whose ledgers they share."""
        if danger.effect is Effect.CREATES and isinstance(danger.where, TopicName):
            return {danger.where: TopicName.parse(danger.source)}
        names = await self._topics(danger.where) if isinstance(danger.where, NamespaceName) else [danger.where]
        sources = await asyncio.gather(*(self._source(name) for name in names))
        shadows = {name: source for name, source in zip(names, sources, strict=True) if source}
        if danger.effect is Effect.FORGETS and danger.source and isinstance(danger.where, TopicName) and not shadows:
            shadows[danger.where] = TopicName.parse(danger.source)
        return shadows

    async def _topics(self, namespace: NamespaceName) -> list[TopicName]:
        try:
            stored = await self._get(f"/namespaces/{namespace.path}/topics", mode="ALL")
            partitioned = await self._get(f"/persistent/{namespace.path}/partitioned")
        except NotFound:
            return []
        names = {TopicName.parse(name) for name in (*stored, *partitioned)}
        parents = {TopicName.parse(name) for name in partitioned}
        topics = {name.parent if name.parent in parents else name for name in names}
        return sorted(topic for topic in topics if topic.persistent and not topic.is_system)

    async def _source(self, topic: TopicName) -> TopicName | None:
        """The source with which a topic shares ledgers; None of an ordinary topic, and of a topic that is missing."""
        try:
            metadata = await self._get(f"/{topic.path}/partitions", checkAllowAutoCreation=False)
        except NotFound:
            return None
        document = metadata if metadata["partitions"] else await self._info(topic)
        properties = document.get("properties") or {}
        source = properties.get(RETIRED_FROM) or properties.get(SHADOW_SOURCE)
        return TopicName.parse(source) if source else None

    async def _info(self, topic: TopicName) -> JsonObject:
        """`internal-info` of a topic without partitions; empty for one that is missing, which a broker answers 500."""
        path = f"/{topic.path}/internal-info"
        try:
            return dict(await self._get(path, answered_retry_seconds=0))
        except (InvalidRequest, NotFound, Unavailable):
            if topic not in await self._topics(topic.namespace):
                return {}
        return dict(await self._get(path))

    async def _is_safe(self, danger: Endangered, shadow: TopicName, source: TopicName) -> bool:
        match danger.effect:
            case Effect.LOWERS:
                return False
            case Effect.UNCOVERS:
                scopes = () if danger.remaining is None else (danger.remaining,)
                return await self._keeps_everything(shadow, scopes)
            case Effect.CREATES:
                return await self._keeps_everything(shadow, (False, True))
            case Effect.FORGETS:
                known = danger.source == str(source)
                return known and await self._keeps_everything(shadow, (False, True))
            case Effect.DELETES:
                return not await self._share_ledgers(shadow, source)
            case Effect.REMOVES:
                return not await self._share_ledgers(shadow, source) or await self._deletes_shadows_alone()

    async def _keeps_everything(self, shadow: TopicName, scopes: Iterable[bool]) -> bool:
        """Whether the namespace's retention is -1/-1, and those of the topic in these scopes too where they are set."""
        try:
            policies = await self._get(f"/namespaces/{shadow.namespace.path}")
        except NotFound:
            return False
        if not is_infinite(policies.get("retention_policies")):
            return False
        for is_global in scopes:
            try:
                own = await self._get(f"/{shadow.path}/retention", isGlobal=is_global)
            except NotFound:
                own = None
            if own is not None and not is_infinite(own):
                return False
        return True

    async def _share_ledgers(self, shadow: TopicName, source: TopicName) -> bool:
        return bool(await self._ledgers(shadow) & await self._ledgers(source))

    async def _ledgers(self, topic: TopicName) -> set[int]:
        """The ledgers in the stored list of a topic, from which a broker deletes; none of a missing topic."""
        try:
            await self._get(f"/{topic.path}/partitions", checkAllowAutoCreation=False)
        except NotFound:
            return set()
        return ledgers_in(await self._get(f"/{topic.path}/internal-info"))

    async def _get(self, path: str, *, answered_retry_seconds: float | None = None, **params: str | int | bool) -> Json:
        answer = await self._http.call(
            "GET", self._admin + path, params=params, answered_retry_seconds=answered_retry_seconds
        )
        return self._http.document(answer)


def ledgers_in(info: JsonObject) -> set[int]:
    """The ids of all ledgers in an answer to `internal-info`, of a topic or of all partitions."""
    parts = info.get("partitions")
    infos = parts.values() if isinstance(parts, dict) else [info]
    return {int(ledger["ledgerId"]) for part in infos for ledger in part.get("ledgers") or ()}
