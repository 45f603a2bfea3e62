"""Which calls may let a shadow topic delete the ledgers of its source, by their text alone (pure).

A shadow topic shares the ledgers of its source and treats them as its own (measured with 4.2.4): what its own retention
does not keep is deleted, although the source still needs it, and so is everything when the shadow is truncated or
deleted. Only a retention of -1/-1 keeps a shadow from trimming.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import unquote

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
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
        return Endangered(Effect.DELETES, topic)
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
