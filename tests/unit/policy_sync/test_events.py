"""Events of metadata: in any order, however often and with snapshots in between, the same state comes out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.event import (
    SCHEMA,
    EventType,
    MetadataChangeEvent,
    ResourceType,
    reason_to_refuse,
)
from pulsar_fleet.policy_sync.events.last_updated import stale_properties
from pulsar_fleet.policy_sync.events.ordering.conflicts import conflicts_of, kept_edit_conflict
from pulsar_fleet.policy_sync.events.ordering.updates import Order, accepted_updates, is_newer, lost_edits, outstanding
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
from pulsar_fleet.policy_sync.merge.deletion_plan import EDIT_WINS, EXISTENCE
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity, TieBreak
from pulsar_fleet.policy_sync.merge.provenance import digest
from pulsar_fleet.policy_sync.merge.view import Item

CLUSTERS = ("blue", "green", "red")
FIELDS = ("ttl", "quota")
ITEM: Item = (Resource.NAMESPACE, "acme/orders")


@dataclass
class Cluster:
    """One namespace on one cluster, what is known of it, the events that have not arrived yet, and edits that lost."""

    name: str
    values: dict[str, Json] = field(default_factory=lambda: {EXISTS: True})
    versions: ResourceVersions | None = None
    inbox: list[MetadataChangeEvent] = field(default_factory=list)
    lost: int = 0
    recorded: set[Json] = field(default_factory=set)

    def scan_cluster(self, now: int, order: Order) -> None:
        provenance = ObservedValues(values=self.values, now=now, first=self.versions is None, whole=order.whole)
        self.versions = next_versions(self.versions, provenance, self.name)

    def apply(self, event: MetadataChangeEvent, now: int, order: Order, crash: str = "") -> bool:
        """Whether anything was written; a crash leaves the event to be delivered again."""
        self.scan_cluster(now, order)
        assert self.versions is not None
        updates = accepted_updates([event], self.versions, order)
        decided = resolve(ITEM, updates, self.versions, [event], order, present=self.values or None)
        for conflict in conflicts_of(ITEM, updates, self.versions, self.values):
            self.recorded |= {side["value"] for side in conflict.sides.values()}
        self.versions = self.versions.awaiting(decided.versions)
        if crash == "before the write":
            return False
        written = {name: value for name, value in decided.values.items() if self.values.get(name) != value}
        self.values = {name: value for name, value in {**self.values, **written}.items() if value is not None}
        if not crash:
            self.lost += len(lost_edits(updates, [event], self.versions, self.name, order))
            self.scan_cluster(now, order)
            assert not outstanding(ITEM, updates, self.versions, order)
            assert not self.versions.expected
        return bool(written)


@dataclass
class Fleet:
    """Clusters that tell each other; `edits` is what a person knows: field → the last value that was set anywhere."""

    order: Order
    now: int = 1000
    serial: int = 0
    edits: dict[str, dict[str, Json]] = field(default_factory=lambda: {name: {} for name in FIELDS})
    last: dict[str, Json] = field(default_factory=dict)
    replaced: set[Json] = field(default_factory=set)
    clusters: dict[str, Cluster] = field(default_factory=lambda: {name: Cluster(name) for name in CLUSTERS})
    topic: list[MetadataChangeEvent] = field(default_factory=list)

    def edit(self, cluster: str, name: str) -> None:
        self.serial += 1
        self.replaced.add(self.clusters[cluster].values.get(name))
        self.clusters[cluster].values[name] = self.edits[name][cluster] = self.last[name] = self.serial

    def publish(self, cluster: str, *, snapshot: bool = False) -> None:
        member = self.clusters[cluster]
        self.now += 10
        member.scan_cluster(self.now, self.order)
        assert member.versions is not None
        if snapshot or not member.versions.published:
            event = MetadataChangeEvent.of(ITEM, member.values, member.versions, {})
            member.versions = member.versions.as_published()
            self.topic.append(event)
            for other in self.clusters.values():
                other.inbox.append(event)

    def deliver(self, cluster: str, crash: str = "") -> None:
        member = self.clusters[cluster]
        self.now += 1
        if member.inbox:
            member.apply(member.inbox[0], self.now, self.order, crash)
            if not crash:
                member.inbox.pop(0)

    def settle(self) -> None:
        for _ in range(3):
            for name in CLUSTERS:
                self.publish(name)
            for name in CLUSTERS:
                while self.clusters[name].inbox:
                    self.deliver(name)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("edit", "publish", "snapshot", "deliver", "crash before the write", "crash after the write")),
        st.sampled_from(CLUSTERS),
        st.sampled_from(FIELDS),
    ),
    max_size=25,
)


def play(fleet: Fleet, steps: Sequence[tuple[str, str, str]]) -> None:
    for what, cluster, name in steps:
        if what == "edit":
            fleet.edit(cluster, name)
        elif what in ("publish", "snapshot"):
            fleet.publish(cluster, snapshot=what == "snapshot")
        else:
            fleet.deliver(cluster, what.removeprefix("crash ") if what.startswith("crash") else "")


@settings(max_examples=300)
@given(STEPS, st.sampled_from(TieBreak))
def test_an_edit_that_is_gone_without_a_successor_is_a_conflict_on_record(
    steps: list[tuple[str, str, str]], tie_break: TieBreak
) -> None:
    fleet = Fleet(Order(tie_break=tie_break))
    play(fleet, steps)
    fleet.settle()
    recorded = {value for cluster in fleet.clusters.values() for value in cluster.recorded}
    for name, edits in fleet.edits.items():
        gone = set(edits.values()) - {fleet.clusters["blue"].values.get(name)} - fleet.replaced
        assert gone <= recorded, name


@settings(max_examples=300)
@given(STEPS, st.sampled_from(TieBreak))
def test_clusters_end_identical_and_an_edit_is_lost_to_another_edit_only(
    steps: list[tuple[str, str, str]], tie_break: TieBreak
) -> None:
    fleet = Fleet(Order(tie_break=tie_break))
    play(fleet, steps)
    fleet.settle()
    assert len({repr(sorted(cluster.values.items())) for cluster in fleet.clusters.values()}) == 1
    for name, edits in fleet.edits.items():
        # The last edit of a cluster may lose to that of another cluster, never to an older value.
        assert fleet.clusters["blue"].values.get(name) in (edits.values() or [None]), name


@settings(max_examples=300)
@given(STEPS, st.sampled_from(TieBreak))
def test_whole_documents_too_are_the_same_everywhere_in_the_end(
    steps: list[tuple[str, str, str]], tie_break: TieBreak
) -> None:
    fleet = Fleet(Order(tie_break=tie_break, granularity=Granularity.DOCUMENT))
    play(fleet, steps)
    fleet.settle()
    assert len({repr(sorted(cluster.values.items())) for cluster in fleet.clusters.values()}) == 1


def test_a_whole_document_loses_one_of_two_disjoint_edits_and_counts_it() -> None:
    results = {}
    for granularity in Granularity:
        fleet = Fleet(Order(granularity=granularity))
        fleet.settle()
        fleet.edit("blue", "ttl")
        fleet.publish("blue")
        fleet.edit("green", "quota")
        fleet.settle()
        values = [(cluster.values.get("ttl"), cluster.values.get("quota")) for cluster in fleet.clusters.values()]
        results[granularity] = values, sum(cluster.lost for cluster in fleet.clusters.values())
    assert results == {Granularity.FIELD: ([(1, 2)] * 3, 0), Granularity.DOCUMENT: ([(None, 2)] * 3, 1)}


def test_a_later_edit_of_the_same_field_wins_and_is_no_lost_edit() -> None:
    fleet = Fleet(Order(granularity=Granularity.DOCUMENT))
    fleet.settle()
    fleet.edit("blue", "ttl")
    fleet.publish("blue")
    fleet.edit("green", "ttl")
    fleet.settle()
    assert [(cluster.values["ttl"], cluster.lost) for cluster in fleet.clusters.values()] == [(2, 0)] * 3


def test_a_later_document_makes_again_what_was_deleted_here() -> None:
    order = Order(granularity=Granularity.DOCUMENT)
    gone = ResourceVersions(fields={EXISTS: FieldVersion("", Version(5, "blue"))})
    changed = event(at=7, data={"values": {EXISTS: True, "ttl": 1}, "times": TIMES, "made_with": {}})
    decided = resolve(ITEM, accepted_updates([changed], gone, order), gone, [changed], order, present=None)
    assert (decided.create, decided.values) == (True, {"ttl": 1})


TIMES = {EXISTS: [1, "green"], "ttl": [7, "green"]}


def test_provenance_is_written_only_where_it_differs_and_a_time_is_known() -> None:
    versions = ResourceVersions(
        fields={"ttl": FieldVersion("x", Version(5, "blue")), EXISTS: FieldVersion("y", Version(3, "green"))}
    )
    stamp = {"lastUpdatedBy": "blue", "lastUpdatedTime": "5"}
    for document, expected in (
        ({}, {ITEM[1]: stamp}),
        ({"properties": {"owner": "us", **stamp}}, {}),
        ({"properties": {**stamp, "lastUpdatedTime": "4"}}, {ITEM[1]: stamp}),
    ):
        assert stale_properties({ITEM[1]: document}, {ITEM: versions}) == expected
    assert (
        stale_properties(
            {ITEM[1]: {}}, {ITEM: ResourceVersions(fields={EXISTS: FieldVersion("y", Version(0, "blue"))})}
        )
        == {}
    )
    assert stale_properties({}, {ITEM: versions, (Resource.TENANT, "acme"): versions}) == {}


@settings(max_examples=200)
@given(STEPS, st.sampled_from(Granularity), st.randoms(use_true_random=False))
def test_a_topic_that_is_replayed_in_any_order_changes_nothing(
    steps: list[tuple[str, str, str]], granularity: Granularity, order: object
) -> None:
    fleet = Fleet(Order(granularity=granularity))
    play(fleet, steps)
    fleet.settle()
    replayed = order.sample(fleet.topic, len(fleet.topic))  # type: ignore[attr-defined]
    for cluster in fleet.clusters.values():
        assert not any([cluster.apply(event, fleet.now + 5, fleet.order) for event in replayed])
        assert cluster.versions == cluster.versions.as_published()  # type: ignore[union-attr]


def test_a_second_edit_of_a_value_is_carried_before_the_first_is_forgotten() -> None:
    fleet = Fleet(Order())
    fleet.settle()
    for _ in range(3):
        fleet.edit("red", FIELDS[0])
        fleet.publish("red")
    fleet.settle()
    assert [cluster.values[FIELDS[0]] for cluster in fleet.clusters.values()] == [3, 3, 3]


def test_an_edit_of_a_copied_value_beats_it_although_our_clock_is_behind() -> None:
    fleet = Fleet(Order())
    fleet.settle()
    fleet.edit("red", FIELDS[0])
    fleet.publish("red")
    fleet.deliver("green")
    fleet.now -= 10_000
    fleet.edit("green", FIELDS[0])
    fleet.settle()
    assert [cluster.values[FIELDS[0]] for cluster in fleet.clusters.values()] == [2, 2, 2]


@pytest.mark.parametrize("granularity", Granularity)
def test_a_value_sent_by_a_killed_follower_is_as_old_as_its_original(
    granularity: Granularity,
) -> None:
    fleet = Fleet(Order(granularity=granularity))
    fleet.settle()
    green = fleet.clusters["green"]
    for name in FIELDS:
        fleet.edit("red", name)
    fleet.publish("red")
    fleet.deliver("green", "before the write")
    for name, late in zip(FIELDS, (1, 2), strict=True):
        fleet.publish("green")
        green.values[name] = late
    fleet.publish("green")
    assert [event.source_cluster for event in fleet.topic if event.update_time] == ["red"]
    fleet.settle()
    assert [cluster.values for cluster in fleet.clusters.values()] == [green.values] * 3


def test_the_first_look_at_a_cluster_beats_nothing_that_has_a_time() -> None:
    fleet = Fleet(Order())
    del fleet.clusters["blue"]
    fleet.clusters["green"].scan_cluster(fleet.now, fleet.order)
    fleet.edit("green", FIELDS[0])
    fleet.publish("green")
    late = Cluster("blue", {EXISTS: True, FIELDS[0]: "old"})
    late.scan_cluster(fleet.now + 1000, fleet.order)
    assert late.apply(fleet.topic[0], fleet.now + 2000, fleet.order)
    assert late.values[FIELDS[0]] == 1


def test_an_edit_later_than_a_deletion_recreates_the_whole_resource() -> None:
    gone = ResourceVersions(fields={EXISTS: FieldVersion("", Version(5, "blue"))})
    times = {**TIMES, "limit": [3, "green"]}
    edited = event(at=7, data={"values": {EXISTS: True, "ttl": 1, "limit": 2}, "times": times, "made_with": {}})
    updates = {"ttl": (1, Version(7, "green"))}
    decided = resolve(ITEM, updates, gone, [edited], Order(), present=None)
    assert (decided.create, decided.values) == (True, {"ttl": 1, "limit": 2})
    assert decided.versions[EXISTS].version == Version(7, "green")
    assert decided.kept_edit
    assert "deleted on blue" in decided.kept_edit.text(ITEM)
    recreated = resolve(ITEM, {EXISTS: (True, Version(9, "red")), **updates}, gone, [edited], Order(), present=None)
    assert (recreated.create, recreated.kept_edit) == (True, None)


def test_a_deletion_waits_unless_a_later_edit_overrules_it() -> None:
    deletion = {EXISTS: (None, Version(9, "green"))}
    early = ResourceVersions(fields={EXISTS: FieldVersion("d", Version(1, "blue")), "ttl": FieldVersion("d", EARLY)})
    decided = resolve(ITEM, deletion, early, [], Order(), present={"ttl": 3})
    assert (decided.deleted, decided.values, decided.versions) == (Version(9, "green"), {}, {})
    waiting = replace(early, deleted_elsewhere=decided.deleted)
    assert waiting_deletion(waiting, Order()) == Version(9, "green")
    again = event(at=9, cluster="green", type=EventType.DELETED, data=None)
    assert (EXISTS in accepted_updates([again], early, Order()), accepted_updates([again], waiting, Order())) == (
        True,
        {},
    )
    late = replace(waiting, fields={**early.fields, "ttl": FieldVersion("e", Version(12, "blue"))})
    assert waiting_deletion(late, Order()) is None
    overruled = resolve(ITEM, deletion, late, [], Order(), present={"ttl": 3})
    assert (overruled.deleted, overruled.versions[EXISTS].version) == (None, Version(12, "blue"))
    assert overruled.kept_edit
    conflict = kept_edit_conflict(ITEM, overruled.kept_edit, {"ttl": 3})
    assert (conflict.field, conflict.rule, conflict.winner) == (EXISTENCE, EDIT_WINS, "blue")
    assert {cluster: side["value"] for cluster, side in conflict.sides.items()} == {"green": None, "blue": {"ttl": 3}}


TOPIC = (Resource.TOPIC, "persistent://acme/orders/new")
EARLY = Version(2, "blue")


@pytest.mark.parametrize(
    ("field", "current", "value", "at", "wins"),
    [
        ("partitions", 3, 5, 1, True),
        ("partitions", 5, 3, 1, False),
        ("partitions", 5, 3, 9, True),
        ("partitions", 3, 3, 9, True),
        ("partitions", 3, "many", 1, False),
        ("schemas", ["a"], ["a", "b"], 1, True),
        ("schemas", ["a"], ["c"], 9, True),
        ("schemas", ["a"], ["c"], 1, False),
        ("schemas", ["a"], None, 9, False),
        ("schemas", None, ["a"], 1, False),
        ("properties/owner", "us", None, 9, True),
    ],
)
def test_of_two_values_that_grow_the_one_that_contains_the_other_wins(
    field: str, current: Json, value: Json, at: int, wins: bool
) -> None:
    here = FieldVersion(digest(current), EARLY)
    assert is_newer(TOPIC, field, (value, Version(at, "green")), here, Order()) is wins


@pytest.mark.parametrize(
    ("partitions", "value", "at", "values", "version"),
    [
        (5, 3, 9, {}, (5, Version(9, "green"))),
        (3, 5, 1, {"partitions": 5}, (5, EARLY)),
        (3, 5, 9, {"partitions": 5}, (5, Version(9, "green"))),
    ],
    ids=["a smaller and later one", "a larger and earlier one", "a larger and later one"],
)
def test_the_larger_partition_count_stays_with_the_later_version(
    partitions: int, value: int, at: int, values: Json, version: tuple[int, Version]
) -> None:
    current = ResourceVersions(fields={"partitions": FieldVersion(digest(partitions), EARLY)})
    updates = {"partitions": (value, Version(at, "green"))}
    decided = resolve(TOPIC, updates, current, [], Order(), present={"partitions": partitions})
    count, expected = version
    assert (decided.values, decided.versions) == (values, {"partitions": FieldVersion(digest(count), expected)})


def test_at_the_same_time_the_name_decides_in_the_direction_that_was_said() -> None:
    both = [event(cluster="blue"), event(cluster="green")]
    winners = {
        order: accepted_updates(both, ResourceVersions(), Order(tie_break=order))["ttl"][0] for order in TieBreak
    }
    assert winners == {TieBreak.SMALLER: "blue at 1", TieBreak.LARGER: "green at 1"}


def test_where_the_events_are_kept_never_travels() -> None:
    request = Request()
    own = [(Resource.TENANT, "pulsar-fleet"), (Resource.NAMESPACE, "pulsar-fleet/metadata")]
    assert [request.includes(item) for item in (*own, ITEM)] == [False, False, True]


def event(name: str = "acme/orders", at: int = 1, cluster: str = "blue", **changes: Json) -> MetadataChangeEvent:
    attributes = {
        "type": EventType.MODIFIED,
        "resource": ResourceType.NAMESPACES,
        "resource_name": name,
        "data": {"values": {"ttl": f"{cluster} at {at}"}, "times": {"ttl": [at, cluster]}, "made_with": {}},
        "source_cluster": cluster,
        "update_time": at,
    }
    return MetadataChangeEvent(**{**attributes, **changes})


@pytest.mark.parametrize("data", [None, {"a": [1, {"Ω": None}]}])
def test_an_event_survives_its_message(data: Json) -> None:
    sent = event(data=data)
    assert MetadataChangeEvent.decode(sent.encode()) == sent


def test_the_avro_schema_is_the_one_that_event_topics_have() -> None:
    kinds = {"EventType": ["Created", "Modified", "Deleted"], "ResourceType": ["Tenants", "Namespaces", "Topics"]}
    event_type, resource_type = ({"type": "enum", "name": name, "symbols": kinds[name]} for name in kinds)
    fields = [
        {"name": "type", "type": event_type},
        {"name": "resource", "type": resource_type},
        {"name": "resourceName", "type": "string"},
        {"name": "data", "type": ["null", "bytes"], "default": None},
        {"name": "sourceCluster", "type": "string"},
        {"name": "updateTime", "type": "long"},
    ]
    assert {"type": "record", "name": "MetadataChangeEvent", "namespace": "pulsar_fleet", "fields": fields} == SCHEMA


@pytest.mark.parametrize("content", [b"", b"\x00", b"{}", b"\xff" * 40, event().encode()[:-9]])
def test_what_is_no_event_is_refused_in_one_sentence(content: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not a MetadataChangeEvent"):
        MetadataChangeEvent.decode(content)


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_no_bytes_make_more_than_a_refusal(content: bytes) -> None:
    with suppress(InvalidRequest):
        reason_to_refuse(MetadataChangeEvent.decode(content))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"resource_name": "acme"}, "'acme' is not a namespace"),
        ({"resource": ResourceType.TOPICS}, "is not a topic"),
        ({"resource": ResourceType.TENANTS, "resource_name": "a/b"}, "is not a namespace"),
        ({"type": EventType.DELETED}, "but its event has data"),
        ({"type": EventType.DELETED, "data": None}, ""),
        ({"data": None}, "has no fields"),
        ({"data": {"values": {"ttl": 1}, "times": {}, "made_with": {}}}, "has no fields"),
        ({"data": {"values": {}, "times": {"ttl": ["now", "blue"]}, "made_with": {}}}, "has no fields"),
        ({"source_cluster": ""}, "not name the cluster"),
    ],
)
def test_an_event_that_cannot_be_meant_is_refused_with_its_reason(changes: dict[str, Json], words: str) -> None:
    reason = reason_to_refuse(event(**changes))
    assert words in reason
    assert bool(words) == bool(reason)
