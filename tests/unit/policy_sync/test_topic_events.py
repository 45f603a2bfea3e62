"""Events of one partitioned topic on three clusters: the largest count, the later of deletion and edit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import MetadataChangeEvent, reason_to_refuse
from pulsar_fleet.policy_sync.events.ordering.updates import Order, accepted_updates, outstanding
from pulsar_fleet.policy_sync.events.request import Request
from pulsar_fleet.policy_sync.events.resolve import resolve, waiting_deletion
from pulsar_fleet.policy_sync.events.versions import (
    EXISTS,
    FieldVersion,
    ObservedValues,
    ResourceVersions,
    Version,
    next_versions,
)
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item

ITEM: Item = (Resource.TOPIC, "persistent://acme/orders/new")
CLUSTERS = ("blue", "green", "red")
ORDER = Order()


def _event(count: int, at: int, cluster: str) -> MetadataChangeEvent:
    return MetadataChangeEvent.of(ITEM, {EXISTS: True, "partitions": count}, _versions(count, at, cluster), {})


def _versions(count: int, at: int, cluster: str) -> ResourceVersions:
    values = {EXISTS: True, "partitions": count}
    version = Version(at, cluster)
    return ResourceVersions(fields={name: FieldVersion(digest(value), version) for name, value in values.items()})


def _deletion(at: int, cluster: str) -> MetadataChangeEvent:
    versions = ResourceVersions(fields={EXISTS: FieldVersion("", Version(at, cluster))})
    return MetadataChangeEvent.of(ITEM, {}, versions, {})


@dataclass
class Cluster:
    """The topic on one cluster; empty without it."""

    name: str
    values: dict[str, Json] = field(default_factory=dict)
    versions: ResourceVersions = field(default_factory=ResourceVersions)
    inbox: list[MetadataChangeEvent] = field(default_factory=list)

    def scan(self, now: int) -> None:
        values = {**self.values, EXISTS: True} if self.values else {}
        self.versions = next_versions(self.versions, ObservedValues(values=values, now=now), self.name)

    def apply(self, events: list[MetadataChangeEvent], now: int) -> None:
        self.scan(now)
        updates = accepted_updates(events, self.versions, ORDER)
        decided = resolve(ITEM, updates, self.versions, events, ORDER, present=self.values or None)
        waiting = decided.deleted or self.versions.deleted_elsewhere
        self.versions = replace(self.versions.awaiting(decided.versions), deleted_elsewhere=waiting)
        if self.values or decided.create:
            merged = {**self.values, **decided.values}
            assert merged["partitions"] >= self.values.get("partitions", 0), "no partition is removed"
            self.values = {name: value for name, value in merged.items() if value is not None}
        self.scan(now)
        assert not self.versions.expected
        missing = outstanding(ITEM, updates, self.versions, ORDER)
        assert not {name for name in missing if not (name == EXISTS and decided.deleted)}

    def approve(self, now: int) -> None:
        """As a person does: what waits is deleted."""
        self.scan(now)
        if (version := waiting_deletion(self.versions, ORDER)) and self.values:
            self.versions = self.versions.awaiting({name: FieldVersion("", version) for name in self.versions.fields})
            self.values = {}
            self.scan(now)


@dataclass
class Fleet:
    clusters: dict[str, Cluster] = field(default_factory=lambda: {name: Cluster(name) for name in CLUSTERS})
    now: int = 1000
    most: int = 1

    def tick(self) -> int:
        self.now += 10
        return self.now

    def edit(self, name: str, change: str) -> None:
        cluster = self.clusters[name]
        if change == "delete":
            cluster.values = {}
        elif change == "grow":
            cluster.values = {**cluster.values, "partitions": cluster.values.get("partitions", 0) + 1}
        elif cluster.values:
            cluster.values["properties/owner"] = f"{name} at {self.now}"
        self.publish(name)

    def publish(self, name: str, *, snapshot: bool = False) -> bool:
        cluster = self.clusters[name]
        cluster.scan(self.tick())
        if not cluster.versions.fields or not (snapshot or not cluster.versions.published):
            return False
        values = {**cluster.values, EXISTS: True} if cluster.values else {}
        event = MetadataChangeEvent.of(ITEM, values, cluster.versions, {})
        cluster.versions = cluster.versions.as_published()
        decoded = MetadataChangeEvent.decode(event.encode())
        assert (decoded.item, reason_to_refuse(decoded)) == (ITEM, "")
        for other in self.clusters.values():  # A cluster receives its own events too.
            other.inbox.append(decoded)
        return True

    def deliver(self, name: str, at: int = 0, together: int = 1) -> None:
        """Apply an event from anywhere in the inbox, with those that follow it."""
        cluster = self.clusters[name]
        if cluster.inbox:
            first = at % len(cluster.inbox)
            events = cluster.inbox[first : first + together]
            del cluster.inbox[first : first + together]
            cluster.apply(events, self.tick())

    def settle(self) -> None:
        for snapshot in (False, True, True, False):
            for name in CLUSTERS:
                self.publish(name, snapshot=snapshot)
            while any(cluster.inbox for cluster in self.clusters.values()):
                for name in CLUSTERS:
                    self.deliver(name)


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(("grow", "set", "delete"))),
        st.tuples(st.sampled_from(CLUSTERS), st.tuples(st.integers(0, 5), st.integers(1, 3))),
    ),
    max_size=24,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_events_in_any_order_make_clusters_identical_after_approval(taken: list[tuple[str, Any]]) -> None:
    fleet = Fleet()
    for name, step in taken:
        if isinstance(step, tuple):
            fleet.deliver(name, *step)
        else:
            fleet.edit(name, step)
    fleet.settle()
    states = [cluster.values for cluster in fleet.clusters.values() if cluster.values]
    assert all(state == states[0] for state in states)
    waiting = {
        name for name, cluster in fleet.clusters.items() if cluster.values and waiting_deletion(cluster.versions, ORDER)
    }
    assert not waiting or waiting == {name for name, cluster in fleet.clusters.items() if cluster.values}
    absent = {name for name, cluster in fleet.clusters.items() if not cluster.values}
    assert bool(waiting) or absent in (set(), set(CLUSTERS))
    for cluster in fleet.clusters.values():
        cluster.approve(fleet.tick())
    fleet.settle()
    first, *others = (cluster.values for cluster in fleet.clusters.values())
    assert all(other == first for other in others)
    assert not any(fleet.publish(name) for name in CLUSTERS)


def test_of_counts_that_arrive_together_the_larger_one_wins_in_any_order() -> None:
    """A cluster that grew its topic by less receives its own, later event in one batch with the other one's."""
    larger, smaller, here = _event(5, 10, "blue"), _event(3, 20, "green"), _versions(3, 20, "green")
    for events in ([larger, smaller], [smaller, larger]):
        updates = accepted_updates(events, here, ORDER)
        decided = resolve(ITEM, updates, here, events, ORDER, present={"partitions": 3})
        assert decided.values == {"partitions": 5}
        assert decided.versions == {"partitions": FieldVersion(digest(5), Version(20, "green"))}


def test_events_of_a_topic_that_is_deleted_already_request_only_that() -> None:
    events = [_event(3, 10, "blue"), _deletion(20, "blue")]
    assert accepted_updates(events, ResourceVersions(), ORDER) == {EXISTS: (None, Version(20, "blue"))}


LIVES = (_event(5, 10, "blue"), _deletion(20, "blue"), _event(3, 30, "blue"))


@pytest.mark.parametrize("events", list(permutations(LIVES)))
def test_a_recreated_topic_does_not_get_the_larger_count_from_before(events: list[MetadataChangeEvent]) -> None:
    here = ResourceVersions()
    decided = resolve(ITEM, accepted_updates(events, here, ORDER), here, events, ORDER, present=None)
    assert (decided.create, decided.values) == (True, {"partitions": 3})


@pytest.mark.parametrize(
    ("name", "takes_part"),
    [
        ("persistent://acme/orders/new", True),
        ("persistent://acme/orders/new-partition-0", False),
        ("persistent://acme/orders/__change_events", False),
        ("non-persistent://acme/orders/new", False),
        ("persistent://pulsar-fleet/metadata/events", False),
        ("persistent://other/orders/new", False),
    ],
)
def test_which_partitioned_topics_take_part(name: str, takes_part: bool) -> None:
    selection = Selection(tenants=frozenset({"acme", "pulsar-fleet"}))
    assert Request(selection=selection).includes((Resource.TOPIC, str(TopicName.parse(name)))) is takes_part
    assert not Request(selection=selection, partitioned_topics=False).includes((Resource.TOPIC, name))
