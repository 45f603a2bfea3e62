"""Waves: every namespace once, whoever shares clients together, small risk first, the same in any order."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.migration_view import partition, subscription, view, with_facts

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.model import Strategy, plan_move
from pulsar_fleet.migration.preflight.gates import GATE_CHECKS, check
from pulsar_fleet.migration.waves.approval_text import approval_markdown, plan_markdown, wave_members
from pulsar_fleet.migration.waves.planner import Limits, Member, Wave, WavePlan, plan_waves


def member(number: int, links: tuple[str, ...] = (), **changes: int) -> Member:
    counts = {"topics": 2, "partitions": 4, "producers": 1, "consumers": 1, **changes}
    name = NamespaceName("acme", f"n{number:04}")
    return Member(namespace=name, strategy=Strategy.REDIRECT, reason="it drains", links=frozenset(links), **counts)


MEMBERS = st.lists(
    st.builds(
        lambda links, topics, clients, warnings: (tuple(f"app{link}" for link in links), topics, clients, warnings),
        st.lists(st.integers(0, 12), max_size=3),
        st.integers(0, 30),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    max_size=30,
).map(
    lambda drawn: [
        member(number, links, topics=topics, producers=clients, consumers=0, warnings=warnings)
        for number, (links, topics, clients, warnings) in enumerate(drawn)
    ]
)
LIMITS = st.builds(Limits, namespaces=st.integers(1, 8), topics=st.integers(1, 60))


def wave_of(plan: WavePlan) -> dict[NamespaceName, Wave]:
    return {name: wave for wave in plan.waves for name in wave.namespaces}


@given(MEMBERS, LIMITS, st.randoms())
@settings(max_examples=150)
def test_every_namespace_is_in_one_wave_whatever_the_order(
    drawn: list[Member], limits: Limits, chance: random.Random
) -> None:
    plan = plan_waves(drawn, limits)
    assert sorted(name for wave in plan.waves for name in wave.namespaces) == [entry.namespace for entry in drawn]
    shuffled = drawn[:]
    chance.shuffle(shuffled)
    assert plan_waves(shuffled, limits) == plan
    assert [wave.number for wave in plan.waves] == list(range(1, len(plan.waves) + 1))
    assert WavePlan.from_json(plan.to_json()) == plan


@given(MEMBERS, LIMITS)
@settings(max_examples=150)
def test_who_shares_a_client_moves_together_unless_a_wave_says_otherwise(
    namespaces: list[Member], limits: Limits
) -> None:
    waves = wave_of(plan_waves(namespaces, limits))
    for entry in namespaces:
        for other in namespaces:
            if entry.links & other.links and waves[entry.namespace] != waves[other.namespace]:
                assert any("share clients" in note for note in waves[entry.namespace].notes)


@given(MEMBERS, LIMITS)
@settings(max_examples=150)
def test_no_wave_is_larger_than_the_limits_but_a_single_namespace(namespaces: list[Member], limits: Limits) -> None:
    for wave in plan_waves(namespaces, limits).waves:
        assert limits.hold(wave.members) or (len(wave.members) == 1 and "it is alone" in wave.notes[-1])


def test_a_canary_with_clients_goes_first_and_the_riskiest_last() -> None:
    planned = plan_waves(
        [
            member(1, warnings=3),
            member(2),
            member(3, producers=0, consumers=0),
            replace(member(4), strategy=Strategy.REPLICATE),
        ],
        Limits(namespaces=1),
    )
    assert [wave.namespaces[0].name for wave in planned.waves] == ["n0002", "n0003", "n0004", "n0001"]
    assert [wave.is_canary for wave in planned.waves] == [True, False, False, False]


def test_a_run_of_one_namespace_has_no_canary_and_nothing_has_no_wave() -> None:
    assert [wave.is_canary for wave in plan_waves([member(1)]).waves] == [False]
    assert plan_waves([]).waves == ()


def test_namespaces_of_one_flag_are_one_wave_without_a_canary() -> None:
    members = [replace(member(number), strategy=Strategy.WHOLE_CLUSTER) for number in range(30)]
    (wave,) = plan_waves(members, Limits(namespaces=2, topics=1)).waves
    assert (len(wave.members), wave.is_canary) == (30, False)
    approval = approval_markdown(WavePlan((wave,)), wave, ("blue", "green"), gates=1)
    assert "Copy, then redirect the whole cluster, from blue to green" in approval
    assert "After that nothing leads back to blue" in approval


def test_namespaces_of_one_group_are_one_wave() -> None:
    members = [replace(member(number), strategy=Strategy.MOVE_CLIENTS) for number in range(30)]
    (wave,) = plan_waves(members, Limits(namespaces=2, topics=1)).waves
    approval = approval_markdown(WavePlan((wave,)), wave, ("blue", "green"), gates=1)
    assert "move the applications by their connection document, from blue to green" in approval
    assert "*return_clients* leads the applications back" in approval


def test_who_approves_a_completion_reads_that_nobody_goes_back() -> None:
    wave = plan_waves([replace(member(1), strategy=Strategy.COMPLETE_AND_REDIRECT)]).waves[0]
    approval = approval_markdown(WavePlan((wave,)), wave, ("blue", "green"), gates=1, redirect=["pulsar://g:6650"])
    assert "and redirect the others, from blue to green" in approval
    assert "Clients are redirected to pulsar://g:6650." in approval
    assert "**From then on no application can go back** (return_clients)" in approval
    assert "failback" not in approval


def test_a_thousand_namespaces_that_hang_together_are_planned() -> None:
    chance = random.Random(5)
    many = [member(number, tuple(f"app{chance.randrange(900)}" for _ in range(3))) for number in range(1000)]
    plan = plan_waves(many, Limits(namespaces=20))
    assert len(plan.waves) >= 50
    assert sum(len(wave.members) for wave in plan.waves) == 1000


def test_a_wave_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Limits(namespaces=0)


def _in(name: str, *clients: str) -> NamespaceFacts:
    """A namespace whose one topic has a producer at each of these addresses."""
    topic = TopicName(NamespaceName("acme", name), "events")
    publishers = [
        {"clientVersion": "Pulsar-CPP-v4.2.0", "producerName": f"p-{entry}", "address": entry} for entry in clients
    ]
    return NamespaceFacts(
        namespace=topic.namespace,
        blue={},
        green={},
        topics={topic: 0},
        partitions=(partition(topic, publishers=publishers),),
    )


def test_namespaces_of_one_connection_or_one_replication_are_linked() -> None:
    facts = [_in("a", "/10.0.0.1:7"), _in("b", "/10.0.0.1:7", "/10.0.0.2:1"), _in("c", "/10.0.0.3:1")]
    planned = wave_members(facts, [plan_move(entry, None, "green") for entry in facts], [])
    assert {
        tuple(entry.name for entry in wave.namespaces) for wave in plan_waves(planned, Limits(namespaces=2)).waves
    } == {
        ("a", "b"),
        ("c",),
    }
    linked = {"replication": {"west": {"connected": True, "outboundConnection": "x"}}}
    facts = [
        replace(entry, partitions=(partition(next(iter(entry.topics)), publishers=[], **linked),)) for entry in facts
    ]
    planned = wave_members(facts, [plan_move(entry, None, "green") for entry in facts], [])
    assert len(plan_waves(planned, Limits(namespaces=3)).waves) == 1


def test_the_approval_states_amount_risk_and_the_point_of_no_return() -> None:
    planned = with_facts(view(), partitions=(partition(**subscription("billing", "Pulsar-CPP-v4.2.0", msgBacklog=7)),))
    findings = check(planned)
    moves = [plan_move(entry, None, "green") for entry in planned.moving]
    plan = plan_waves(wave_members(planned.moving, moves, findings))
    text = approval_markdown(
        plan,
        plan.waves[0],
        ("blue", "green"),
        findings,
        gates=len(GATE_CHECKS),
        sentences=["Verified equal 14 minutes ago."],
    )
    lines = text.splitlines()
    assert lines[0] == ("**Wave 1 of 1: 1 namespace, 2 topics, 1 producer, 1 consumer.** Redirect from blue to green.")
    assert lines[1:3] == ["Verified equal 14 minutes ago.", f"All {len(GATE_CHECKS)} gates hold, 1 warning."]
    assert "Until the first topic is terminated, *Abort* restores everything." in text
    assert "After that, a failback is a second migration" in text
    assert "| `acme/orders` | 2 | 1 | 1 | Redirect | every backlog has consumers" in text
    assert "WARNING `client-may-hang`" in text
    placed = approval_markdown(
        plan, plan.waves[0], ("blue", "green"), gates=1, transfers="* In all 3 entries are redelivered."
    )
    assert "**If it were cut over now:**\n\n* In all 3 entries are redelivered." in placed
    table = plan_markdown(plan, "blue", "green")
    assert table.startswith("## 1 namespace from blue to green in 1 wave")
    assert "| 1 | 1 | 2 | 1 | 1 | 7 | 1 |" in table
