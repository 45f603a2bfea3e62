"""Some messages of an event topic and the outcome of each (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent, reason_to_refuse
from pulsar_fleet.policy_sync.events.event_topic import Received
from pulsar_fleet.policy_sync.events.ordering.version import Version
from pulsar_fleet.policy_sync.listed_conflicts import ListedConflict
from pulsar_fleet.policy_sync.merge.view import Item, tenant_and_namespace

Pair = tuple[Received, MetadataChangeEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Document):
    """Why the events of a resource wait, and since when as this process knows it."""

    since: str
    why: str


def waiting_lines(own: str, waiting: Mapping[str, Waiting]) -> list[str]:
    """What waits on a cluster, one line for each cause.

    :param waiting: resource → why it waits.
    """
    causes: dict[str, list[str]] = {}
    for name, entry in waiting.items():
        causes.setdefault(entry.why, []).append(name)
    return [
        f"{own}: events of {counted(len(names), 'resource')} wait since {min(waiting[name].since for name in names)}, "
        f"first {names[0]}: {why}"
        for why, names in causes.items()
    ]


@dataclass(kw_only=True)
class Batch:
    """Messages by outcome: applied, dropped, refused with a reason, or postponed; `events` are still open.

    :param written: number of changes on the cluster.
    :param lost: number of edits that a whole document reverted.
    :param provenance_written: number of namespaces whose provenance properties were written.
    :param conflicts: the recorded conflicts between edits that it decided.
    :param deletions: number of deletions on other clusters that wait here for an approval since this batch.
    :param kept_edits: the edits that won against a deletion.
    :param waiting: resource → why its events are postponed; without those that the next delivery settles.
    :param settled: the resources of which no event is postponed.
    """

    events: dict[Item, list[Pair]] = field(default_factory=dict)
    dropped: list[Received] = field(default_factory=list)
    applied: list[Received] = field(default_factory=list)
    postponed: list[Received] = field(default_factory=list)
    refused: dict[Received, str] = field(default_factory=dict)
    written: int = 0
    lost: int = 0
    provenance_written: int = 0
    conflicts: list[ListedConflict] = field(default_factory=list)
    deletions: int = 0
    kept_edits: list[str] = field(default_factory=list)
    waiting: dict[Item, str] = field(default_factory=dict)
    settled: set[Item] = field(default_factory=set)

    @classmethod
    def of(cls, received: Iterable[Received], includes: Callable[[Item], bool], busy: Set[str]) -> Self:
        """Decode messages; invalid ones are refused, resources that are not included are dropped.

        :param busy: namespaces in a migration, in which nothing may be written now; their events are postponed.
        """
        batch = cls()
        for message in received:
            try:
                event = MetadataChangeEvent.decode(message.content)
            except InvalidRequest as error:
                batch.refused[message] = str(error)
                continue
            if reason := reason_to_refuse(event):
                batch.refused[message] = reason
            elif not includes(event.item):
                batch.dropped.append(message)
            elif tenant_and_namespace(event.item)[1] in busy:
                batch.postponed.append(message)
                batch.waiting[event.item] = "its namespace is in a migration"
            else:
                batch.events.setdefault(event.item, []).append((message, event))
        return batch

    def of_item(self, item: Item) -> list[MetadataChangeEvent]:
        """The open events of one resource, in the order of their arrival."""
        return [event for _, event in self.events[item]]

    def drop(self, items: Iterable[Item]) -> None:
        """Drop the events of these resources: they request nothing."""
        for item in items:
            self.dropped += self._pop(item)

    def finish(self, item: Item, failed: Mapping[str, Version], reason: str) -> None:
        """Mark the events of a resource as applied, except those that requested a failed field: these are refused."""
        self.settled.add(item)
        for message, event in self.events.pop(item):
            requested = {name: version for name, (_, version) in event.fields.items()}
            # A whole document also requests, with its own version, that the fields it does not hold are unset.
            if any(requested.get(name, event.version) == version for name, version in failed.items()):
                self.refused[message] = reason
            else:
                self.applied.append(message)

    def refuse(self, item: Item, reason: str) -> None:
        """Refuse all events of a resource."""
        self.refused |= dict.fromkeys(self._pop(item), reason)

    def take(self, items: Iterable[Item]) -> Self:
        """Move the events of some resources to a batch of their own."""
        return type(self)(events={item: self.events.pop(item) for item in items})

    def stages(self) -> Iterator[Self]:
        """Move the open events to batches that are applied one after the other: topics before their policies."""
        policies = [item for item in self.events if item[0] is Resource.TOPIC_POLICY]
        others = [item for item in self.events if item[0] is not Resource.TOPIC_POLICY]
        yield from (self.take(items) for items in (others, policies) if items)

    def add(self, part: Self) -> None:
        """Add the outcomes of a batch that `take` returned."""
        self.dropped += part.dropped
        self.applied += part.applied
        self.postponed += part.postponed
        self.refused |= part.refused
        self.written += part.written
        self.lost += part.lost
        self.provenance_written += part.provenance_written
        self.deletions += part.deletions
        self.kept_edits += part.kept_edits
        self.conflicts += part.conflicts
        self.waiting |= part.waiting
        self.settled |= part.settled

    def postpone(self, items: Collection[Item], why: str = "") -> None:
        """Postpone the events of these resources: they are redelivered.

        :param why: what they wait for; empty if the next delivery settles it.
        """
        for item in list(items):
            self.postponed += [message for message, _ in self.events.pop(item)]
            if why:
                self.waiting[item] = why

    def _pop(self, item: Item) -> list[Received]:
        self.settled.add(item)
        return [message for message, _ in self.events.pop(item)]
