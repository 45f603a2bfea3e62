"""Moves, strategy, and how far a drain is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.links.lag import Lag, lag_of
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.model import Moves, Phase, Strategy, is_reversible, plan_move, reversal_text

ORDERS = NamespaceName("acme", "orders")
EVENTS = TopicName(ORDERS, "events")


def stats(producers: int = 1, **subscriptions: tuple[int, int]) -> dict[str, object]:
    """Statistics with subscriptions given as (backlog, consumers)."""
    return {
        "publishers": [{"clientVersion": "Pulsar-Java-v4.2.4"}] * producers,
        "subscriptions": {
            name: {"type": "Shared", "msgBacklog": backlog, "consumers": [{"clientVersion": "x"}] * consumers}
            for name, (backlog, consumers) in subscriptions.items()
        },
    }


def partition(document: Mapping[str, object]) -> TopicStats:
    return TopicStats.of(EVENTS, dict(document))


def facts(document: Mapping[str, object], **policies: object) -> NamespaceFacts:
    return NamespaceFacts(
        namespace=ORDERS,
        blue=dict(policies),
        green=None,
        topics={EVENTS: 0},
        partitions=(partition(document),),
    )


def test_a_namespace_that_drains_by_itself_is_redirected() -> None:
    assert plan_move(facts(stats(billing=(7, 1))), None, "green").strategy is Strategy.REDIRECT


@pytest.mark.parametrize(
    "surveyed",
    [
        facts(stats(archive=(7, 0))),
        replace(facts(stats(billing=(0, 1))), retained="the namespace"),
        facts({"subscriptions": {"later": {"msgBacklog": 3, "msgDelayed": 3, "consumers": [{}]}}}),
        replace(facts(stats(billing=(0, 1))), links={EVENTS: frozenset({"far", "green"})}),
    ],
    ids=["idle subscription", "retained history", "delayed messages", "copied to green already"],
)
def test_what_would_stay_behind_on_blue_is_replicated(surveyed: NamespaceFacts) -> None:
    assert plan_move(surveyed, None, "green").strategy is Strategy.REPLICATE


def test_the_strategy_that_was_asked_for_is_taken() -> None:
    assert plan_move(facts(stats(archive=(7, 0))), Strategy.REDIRECT, "green").strategy is Strategy.REDIRECT


def test_moves_survive_json() -> None:
    moves = Moves("blue", "green", (plan_move(facts(stats(billing=(7, 2), archive=(3, 0))), None, "green"),))
    assert Moves.from_json(moves.to_json()) == moves


def test_replication_without_a_link_is_not_done() -> None:
    assert lag_of([partition(stats())], "green").unlinked


def test_replication_is_done_with_a_link_and_nothing_to_send() -> None:
    linked = {"replication": {"green": {"connected": True, "replicationBacklog": 0, "outboundConnection": "x"}}}
    assert lag_of([partition({**stats(), **linked})], "green") == Lag(entries=0, unlinked=())


def test_an_inbound_link_is_not_taken_for_an_outgoing_one() -> None:
    inbound = {"replication": {"green": {"connected": True, "replicationBacklog": 0, "inboundConnection": "x"}}}
    assert lag_of([partition({**stats(), **inbound})], "green").unlinked


@pytest.mark.parametrize("phase", list(Phase))
def test_going_back_is_free_only_before_the_switch(phase: Phase) -> None:
    before = list(Phase).index(phase) < list(Phase).index(Phase.RETURN_ENDED)
    assert is_reversible(phase) is (before or phase is Phase.ABORTED)
    others = {Phase.MOVED: "return_clients leads the applications back", Phase.RETURN_ENDED: "finish this run"}
    if phase in others:
        assert others[phase] in reversal_text(phase)
    else:
        assert ("only a second migration" in reversal_text(phase)) is not is_reversible(phase)
