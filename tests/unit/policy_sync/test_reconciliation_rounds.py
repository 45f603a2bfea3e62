"""Rounds of edits on a fleet of which clusters are away, refuse writes and lose a run: nothing else may be lost."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.reconciliation_store import MergeBase
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.compare import CompareOptions, Comparison, compare
from pulsar_fleet.policy_sync.merge.provenance import Observation, observe
from pulsar_fleet.policy_sync.merge.view import Item, View
from pulsar_fleet.policy_sync.reconcile.agreement import ChangeKey, conclude, decided_values

CLUSTERS = ("blue", "green", "red")
FIELDS = ("max_producers_per_topic", "max_consumers_per_topic")
ITEM: Item = (Resource.NAMESPACE, "acme/orders")
Write = tuple[str, str]
"""A cluster and a field."""


@dataclass
class Fleet:
    """Three clusters with one namespace, and what runs remember of them; `edits` is what a person knows."""

    values: dict[str, dict[str, Json]] = field(default_factory=lambda: {cluster: {} for cluster in CLUSTERS})
    looks: dict[str, Observation] = field(default_factory=dict)
    agreed: dict[Item, MergeBase] = field(default_factory=dict)
    edits: dict[str, dict[str, Json]] = field(default_factory=lambda: {name: {} for name in FIELDS})
    now: float = 100.0
    serial: int = 0

    def edit(self, cluster: str, name: str, value: int | None = None) -> None:
        """A person sets this value, or one that nobody had before."""
        self.serial += 1
        self.values[cluster][name] = self.edits[name][cluster] = value or self.serial

    def run(self, away: str = "", refused: frozenset[Write] = frozenset(), *, killed: bool = False) -> Comparison:
        """One run; a killed one has written, and remembers nothing of that."""
        self.now += 100
        reached = [cluster for cluster in CLUSTERS if cluster != away]
        for cluster in reached:
            self.looks[cluster] = observe(
                self.looks.get(cluster), self.values[cluster], began=self.now, ended=self.now + 10
            )
        views = [
            View(
                cluster=cluster, items={ITEM: dict(self.values[cluster])}, provenance={ITEM: self.looks[cluster].fields}
            )
            for cluster in reached
        ]
        comparison = compare(views, self.agreed, CompareOptions())
        for cluster, decided in decided_values(comparison.drift(), self.now + 20).items():
            self.looks[cluster] = self.looks[cluster].awaiting(decided[ITEM])
        done = {cluster: self._write(comparison, cluster, refused) for cluster in reached}
        if not killed:
            conclusion = conclude(comparison.compared, done, all_reachable=not away)
            self.agreed |= {item: merge_base for item, merge_base in conclusion.merge_bases.items() if merge_base}
            for cluster, confirmed in conclusion.confirmed.items():
                self.looks[cluster] = self.looks[cluster].confirming(confirmed[ITEM])
        return comparison

    def _write(self, comparison: Comparison, cluster: str, refused: frozenset[Write]) -> dict[ChangeKey, Json]:
        done: dict[ChangeKey, Json] = {}
        for resource in comparison.drift():
            for name, clusters in resource.drifting.items():
                if cluster in clusters and (cluster, name) not in refused:
                    value = done[Resource.POLICY, ITEM[1], name] = resource.merged.values.get(name)
                    self.values[cluster] = {**self.values[cluster], name: value}
        return done


WRITES = st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(FIELDS))
ROUNDS = st.lists(
    st.fixed_dictionaries(
        {
            "edits": st.lists(WRITES, max_size=3),
            "away": st.sampled_from(("", *CLUSTERS)),
            "refused": st.frozensets(WRITES, max_size=2),
            "killed": st.booleans(),
        }
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=400)
@given(ROUNDS)
def test_clusters_end_identical_and_an_edit_is_lost_to_another_edit_only(rounds: list[dict[str, object]]) -> None:
    fleet = Fleet()
    fleet.run()
    for step in rounds:
        for cluster, name in step["edits"]:  # type: ignore[attr-defined]
            fleet.edit(cluster, name)
        fleet.run(step["away"], step["refused"], killed=step["killed"])  # type: ignore[arg-type]
    fleet.run()
    assert fleet.run().drift() == ()
    assert len({repr(sorted(values.items())) for values in fleet.values.values()}) == 1
    for name, edits in fleet.edits.items():
        # The last edit of a cluster may lose to that of another cluster, never to an older value.
        assert fleet.values["blue"].get(name) in (edits.values() or [None]), name


REVERTS = st.lists(
    st.fixed_dictionaries(
        {
            "edits": st.lists(st.tuples(st.sampled_from(CLUSTERS), st.integers(1, 2)), max_size=3),
            "away": st.sampled_from(("", *CLUSTERS)),
            "refused": st.frozensets(st.tuples(st.sampled_from(CLUSTERS), st.just(FIELDS[0])), max_size=2),
            "killed": st.booleans(),
        }
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=400)
@given(REVERTS)
def test_a_value_that_somebody_gave_back_is_lost_to_another_edit_only(rounds: list[dict[str, object]]) -> None:
    fleet = Fleet()
    for cluster in CLUSTERS:
        fleet.values[cluster][FIELDS[0]] = 1
    fleet.run()
    for step in rounds:
        for cluster, value in step["edits"]:  # type: ignore[attr-defined]
            if fleet.values[cluster][FIELDS[0]] != value:
                fleet.edit(cluster, FIELDS[0], value)
        fleet.run(step["away"], step["refused"], killed=step["killed"])  # type: ignore[arg-type]
    fleet.run()
    assert fleet.run().drift() == ()
    assert fleet.values["blue"][FIELDS[0]] in (fleet.edits[FIELDS[0]].values() or [1])


def test_a_value_that_was_given_back_wins_over_its_own_copy_elsewhere() -> None:
    name = FIELDS[0]
    fleet = Fleet()
    for cluster in CLUSTERS:
        fleet.values[cluster][name] = 1
    fleet.run()
    fleet.edit("red", name, 2)
    # Only blue takes the copy.
    fleet.run(refused=frozenset({("green", name)}))
    fleet.edit("red", name, 1)
    fleet.run()
    assert [values[name] for values in fleet.values.values()] == [1, 1, 1]
    fleet.edit("blue", name, 2)
    fleet.run()
    assert [values[name] for values in fleet.values.values()] == [2, 2, 2]


def test_a_run_killed_after_its_writes_makes_no_copy_beat_the_next_edit() -> None:
    fleet = Fleet()
    fleet.run()
    fleet.edit("red", FIELDS[0])
    fleet.run(killed=True)
    fleet.edit("red", FIELDS[0])
    comparison = fleet.run()
    assert [values[FIELDS[0]] for values in fleet.values.values()] == [2, 2, 2]
    assert comparison.compared[0].merged.values == {FIELDS[0]: 2}


def test_edits_while_a_cluster_is_away_do_not_conflict_with_their_copies() -> None:
    fleet = Fleet()
    fleet.run()
    for _ in range(3):
        fleet.edit("green", FIELDS[0])
        (resource,) = fleet.run(away="red").compared
        assert (resource.merged.values, resource.conflicts) == ({FIELDS[0]: fleet.serial}, ())
    fleet.edit("blue", FIELDS[0])
    fleet.edit("green", FIELDS[0])
    (resource,) = fleet.run().compared
    assert resource.conflicts == (FIELDS[0],)
    assert fleet.run().drift() == ()


def test_a_later_decision_counts_where_two_decisions_chose_the_opposite() -> None:
    name = FIELDS[0]
    fleet = Fleet()
    fleet.run()
    fleet.edit("green", name)
    fleet.edit("red", name)
    fleet.run(away="green")
    fleet.edit("red", name)
    # Blue's copy of red's first value wins over green's by its name, and green refuses it.
    fleet.run(away="red", refused=frozenset({("green", name)}))
    # Green's value wins over red's by its name, and blue refuses it.
    fleet.run(refused=frozenset({("blue", name)}))
    fleet.run()
    assert [values[name] for values in fleet.values.values()] == [1, 1, 1]
