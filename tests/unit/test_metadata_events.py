"""Events of metadata: in any order, however often and with snapshots in between, the same state comes out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.agreement.merge import TieBreak
from pulsar_fleet.cluster.errors import Rejected
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.metadata_sync.events import (
    EventType,
    MetadataChangeEvent,
    ResourceType,
    Stamp,
    reason_to_refuse,
    to_apply,
)

CLUSTERS = ("blue", "green", "red")


def event(name: str = "acme/orders", at: int = 1, cluster: str = "blue", **changes: Json) -> MetadataChangeEvent:
    given = {
        "type": EventType.MODIFIED,
        "resource": ResourceType.NAMESPACES,
        "resource_name": name,
        "data": {"ttl": f"{cluster} at {at}"},
        "source_cluster": cluster,
        "update_time": at,
    }
    return MetadataChangeEvent(**{**given, **changes})


EVENTS = st.lists(
    st.builds(event, st.sampled_from(("acme/a", "acme/b")), st.integers(0, 4), st.sampled_from(CLUSTERS)), max_size=8
)


def applied(events: Iterable[MetadataChangeEvent], tie_break: TieBreak) -> tuple[dict[str, Json], list[bool]]:
    """What a cluster holds after some events, and which of them had an effect."""
    stamps: dict[str, Stamp] = {}
    held: dict[str, Json] = {}
    effects = []
    for one in events:
        effects.append(to_apply(one, stamps, tie_break))
        if effects[-1]:
            stamps[one.key], held[one.key] = one.stamp, one.data
    return held, effects


@settings(deadline=None)
@given(EVENTS, st.sampled_from(TieBreak), st.randoms(use_true_random=False))
def test_in_any_order_and_however_often_the_same_state_comes_out(
    events: list[MetadataChangeEvent], tie_break: TieBreak, order: random.Random
) -> None:
    shuffled = order.sample([*events, *events], 2 * len(events))
    assert applied(shuffled, tie_break)[0] == applied(events, tie_break)[0]


@settings(deadline=None)
@given(EVENTS, st.sampled_from(TieBreak))
def test_a_topic_that_is_replayed_from_the_beginning_changes_nothing(
    events: list[MetadataChangeEvent], tie_break: TieBreak
) -> None:
    assert not any(applied([*events, *events], tie_break)[1][len(events) :])


def test_at_the_same_time_the_name_decides_in_the_direction_that_was_said() -> None:
    both = [event(cluster="blue"), event(cluster="green")]
    found = {order: applied(both, order)[0]["Namespaces/acme/orders"] for order in TieBreak}
    assert found == {TieBreak.SMALLER: {"ttl": "blue at 1"}, TieBreak.LARGER: {"ttl": "green at 1"}}


def test_a_snapshot_with_an_old_value_beats_nothing_newer() -> None:
    snapshot = [event(at=3, cluster="red"), event(at=3, cluster="red", type=EventType.CREATED)]
    assert applied([event(at=5), *snapshot], TieBreak.SMALLER)[1] == [True, False, False]


@pytest.mark.parametrize("data", [None, {"a": [1, {"Ω": None}]}])
def test_an_event_survives_its_message(data: Json) -> None:
    one = event(data=data)
    assert MetadataChangeEvent.decode(one.encode()) == one


@pytest.mark.parametrize("content", [b"", b"\x00", b"{}", b"\xff" * 40, event().encode()[:-9]])
def test_what_is_no_event_is_refused_in_one_sentence(content: bytes) -> None:
    with pytest.raises(Rejected, match="no MetadataChangeEvent"):
        MetadataChangeEvent.decode(content)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60))
def test_no_bytes_make_more_than_a_refusal(content: bytes) -> None:
    with suppress(Rejected):
        MetadataChangeEvent.decode(content)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"resource_name": "acme"}, "'acme' is not a namespace"),
        ({"resource": ResourceType.TOPICS}, "is not a topic"),
        ({"resource": ResourceType.TENANTS, "resource_name": "a/b"}, "is not a namespace"),
        ({"type": EventType.DELETED}, "holds data all the same"),
        ({"type": EventType.DELETED, "data": None}, ""),
        ({"data": None}, "has no fields"),
        ({"source_cluster": ""}, "which cluster"),
    ],
)
def test_an_event_that_cannot_be_meant_is_refused_with_its_reason(changes: dict[str, Json], words: str) -> None:
    found = reason_to_refuse(event(**changes))
    assert words in found
    assert bool(words) == bool(found)
