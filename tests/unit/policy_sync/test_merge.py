"""Merging what clusters hold: the same winner whoever meets whom first, and nothing dropped without a record."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.policy_sync.merge.merge_resource import (
    ClusterValues,
    FieldState,
    Granularity,
    MergeOptions,
    Rule,
    TieBreak,
    is_only_behind,
    latest,
    merge_field,
    merge_resource,
    winner,
)
from pulsar_fleet.policy_sync.merge.provenance import Observation, Provenance, digest, observe, span_of

CLUSTERS = ("blue", "green", "red", "teal")
VALUES = st.sampled_from([None, 1, 2, {"a": 1}, ["x", "y"]])


def held(cluster: str, value: Json, begin: float = 0, end: float = 1, *, joined: bool = True) -> FieldState:
    return FieldState(cluster=cluster, value=value, not_before=begin, not_after=end, joined=joined)


@st.composite
def writes(draw: st.DrawFn) -> FieldState:
    begin = draw(st.integers(0, 6))
    return held(draw(st.sampled_from(CLUSTERS)), draw(VALUES), begin, begin + draw(st.integers(0, 4)))


SETS = st.lists(writes(), max_size=5).map(tuple)
FLEETS = st.lists(writes(), min_size=1, max_size=4, unique_by=lambda write: write.cluster)


@settings(deadline=None)
@given(SETS, SETS, SETS)
def test_joining_what_two_know_is_commutative_associative_and_idempotent(
    a: tuple[FieldState, ...], b: tuple[FieldState, ...], c: tuple[FieldState, ...]
) -> None:
    def join(first: tuple[FieldState, ...], other: tuple[FieldState, ...]) -> tuple[FieldState, ...]:
        return latest((*first, *other))

    assert join(a, b) == join(b, a)
    assert join(join(a, b), c) == join(a, join(b, c))
    assert join(join(a, b), join(a, b)) == join(a, b)


@settings(deadline=None)
@given(VALUES, FLEETS, st.sampled_from(TieBreak), st.randoms(use_true_random=False))
def test_in_any_order_the_same_value_wins(
    base: Json, fleet: list[FieldState], tie_break: TieBreak, order: random.Random
) -> None:
    shuffled = order.sample(fleet, len(fleet))
    assert merge_field(base, fleet, tie_break) == merge_field(base, shuffled, tie_break)


@settings(deadline=None)
@given(st.lists(writes(), min_size=1, max_size=5), st.sampled_from(TieBreak))
def test_whoever_gossips_with_whom_all_end_with_one_winner(changes: list[FieldState], tie_break: TieBreak) -> None:
    ends = set()
    for order in list(permutations(changes))[:24]:
        gathered: tuple[FieldState, ...] = ()
        for state in order:
            gathered = latest((*gathered, state))
        ends.add(repr(winner(gathered, tie_break)))
    assert len(ends) == 1


@settings(deadline=None)
@given(VALUES, FLEETS, st.sampled_from(TieBreak))
def test_when_all_hold_the_merged_value_merging_again_changes_nothing(
    base: Json, fleet: list[FieldState], tie_break: TieBreak
) -> None:
    value = merge_field(base, fleet, tie_break).value
    after = [held(state.cluster, value, state.not_before, state.not_after) for state in fleet]
    for agreed in (base, value):
        again = merge_field(agreed, after, tie_break)
        assert (again.value, again.losers) == (value, ())


@settings(deadline=None)
@given(VALUES, FLEETS, st.sampled_from(TieBreak))
def test_every_edit_wins_or_is_named_as_a_loser(base: Json, fleet: list[FieldState], tie_break: TieBreak) -> None:
    decision = merge_field(base, fleet, tie_break)
    for state in fleet:
        assert state.value in (base, decision.value) or state in decision.losers


def test_a_change_on_one_side_is_carried() -> None:
    decision = merge_field(1, [held("blue", 1, 5, 6), held("green", 2)], TieBreak.SMALLER)
    assert (decision.value, decision.rule, decision.losers) == (2, Rule.CARRIED, ())


def test_an_unset_field_is_a_change_too() -> None:
    assert merge_field(1, [held("blue", 1), held("green", None)], TieBreak.SMALLER).value is None


def test_the_later_of_two_changes_wins_and_the_other_is_returned() -> None:
    sides = [held("blue", 1, 10, 11), held("green", 2, 12, 13)]
    decision = merge_field(0, sides, TieBreak.SMALLER)
    assert (decision.value, decision.rule, decision.losers) == (2, Rule.TIME, (sides[0],))


def test_where_nobody_can_tell_which_was_later_the_name_decides() -> None:
    sides = [held("blue", 1, 10, 12), held("green", 2, 11, 13)]
    decided = {order: merge_field(0, sides, order) for order in TieBreak}
    assert {order: decision.value for order, decision in decided.items()} == {TieBreak.SMALLER: 1, TieBreak.LARGER: 2}
    assert {decision.rule for decision in decided.values()} == {Rule.NAME}


def test_a_joining_cluster_takes_the_agreed_values_and_brings_its_own() -> None:
    joiner = held("aaa", 9, 50, 60, joined=False)
    decision = merge_field(1, [held("blue", 1), held("green", 1), joiner], TieBreak.SMALLER)
    assert (decision.value, decision.rule, decision.losers) == (1, Rule.JOINED, (joiner,))
    assert merge_field(None, [held("blue", None), joiner], TieBreak.SMALLER).value == 9
    later = merge_field(None, [held("blue", 1, 70, 71), joiner], TieBreak.SMALLER)
    assert (later.value, later.rule, later.losers) == (1, Rule.TIME, (joiner,)), "named once"
    assert merge_field(1, [held("blue", 1), held("aaa", None, joined=False)], TieBreak.SMALLER).value == 1


def test_a_conflict_of_others_is_none_of_a_cluster_that_joins() -> None:
    sides = [held("blue", 2, 10, 11), held("green", 3, 12, 13), held("red", 9, joined=False)]
    decision = merge_field(1, sides, TieBreak.SMALLER)
    assert (decision.value, decision.rule, decision.losers) == (3, Rule.TIME, (sides[0], sides[2]))


def test_what_nobody_changed_is_agreed() -> None:
    decision = merge_field(1, [held("blue", 1, 5, 6), held("green", 1)], TieBreak.SMALLER)
    assert (decision.value, decision.rule, decision.winner) == (1, Rule.AGREED, "")


def provenance(**times: float) -> dict[str, Provenance]:
    return {name: Provenance("", at, at) for name, at in times.items()}


BASE = {"ttl": 1, "quota": 1}
LEFT = ClusterValues(cluster="blue", values={"ttl": 2, "quota": 1}, provenance=provenance(ttl=10))
RIGHT = ClusterValues(cluster="green", values={"ttl": 1, "quota": 2}, provenance=provenance(quota=20))


def test_edits_of_different_fields_both_survive() -> None:
    merged = merge_resource(BASE, [LEFT, RIGHT], MergeOptions())
    assert (merged.values, merged.lost) == ({"ttl": 2, "quota": 2}, 0)


def test_of_two_whole_documents_one_is_lost_and_counted() -> None:
    merged = merge_resource(BASE, [LEFT, RIGHT], MergeOptions(granularity=Granularity.DOCUMENT))
    assert (merged.values, merged.lost) == ({"ttl": 1, "quota": 2}, 1)
    assert [loser.value for loser in merged.decisions["ttl"].losers] == [2]


def test_a_document_that_was_emptied_is_a_change_against_the_agreed_one() -> None:
    emptied = ClusterValues(cluster="green", values={}, provenance=provenance(ttl=20, quota=20))
    unchanged = ClusterValues(cluster="blue", values=BASE, provenance={})
    merged = merge_resource(BASE, [unchanged, emptied], MergeOptions(granularity=Granularity.DOCUMENT))
    assert (merged.values, merged.lost) == ({}, 0)
    assert {decision.rule for decision in merged.decisions.values()} == {Rule.CARRIED}


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.sampled_from("abc"), VALUES.filter(bool)),
    st.lists(st.dictionaries(st.sampled_from("abc"), VALUES.filter(bool)), min_size=2, max_size=4),
    st.sampled_from(Granularity),
    st.randoms(use_true_random=False),
)
def test_a_resource_merges_to_the_same_in_any_order_and_only_once(
    base: dict[str, Json], documents: list[dict[str, Json]], granularity: Granularity, order: random.Random
) -> None:
    sides = [
        ClusterValues(
            cluster=CLUSTERS[n], values=document, provenance=provenance(**{name: order.randint(0, 3) for name in "abc"})
        )
        for n, document in enumerate(documents)
    ]
    how = MergeOptions(granularity=granularity)
    merged = merge_resource(base, sides, how)
    assert merge_resource(base, order.sample(sides, len(sides)), how) == merged
    after = [ClusterValues(cluster=side.cluster, values=merged.values, provenance=side.provenance) for side in sides]
    assert merge_resource(merged.values, after, how).decisions == {}


def test_the_authority_decides_over_all_values_and_a_choice_over_it() -> None:
    merged = merge_resource(BASE, [LEFT, RIGHT], MergeOptions(desired={"ttl": 7}, chosen={"quota": 5}))
    assert (merged.values, merged.lost) == ({"ttl": 7, "quota": 5}, 0)


def test_a_kept_value_keeps_its_time_and_a_new_one_lies_between_two_scans() -> None:
    first = observe(None, {"ttl": 1}, began=10, ended=11)
    second = observe(first, {"ttl": 1, "quota": 5}, began=20, ended=21)
    assert second.fields == {"ttl": first.fields["ttl"], "quota": Provenance(digest(5), 10, 21)}
    third = observe(second, {"quota": 5}, began=30, ended=31)
    assert third.fields["ttl"] == Provenance("", 20, 31, (digest(1),))
    assert Observation.from_json({**third.to_json(), "observed_at": third.observed_at}) == third


def test_a_known_time_narrows_the_span_and_wins_where_it_contradicts() -> None:
    before = observe(None, {"ttl": 1}, began=10, ended=11)
    inside = observe(before, {"ttl": 2}, began=20, ended=21, spans={"ttl": (14, 16)})
    assert inside.fields["ttl"] == Provenance(digest(2), 14, 16, (digest(1),))
    outside = observe(before, {"ttl": 2}, began=20, ended=21, spans={"ttl": (3, 4)})
    assert outside.fields["ttl"] == Provenance(digest(2), 3, 4, (digest(1),))


def test_a_copy_is_as_old_as_its_original_and_its_replacement_is_not() -> None:
    original = Provenance(digest(2), 14, 16)
    before = replace(observe(None, {"ttl": 1}, began=20, ended=21), expected={"ttl": original})
    assert Observation.from_json({**before.to_json(), "observed_at": before.observed_at}) == before
    assert observe(before, {"ttl": 2}, began=30, ended=31).fields["ttl"] == original
    assert observe(before, {"ttl": 3}, began=30, ended=31).fields["ttl"] == Provenance(
        digest(3), 21, 31, (digest(2), digest(1))
    )


def test_what_replaced_a_value_is_later_than_its_copies() -> None:
    first = observe(observe(None, {}, began=1, ended=2), {"ttl": 1}, began=10, ended=12)
    second = observe(first, {"ttl": 2}, began=20, ended=22)
    copy, replaced = first.fields["ttl"], second.fields["ttl"]
    sides = [held("aaa", 1, copy.not_before, copy.not_after), held("blue", 2, replaced.not_before, replaced.not_after)]
    assert merge_field(0, sides, TieBreak.SMALLER).value == 2


def test_the_successor_of_a_value_beats_it_where_times_cannot_tell() -> None:
    older, newer = held("blue", 1), replace(held("green", 2), replaced=(digest(1),))
    assert merge_field(0, [older, newer], TieBreak.SMALLER).value == 2
    before_the_agreement = replace(newer, replaced=(digest(0), digest(1)))
    assert merge_field(0, [older, before_the_agreement], TieBreak.SMALLER).value == 1


def replacing(state: FieldState, *values: Json, decided_at: float = 0) -> FieldState:
    """The state of a cluster whose value replaced these values, the newest first."""
    return replace(state, replaced=tuple(map(digest, values)), decided_at=decided_at)


CHANGE = held("green", 5, 10, 12)


@pytest.mark.parametrize(
    ("other", "value", "rule", "won", "lost"),
    [
        (replacing(held("blue", 0, 20, 21), 5), 0, Rule.CARRIED, "blue", []),
        (replacing(held("blue", 0, 12, 13), 5), 0, Rule.CARRIED, "blue", []),
        (replacing(held("blue", 0, 11, 13), 5), 5, Rule.CARRIED, "green", []),
        (replacing(held("blue", 0, 20, 21), 4), 5, Rule.CARRIED, "green", []),
        (replacing(held("blue", 3, 20, 21), 5), 3, Rule.TIME, "blue", ["green"]),
        (replacing(held("blue", 0, 20, 21, joined=False), 5), 5, Rule.JOINED, "green", ["blue"]),
    ],
    ids=["later", "as early as it can be", "perhaps before", "it never had it", "for another value", "as it joined"],
)
def test_a_change_that_another_cluster_had_and_took_back_is_a_copy(
    other: FieldState, value: Json, rule: Rule, won: str, lost: list[str]
) -> None:
    decision = merge_field(0, [CHANGE, other], TieBreak.SMALLER)
    assert (decision.value, decision.rule, decision.winner) == (value, rule, won)
    assert [loser.cluster for loser in decision.losers] == lost


@pytest.mark.parametrize(("blue_at", "green_at", "value"), [(5, 9, 2), (9, 5, 1), (5, 5, 1), (0, 0, 1)])
def test_of_two_values_that_replaced_each_other_the_last_decided_one_wins(
    blue_at: float, green_at: float, value: Json
) -> None:
    blue = replacing(held("blue", 1), 2, decided_at=blue_at)
    green = replacing(held("green", 2), 1, decided_at=green_at)
    assert merge_field(0, [blue, green], TieBreak.SMALLER).value == value


@pytest.mark.parametrize(
    ("loser", "holder", "behind"),
    [
        (held("green", 1), replacing(held("blue", 2), 1), True),
        (held("green", 1), replacing(held("blue", 2), 3, 1, 0), True),
        (held("green", 1), replacing(held("blue", 2), 0, 1), False),
        (held("green", 1), held("blue", 2), False),
        (held("green", 1, joined=False), replacing(held("blue", 2), 1), False),
        (replacing(held("green", 1), 2), replacing(held("blue", 2), 1), False),
        (replacing(held("green", 1), 0, 2), replacing(held("blue", 2), 1), True),
        (replacing(held("green", 3), 4), replacing(held("blue", 2), 1), False),
    ],
    ids=[
        "replaced",
        "replaced before the last value",
        "replaced before the agreement",
        "never replaced",
        "it joins",
        "it set the old value again",
        "it did before the agreement",
        "its value is its own",
    ],
)
def test_a_value_that_was_replaced_and_not_set_again_is_only_behind(
    loser: FieldState, holder: FieldState, behind: bool
) -> None:
    assert is_only_behind(loser, [held("red", 2), holder], 0) is behind


def test_the_time_of_an_event_is_told_by_our_clock_with_all_that_is_open() -> None:
    assert span_of(100_000, ClockSkew(ahead=20, uncertainty=0.5), 1.5) == (78, 82)
