"""The records of earlier runs about a fleet, and those of this run (client)."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import (
    MergeBase,
    ReconciliationStore,
    RecordedConflict,
    StoredObservation,
    known_fleets,
)
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import ComparedResource
from pulsar_fleet.policy_sync.merge.deletion_plan import EXISTENCE, DeletionConflict, Fate
from pulsar_fleet.policy_sync.merge.provenance import Observation, Provenance, observe
from pulsar_fleet.policy_sync.merge.scan import ClusterScan
from pulsar_fleet.policy_sync.merge.view import Item, View, items_of, tenant_and_namespace
from pulsar_fleet.policy_sync.reconcile.agreement import Written, conclude, conflicts_of, decided_values


@dataclass(kw_only=True)
class History:
    """The records of one fleet, read once.

    :param fleet: the names of all its clusters, including unreachable ones.
    :param all_reachable: whether all of them answer.
    :param in_migration: namespaces in a running migration: their policies differ on purpose.
    :param choices: the values that the operator chose for conflicts and that are not in force yet.
    :param deletions: the open conflicts between deletions and edits, the newest first.
    """

    store: ReconciliationStore
    fleet: tuple[str, ...]
    all_reachable: bool
    merge_bases: Mapping[Item, MergeBase]
    in_migration: frozenset[str]
    choices: Mapping[Item, Mapping[str, Json]]
    deletions: Mapping[Item, Sequence[DeletionConflict]]

    @classmethod
    def of(cls, ledger: Ledger, fleet: Fleet, size: int, choose: Mapping[str, str] | None = None) -> Self:
        """The records of the fleet with these reachable clusters and `size` clusters in all.

        :param choose: conflict id → cluster: the operator's new choices.
        :raises NotFound: the ledger has no such conflict.
        :raises Unavailable: a cluster does not answer, and no earlier run recorded its name.
        """
        names = _names(ledger, fleet, size)
        store = ReconciliationStore(ledger, names)
        for conflict_id, cluster in (choose or {}).items():
            store.choose(conflict_id, cluster)
        choices: dict[Item, dict[str, Json]] = {}
        for (kind, name), field, value in store.choices().values():
            if field != EXISTENCE:
                choices.setdefault((Resource(kind), name), {})[field] = value
        deletions: dict[Item, list[DeletionConflict]] = {}
        for _, conflict in store.unresolved(EXISTENCE):
            deletions.setdefault((Resource(conflict.kind), conflict.name), []).append(_deletion(conflict))
        return cls(
            store=store,
            fleet=names,
            all_reachable=len(fleet.clusters) == size,
            merge_bases={(Resource(kind), name): base for (kind, name), base in store.merge_bases().items()},
            in_migration=ledger.in_migration(),
            choices=choices,
            deletions=deletions,
        )

    def view(self, observed: ClusterScan, skew: float) -> View:
        """The values of a cluster, with their times from earlier scans and from events."""
        cluster = observed.snapshot.cluster
        items = items_of(observed.snapshot, self.fleet)
        stored = {(Resource(kind), name): row for (kind, name), row in self.store.observations(cluster).items()}
        # A topic that lost all its policies is in no scan; the time of its last event is still needed.
        unset = [item for item in stored if _has_events(item, observed)]
        provenance: dict[Item, Mapping[str, Provenance]] = {}
        for item in {*items, *unset}:
            times = observed.events.get(tenant_and_namespace(item)[1]) if item[0] is Resource.TOPIC_POLICY else None
            spans = times.spans(item[1], observed.clock, skew) if times else None
            row = stored.get(item)
            before = _observation(row) if row else None
            values = items.get(item, {})
            observation = observe(before, values, began=observed.began, ended=observed.ended, spans=spans)
            provenance[item] = observation.fields
        return View(
            cluster=cluster,
            items=items,
            provenance=provenance,
            unread=observed.unread,
            topics=observed.topics,
            shadows=observed.shadows,
        )

    def save_observations(
        self, views: Sequence[View], observed: Mapping[str, ClusterScan], writing: Iterable[ComparedResource] = ()
    ) -> None:
        """Save the observations of this run and the values that it is going to write, before it writes."""
        decided = decided_values(writing, time.time())
        for view in views:
            began, expected = observed[view.cluster].began, decided.get(view.cluster, {})
            rows = {
                _plain(item): StoredObservation(
                    began, Observation(began, fields).awaiting(expected.get(item, {})).to_json()
                )
                for item, fields in view.provenance.items()
                if view.has_read(item)
            }
            self.store.save_observations(view.cluster, rows)

    def conflicts(self, compared: Iterable[ComparedResource]) -> list[tuple[str, RecordedConflict]]:
        """Id and conflict of everything that clusters wrote differently, whether an earlier run recorded it or not."""
        return [(self.store.conflict_id(conflict), conflict) for conflict in conflicts_of(compared)]

    def record_conflicts(self, run_id: str, compared: Sequence[ComparedResource]) -> None:
        """Record conflicts before a losing value is overwritten, and resolve those about deletions that are settled."""
        self.store.record_conflicts(run_id, list(conflicts_of(compared)))
        disputed = {resource.item for resource in compared if resource.deletion or resource.gone or resource.missing}
        seen = {resource.item for resource in compared}
        self.store.resolve_choices(
            conflict_id
            for conflict_id, conflict in self.store.unresolved(EXISTENCE)
            if (item := (Resource(conflict.kind), conflict.name)) not in disputed
            and (item in seen or item not in self.merge_bases)
        )

    def conclude(self, compared: Sequence[ComparedResource], done: Mapping[str, Written]) -> None:
        """Save the new merge bases and the choices that are now in force."""
        conclusion = conclude(compared, done, all_reachable=self.all_reachable)
        self.store.save_merge_bases({_plain(item): base for item, base in conclusion.merge_bases.items()})
        for cluster, confirmed in conclusion.confirmed.items():
            self._confirm(cluster, confirmed)
        items = {resource.item for resource in compared}
        decided = {(resource.item, name) for resource in compared for name in resource.merged.decisions}
        open_fields, open_items = decided - conclusion.in_force, set(self.choices) - items
        self.store.resolve_choices(
            conflict_id
            for conflict_id, ((kind, name), field, _) in self.store.choices().items()
            if field != EXISTENCE
            and (Resource(kind), name) not in open_items
            and ((Resource(kind), name), field) not in open_fields
        )

    def _confirm(self, cluster: str, confirmed: Mapping[Item, Collection[str]]) -> None:
        """Save that the values that were expected on a cluster are there."""
        stored = self.store.observations(cluster)
        rows = {}
        for item, names in confirmed.items():
            if row := stored.get(_plain(item)):
                observation = _observation(row).confirming(names)
                rows[_plain(item)] = StoredObservation(row.observed_at, observation.to_json())
        self.store.save_observations(cluster, rows)

    def last_observed(self) -> dict[str, float | None]:
        """Cluster → when it was last read, for each of the fleet."""
        return {name: self.store.last_observed(name) for name in self.fleet}


def _deletion(conflict: RecordedConflict) -> DeletionConflict:
    sides = {cluster: side["value"] for cluster, side in conflict.sides.items()}
    if conflict.chosen is None:
        return DeletionConflict(sides)
    return DeletionConflict(sides, Fate.DELETED if sides[conflict.chosen] is None else Fate.KEPT)


def _observation(row: StoredObservation) -> Observation:
    return Observation.from_json({**row.document, "observed_at": row.observed_at})


def _has_events(item: Item, observed: ClusterScan) -> bool:
    return item[0] is Resource.TOPIC_POLICY and tenant_and_namespace(item)[1] in observed.events


def _names(ledger: Ledger, fleet: Fleet, size: int) -> tuple[str, ...]:
    reached = set(fleet.clusters)
    if len(reached) == size:
        return tuple(sorted(reached))
    candidates = [names for names in known_fleets(ledger) if len(names) == size and reached < names]
    if reached and len(candidates) == 1:
        return tuple(sorted(candidates[0]))
    raise Unavailable(next(iter(fleet.behind.values())))


def _plain(item: Item) -> tuple[str, str]:
    return item[0].value, item[1]
