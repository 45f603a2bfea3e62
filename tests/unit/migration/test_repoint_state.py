from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from typing import cast

import pytest
from tests.support.drain_states import stats as document_of

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.migration.repoint import terminate
from pulsar_fleet.migration.repoint.steps import (
    SETTLED_SECONDS,
    NamespaceWatch,
    PartitionWatch,
    RepointProgress,
    RepointState,
    progress_line,
)

CLUSTERS = {"blue": "east", "green": "west"}
TOPIC = TopicName.parse("persistent://acme/orders/events")


def stats(*, producers: int = 0, unsent: int = 0, **consumers: int) -> TopicStats:
    """A topic with so many producers, and consumers by subscription."""

    def client(name: str) -> dict[str, str]:
        return {"consumerName": name, "producerName": name, "address": "/10.0.0.1:1", "clientVersion": "Pulsar-Go-0.19"}

    return TopicStats.of(
        TOPIC,
        {
            "publishers": [client(f"p{number}") for number in range(producers)],
            "subscriptions": {
                name: {"consumers": [client(f"{name}-{number}") for number in range(count)]}
                for name, count in consumers.items()
            },
            "replication": {"green": {"replicationBacklog": unsent, "connected": True}},
        },
    )


def progress(blue: TopicStats, green: TopicStats, *, left_seconds: float = 0.0) -> RepointProgress:
    """After two producers and two consumers were on blue."""
    before = {TOPIC: tuple(stats(producers=2, billing=2).clients)}
    return RepointProgress.of(
        "acme/orders", before, {TOPIC: blue}, {TOPIC: green}, cluster="green", left_seconds=left_seconds
    )


def test_a_client_on_blue_keeps_it_open_however_long_it_was_empty() -> None:
    polled = progress(stats(producers=1, unsent=3), stats(producers=1, billing=2), left_seconds=10 * SETTLED_SECONDS)
    assert not polled.is_done
    assert polled.line(CLUSTERS).startswith("acme/orders: 1 of 4 clients on east: producer")
    assert "3 entries of east not on west yet" in polled.line(CLUSTERS)


def test_blue_is_left_when_everybody_is_on_green() -> None:
    polled = progress(stats(billing=0), stats(producers=2, billing=2))
    assert polled.is_done
    assert "west has every entry" in polled.line(CLUSTERS)


@pytest.mark.parametrize(("seconds", "done"), [(SETTLED_SECONDS - 1, False), (SETTLED_SECONDS, True)])
def test_a_client_on_neither_cluster_is_waited_for_like_an_application(seconds: float, done: bool) -> None:
    polled = progress(stats(billing=0), stats(producers=2, billing=1), left_seconds=seconds)
    assert polled.is_done is done
    assert "1 on neither cluster: consumer" in polled.line(CLUSTERS)


def test_a_subscription_with_consumers_on_both_clusters_is_named() -> None:
    polled = progress(stats(billing=1), stats(billing=1))
    assert "both clusters deliver every message to 'billing' of persistent://acme/orders/events" in polled.line(
        CLUSTERS
    )


def test_a_client_that_returns_to_blue_starts_the_time_again() -> None:
    watch = NamespaceWatch()
    for at, producers, expected in ((1.0, 1, None), (2.0, 0, 2.0), (3.0, 0, 2.0), (4.0, 1, None), (5.0, 0, 5.0)):
        watch.record_clients({TOPIC: stats(producers=producers)}, at)
        assert watch.left_since == expected


def test_what_was_seen_on_green_is_kept_when_it_is_gone() -> None:
    watch = PartitionWatch()
    watch.record_green(stats(producers=1, billing=1, audit=0))
    watch.record_green(stats(billing=0))
    assert (watch.arrived, watch.written) == ({"billing"}, True)


def test_the_state_is_the_same_after_it_was_stored() -> None:
    state = RepointState()
    watch = state.namespace("acme/orders")
    watch.left_since = 7.0
    watch.partition(TOPIC).followed["billing"] = Position(3, 4)
    watch.partition(TOPIC).record_green(stats(producers=1, audit=1))
    assert RepointState.from_json(state.to_json()) == state


def test_only_namespaces_that_are_not_left_are_named() -> None:
    gone = progress(stats(), stats(producers=2, billing=2))
    assert progress_line([gone], CLUSTERS) == "1 of 1 namespace left east"
    here = replace(progress(stats(producers=1), stats()), namespace="acme/audit")
    assert progress_line([gone, here], CLUSTERS).startswith(
        "1 of 2 namespaces left east · acme/audit: 1 of 4 clients on east"
    )


@pytest.mark.parametrize(
    ("backlogs", "left"),
    [
        ([0], {}),
        ([5, 3, 0], {}),
        # Its connection is held: no acknowledgment is read.
        ([5, 3], {(str(TOPIC), "read"): 3}),
    ],
    ids=["at once", "read", "held"],
)
async def test_the_cut_over_waits_for_acknowledgments_only_while_they_come(
    monkeypatch: pytest.MonkeyPatch, backlogs: list[int], left: dict[tuple[str, str], int]
) -> None:
    answers = chain(backlogs, repeat(backlogs[-1]))

    async def looked(*_: object) -> dict[TopicName, TopicStats]:
        # Of a subscription without consumers nobody waits for anything.
        return {TOPIC: TopicStats.of(TOPIC, document_of(read=(next(answers), ["one"]), idle=(9, [])))}

    monkeypatch.setattr(terminate, "required_stats", looked)
    monkeypatch.setattr(terminate, "_SETTLED_SECONDS", 0.05)
    monkeypatch.setattr(terminate, "_POLL_SECONDS", 0.01)
    assert await terminate.wait_read(cast(AdminClient, None), [TOPIC]) == left
