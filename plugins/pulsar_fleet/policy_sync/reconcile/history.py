"""What earlier runs left in the ledger about a fleet, and what this one leaves (client)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import Agreement, Agreements, Sighting, fleets
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import Compared
from pulsar_fleet.policy_sync.merge.provenance import Observation, Seen, observe
from pulsar_fleet.policy_sync.merge.scan import Observed
from pulsar_fleet.policy_sync.merge.view import Item, View, items_of, place
from pulsar_fleet.policy_sync.reconcile.agreement import Written, conflicts_of, decided_values, settle
from pulsar_fleet.policy_sync.reconcile.fleet import Fleet


@dataclass(kw_only=True)
class Memory:
    """The records of one fleet, read once.

    :param fleet: the names of all its clusters, those that do not answer included.
    :param all_seen: whether all of them answer.
    :param held: namespaces that a migration holds: their policies differ on purpose.
    :param choices: what the operator chose of conflicts and is not in force yet.
    """

    store: Agreements
    fleet: tuple[str, ...]
    all_seen: bool
    agreed: Mapping[Item, Agreement]
    held: frozenset[str]
    choices: Mapping[Item, Mapping[str, Json]]

    @classmethod
    def of(cls, ledger: Ledger, fleet: Fleet, size: int, choose: Mapping[str, str] | None = None) -> Self:
        """What is known of the fleet that has these clusters and `size` in all.

        :param choose: conflict id → cluster, what the operator chooses now.
        :raises Missing: there was no such conflict.
        :raises Transient: a cluster does not answer, and which it is was never seen.
        """
        names = _names(ledger, fleet, size)
        store = Agreements.of(ledger, names)
        for conflict_id, cluster in (choose or {}).items():
            store.choose(conflict_id, cluster)
        choices: dict[Item, dict[str, Json]] = {}
        for (kind, name), field, value in store.choices().values():
            choices.setdefault((Resource(kind), name), {})[field] = value
        return cls(
            store=store,
            fleet=names,
            all_seen=len(fleet.clusters) == size,
            agreed={(Resource(kind), name): one for (kind, name), one in store.agreed().items()},
            held=ledger.in_migration(),
            choices=choices,
        )

    def view(self, observed: Observed, skew: float) -> View:
        """What a cluster holds, with the times that earlier looks and events tell."""
        cluster = observed.snapshot.cluster
        items = items_of(observed.snapshot, self.fleet)
        looks = {(Resource(kind), name): one for (kind, name), one in self.store.sightings(cluster).items()}
        # A topic that lost all its policies shows none: when it lost them is seen all the same.
        bare = [item for item in looks if item[0] is Resource.TOPIC_POLICY and place(item)[1] in observed.events]
        seen: dict[Item, Mapping[str, Seen]] = {}
        for item in {*items, *bare}:
            times = observed.events.get(place(item)[1]) if item[0] is Resource.TOPIC_POLICY else None
            known = times.spans(item[1], observed.clock, skew) if times else None
            look = looks.get(item)
            before = Observation.from_json(look.looked, look.fields) if look else None
            found = observe(before, items.get(item, {}), began=observed.began, ended=observed.ended, known=known)
            seen[item] = found.fields
        return View(cluster=cluster, items=items, seen=seen, unread=observed.unread, topics=observed.topics)

    def keep_looks(
        self, views: Sequence[View], observed: Mapping[str, Observed], writing: Iterable[Compared] = ()
    ) -> None:
        """Keep what this run saw, and what it is about to write, before it writes anything."""
        decided = decided_values(writing, time.time())
        for view in views:
            began, ours = observed[view.cluster].began, decided.get(view.cluster, {})
            looks = {
                _plain(item): Sighting(began, Observation(began, fields).awaiting(ours.get(item, {})).to_json())
                for item, fields in view.seen.items()
                if view.knows(item)
            }
            self.store.see(view.cluster, looks)

    def journal(self, run_id: str, compared: Iterable[Compared]) -> int:
        """Keep conflicts before a loser is written over; returns how many are new."""
        return self.store.journal(run_id, list(conflicts_of(compared)))

    def settle(self, compared: Sequence[Compared], done: Mapping[str, Written]) -> None:
        """Keep what the clusters hold alike now, and which choices are in force."""
        settled = settle(compared, done, all_seen=self.all_seen)
        self.store.agree({_plain(item): one for item, one in settled.agreements.items()})
        decided = {(one.item, name) for one in compared for name in one.merged.decisions} - settled.in_force
        open_ = {item for item in self.choices} - {one.item for one in compared}
        self.store.settle(
            conflict_id
            for conflict_id, ((kind, name), field, _) in self.store.choices().items()
            if (Resource(kind), name) not in open_ and ((Resource(kind), name), field) not in decided
        )

    def last_seen(self) -> dict[str, float | None]:
        """Cluster → when it was last seen, for each of the fleet."""
        return {name: self.store.last_look(name) for name in self.fleet}


def _names(ledger: Ledger, fleet: Fleet, size: int) -> tuple[str, ...]:
    reached = set(fleet.clusters)
    if len(reached) == size:
        return tuple(sorted(reached))
    known = [names for names in fleets(ledger) if len(names) == size and reached < names]
    if reached and len(known) == 1:
        return tuple(sorted(known[0]))
    raise Unavailable(next(iter(fleet.behind.values())))


def _plain(item: Item) -> tuple[str, str]:
    return item[0].value, item[1]
