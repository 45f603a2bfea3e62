"""Some messages of an event topic, and what became of each (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent, reason_to_refuse
from pulsar_fleet.policy_sync.events.event_topic import Received
from pulsar_fleet.policy_sync.events.versions import Stamp
from pulsar_fleet.policy_sync.merge.view import Item, place

Pair = tuple[Received, MetadataChangeEvent]


@dataclass(kw_only=True)
class Batch:
    """Messages that are applied, of no use, refused with a reason, or to be tried again; `events` are still open.

    :param written: changes that were made on the cluster.
    :param lost: edits that were taken back by a document that did not have them.
    :param stamped: namespaces in which it was written who wrote them last.
    """

    events: dict[Item, list[Pair]] = field(default_factory=dict)
    useless: list[Received] = field(default_factory=list)
    applied: list[Received] = field(default_factory=list)
    later: list[Received] = field(default_factory=list)
    refused: dict[Received, str] = field(default_factory=dict)
    written: int = 0
    lost: int = 0
    stamped: int = 0

    @classmethod
    def of(cls, received: Iterable[Received], means: Callable[[Item], bool], busy: Set[str]) -> Self:
        """Read the messages; what is no event is refused, and what does not travel here is of no use.

        :param busy: namespaces in which nothing is written now.
        """
        found = cls()
        for one in received:
            try:
                event = MetadataChangeEvent.decode(one.content)
            except InvalidRequest as error:
                found.refused[one] = str(error)
                continue
            if reason := reason_to_refuse(event):
                found.refused[one] = reason
            elif not means(event.item):
                found.useless.append(one)
            elif place(event.item)[1] in busy:
                found.later.append(one)
            else:
                found.events.setdefault(event.item, []).append((one, event))
        return found

    def of_item(self, item: Item) -> list[MetadataChangeEvent]:
        """The open events of one resource, in the order in which they came."""
        return [event for _, event in self.events[item]]

    def drop(self, items: Iterable[Item]) -> None:
        """The events of these resources ask for nothing."""
        for item in items:
            self.useless += [one for one, _ in self.events.pop(item)]

    def settle(self, item: Item, failed: Mapping[str, Stamp], reason: str) -> None:
        """The events of a resource are applied, but for the fields that failed: who brought these is put away."""
        for one, event in self.events.pop(item):
            brought = {name: stamp for name, (_, stamp) in event.fields.items()}
            # What a document does not hold, it asks for with its own time.
            if any(brought.get(name, event.stamp) == stamp for name, stamp in failed.items()):
                self.refused[one] = reason
            else:
                self.applied.append(one)

    def refuse(self, item: Item, reason: str) -> None:
        """All events of a resource are put away."""
        self.refused |= {one: reason for one, _ in self.events.pop(item)}

    def take(self, item: Item) -> Self:
        """The events of one resource as a batch of their own."""
        return type(self)(events={item: self.events.pop(item)})

    def add(self, part: Self) -> None:
        """What became of a batch that was taken out."""
        self.applied += part.applied
        self.later += part.later
        self.refused |= part.refused
        self.written += part.written
        self.lost += part.lost
        self.stamped += part.stamped

    def postpone(self, items: Collection[Item]) -> None:
        """The events of these resources come again."""
        for item in list(items):
            self.later += [one for one, _ in self.events.pop(item)]
