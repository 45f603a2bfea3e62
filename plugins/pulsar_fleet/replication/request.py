"""The validated settings of a run that sets up replication (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pulsar_fleet.cluster.connection import require_two
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.preflight.waivers import Waiver, parse_waivers

_GROUPS = ("clusters", "receive_only", "leaving")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is replicated between which clusters.

    :param members: connections of the clusters that replicate to each other.
    :param receive_only: connections of the clusters that receive from the members and send nothing.
    :param leaving: connections of the clusters that leave.
    :param selection: the namespaces.
    :param topics: replicate these topics by a list of their own, and leave the lists of their namespaces.
    :param history: also replicate what is stored already.
    :param history_since: of that, only what was published then or later.
    :param deduplication: turn deduplication on, so that a replicator that sends a message again stores it once.
    :param replicated_subscriptions: set the flag on all durable subscriptions of the members.
    :param messages_per_second: rate limit of each replicator; 0 leaves the policy as it is; `bytes_per_second` too.
    :param delete_cluster_data: delete the data of clusters that leave where nothing refers to it.
    """

    members: tuple[str, ...]
    receive_only: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    selection: Selection
    topics: tuple[TopicName, ...] = ()
    history: bool = False
    history_since: datetime | None = None
    deduplication: bool = False
    replicated_subscriptions: bool = False
    messages_per_second: int = 0
    bytes_per_second: int = 0
    delete_cluster_data: bool = False
    waivers: tuple[Waiver, ...] = ()

    @classmethod
    def of(cls, conf: JsonObject) -> Self:
        """Read the settings of a form or a command.

        :raises InvalidRequest: a cluster is named twice, too few clusters, no selection, an invalid name or waiver.
        """
        groups = [tuple(conf.get(group) or ()) for group in _GROUPS]
        members, receive_only, leaving = groups
        _require_once(groups)
        if not members:
            raise InvalidRequest("'clusters' is empty: name the clusters that replicate to each other.")
        require_two([*members, *receive_only, *leaving])
        topics = tuple(map(_topic, conf.get("topics") or ()))
        namespaces = conf.get("namespaces") or ()
        if bool(topics) == bool(namespaces):
            raise InvalidRequest("Name what is replicated: either 'namespaces' or 'topics'.")
        if topics and leaving:
            raise InvalidRequest(
                "A cluster leaves whole namespaces, with the lists that their topics have themselves: name them in "
                "'namespaces'."
            )
        return cls(
            members=members,
            receive_only=receive_only,
            leaving=leaving,
            selection=Selection(namespaces=frozenset(topic.namespace for topic in topics))
            if topics
            else Selection.parse(namespaces),
            topics=topics,
            history=bool(conf.get("history")),
            history_since=_time(conf),
            deduplication=bool(conf.get("deduplication")),
            replicated_subscriptions=bool(conf.get("replicated_subscriptions")),
            messages_per_second=int(conf.get("messages_per_second") or 0),
            bytes_per_second=int(conf.get("bytes_per_second") or 0),
            delete_cluster_data=bool(conf.get("delete_cluster_data")),
            waivers=tuple(parse_waivers(conf.get("waivers") or ())),
        )

    @property
    def connections(self) -> tuple[str, ...]:
        """All connections, members first."""
        return (*self.members, *self.receive_only, *self.leaving)

    def has_topic(self, topic: TopicName) -> bool:
        """Whether the topic is replicated."""
        return not self.topics or topic.parent in self.topics

    def rate(self) -> JsonObject | None:
        """The replicators' rate limit as a policy; None to leave it as it is."""
        if not (self.messages_per_second or self.bytes_per_second):
            return None
        return {
            "dispatchThrottlingRateInMsg": self.messages_per_second or -1,
            "dispatchThrottlingRateInByte": self.bytes_per_second or -1,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        }


def _require_once(groups: Sequence[Sequence[str]]) -> None:
    counts = Counter(name for group in groups for name in group)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise InvalidRequest(
            f"Cluster {twice[0]!r} is named twice: name it once, in 'clusters', 'receive_only' or 'leaving'."
        )


def _time(conf: JsonObject) -> datetime | None:
    text = conf.get("history_since")
    if not text:
        return None
    if not conf.get("history"):
        raise InvalidRequest(f"'history_since' is {text!r}, but 'history' is off: turn it on.")
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(f"'history_since' is {text!r}: write a time such as 2026-11-21T08:00:00+00:00.") from error
    if time.tzinfo is None:
        raise InvalidRequest(f"'history_since' is {text!r}, without a time zone: write for example {text}+00:00.")
    return time


def _topic(text: str) -> TopicName:
    topic = TopicName.parse(text)
    if not topic.persistent or topic.partition_index is not None or topic.is_system:
        raise InvalidRequest(f"{text!r} cannot be replicated by itself: name a persistent topic, not one partition.")
    return topic
