"""What can go wrong after a switch, as values: the kinds, what is done about each, and what they are told by (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.stats.clients import Roster
from pulsar_fleet.migration.stats.partition_state import Side


class Kind(StrEnum):
    """Its id in reports and in the ledger."""

    FENCED = "topic-fenced"
    VANISHED = "client-vanished"
    NOBODY_READS = "nobody-reads"
    UNLOADED = "topic-unloaded"
    BROKER_RESTARTED = "broker-restarted"
    OWNER_CHANGED = "bundle-moved"
    UNCOUNTED = "statistics-incomplete"
    NOT_HANDED_OVER = "not-handed-over"
    FLAG_RESET = "flag-reset"
    REDIRECT_LOST = "redirect-lost"
    GREEN_MISSING = "green-missing"
    GRANTS_MISSING = "grants-missing"
    BROKER_SILENT = "broker-silent"
    BROKER_GONE = "broker-gone"


class Treatment(StrEnum):
    """What can be done about an incident."""

    UNLOAD = "unload the topic: its producers are let go and follow the redirect"
    RECOVER = "clear the flag for a moment, load every topic, set the flag again"
    REFLAG = "set the flag again"
    STORE_REDIRECT = "store the redirect again"
    GRANT = "give the same rights on green as on blue"
    ASK_EACH = "ask each partition by itself"
    WAIT = "wait"
    PERSON = "a person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that keeps a namespace from arriving.

    :param subject: the topic, broker or role that it is about.
    :param topics: the partitions that it holds up.
    :param sentence: for a person: what is seen, and what to do where only a person can.
    """

    kind: Kind
    namespace: str
    subject: str
    sentence: str
    treatment: Treatment
    topics: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same incident has the same id at every look."""
        return f"{self.kind}:{self.subject}"

    @property
    def is_automatic(self) -> bool:
        """Whether something is changed for it without a person."""
        return self.treatment not in (Treatment.ASK_EACH, Treatment.WAIT, Treatment.PERSON)

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "namespace": self.namespace,
            "subject": self.subject,
            "sentence": self.sentence,
            "treatment": self.treatment.value,
            "topics": list(self.topics),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One namespace after its switch, as far as it is known; what was not asked is None or empty.

    :param waited: seconds since the switch.
    :param before: who was connected to blue before the switch.
    :param places: partition → (broker, bundle) where blue served it right after the switch.
    :param flagged: whether blue's namespace still has the flag; `redirected`: whether the stored address is ours.
    :param green_exists: whether green's namespace exists.
    :param closed: partitions into which a fresh producer, tried just now, does not come.
    :param ungranted: roles with rights on blue that they lack on green.
    :param silent: broker, as `cluster host:port` → seconds since it last answered.
    :param live: blue's brokers that answer.
    :param restarted: blue's brokers that were silent since the switch and answer again.
    """

    namespace: NamespaceName
    waited: float
    before: Roster
    blue: Side
    green: Side
    places: Mapping[TopicName, tuple[str, str]] = field(default_factory=dict)
    flagged: bool | None = None
    redirected: bool | None = None
    green_exists: bool | None = None
    closed: Collection[TopicName] = frozenset()
    ungranted: tuple[str, ...] = ()
    silent: Mapping[str, float] = field(default_factory=dict)
    live: Collection[str] = frozenset()
    restarted: Collection[str] = frozenset()
