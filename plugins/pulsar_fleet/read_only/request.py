"""The validated settings of a run that serves topics read-only (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import SYSTEM_NAMESPACES, NamespaceName, TopicName
from pulsar_fleet.read_only.isolation import parse_brokers

DEFAULT_LAG_MINUTES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which topics are served read-only, and where.

    :param topics: the sources; each gets a shadow topic of the same name.
    :param namespace: where the shadow topics are.
    :param brokers: those that serve the namespace and no other; empty: those of an earlier run, or none of its own.
    :param lag_minutes: how far readers may be behind.
    """

    topics: tuple[TopicName, ...]
    namespace: NamespaceName
    brokers: tuple[str, ...] = ()
    lag_minutes: int = DEFAULT_LAG_MINUTES

    @classmethod
    def of(cls, conf: JsonObject) -> Self:
        """Read the settings of a form or a command.

        :raises InvalidRequest: no topic, a name that cannot be served, two topics that would have one shadow topic, or
            a text that is not a broker.
        """
        namespace = NamespaceName.parse(conf.get("namespace") or "")
        if str(namespace) in SYSTEM_NAMESPACES:
            raise InvalidRequest(f"{namespace} is a namespace of the brokers: name one for readers.")
        topics = topics_of(conf.get("topics") or ())
        if inside := [topic for topic in topics if topic.namespace == namespace]:
            raise InvalidRequest(
                f"{str(inside[0])!r} is in {namespace} itself: name another namespace for its shadow topic."
            )
        names = Counter(topic.local for topic in topics)
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise InvalidRequest(
                f"Two topics are called {twice[0]!r}, and both would be served as the same topic of {namespace}: serve "
                "one of them in another namespace."
            )
        lag = int(conf.get("lag_minutes") or DEFAULT_LAG_MINUTES)
        if lag < 1:
            raise InvalidRequest(f"'lag_minutes' is {lag}: write how far readers may be behind, at least 1.")
        return cls(
            topics=topics,
            namespace=namespace,
            brokers=parse_brokers(conf.get("brokers") or ()),
            lag_minutes=lag,
        )

    def shadow(self, source: TopicName) -> TopicName:
        """The shadow topic of a source."""
        return TopicName(self.namespace, source.local)


def topics_of(texts: Sequence[str]) -> tuple[TopicName, ...]:
    """The topics that are served, each once.

    :raises InvalidRequest: none, or one that cannot be served: not persistent, one partition, a system topic.
    """
    topics = tuple(dict.fromkeys(map(_topic, texts)))
    if not topics:
        raise InvalidRequest("'topics' is empty: name the topics that are served read-only.")
    return topics


def _topic(text: str) -> TopicName:
    topic = TopicName.parse(text)
    if not topic.persistent:
        raise InvalidRequest(f"{text!r} is not persistent: it stores nothing that readers could share.")
    if topic.partition_index is not None:
        raise InvalidRequest(f"{text!r} is one partition: name the topic {topic.parent}.")
    if topic.is_system:
        raise InvalidRequest(f"{text!r} is a system topic of the brokers: it is never served.")
    return topic
