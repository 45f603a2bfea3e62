"""What a watch found is told, whatever else fails: what it has restored no later look finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from pulsar_fleet.cluster.errors import FleetError, PermissionDenied, Unavailable
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures.procedure import Session, Unmet
from pulsar_fleet.procedures.watches import OVERRIDE_WATCH, judged

DOWN, DENIED = Unavailable("green does not answer."), PermissionDenied("green denies it.")


def look(said: FleetError | list[str]) -> Callable[[], Awaitable[list[str]]]:
    async def one() -> list[str]:
        if isinstance(said, FleetError):
            raise said
        return said

    return one


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([[], []], "Fine."),
        ([["Restored on blue."], []], Unmet("Restored on blue.")),
        ([DOWN, ["Restored on blue."]], Unmet("Restored on blue.\ngreen does not answer.")),
        ([DOWN, DENIED], Unmet("green does not answer.\ngreen denies it.")),
    ],
)
def test_one_cluster_holds_up_no_other_and_hides_nothing(
    looks: list[FleetError | list[str]], told: str | Unmet
) -> None:
    said: list[str] = []
    assert asyncio.run(judged(session(said), map(look, looks), "Fine.")) == told
    # At once: what is restored must be in the log, whatever fails later.
    assert said == [text for texts in looks if isinstance(texts, list) for text in texts]


def test_only_clusters_that_do_not_answer_are_tried_again() -> None:
    with pytest.raises(Unavailable, match="green does not answer"):
        asyncio.run(judged(session([]), map(look, [[], DOWN]), "Fine."))


def test_one_cluster_that_does_not_answer_is_not_asked_again() -> None:
    looks = map(look, [["Restored."], DOWN, ["Never read."]])
    told = asyncio.run(judged(session([]), looks, "Fine.", one_cluster=True))
    assert told == Unmet("Restored.\ngreen does not answer.")


def test_one_topic_that_is_not_served_holds_up_no_other_namespace() -> None:
    looks = map(look, [Unavailable("503 for a topic.", status=503), ["Restored."]])
    told = asyncio.run(judged(session([]), looks, "Fine.", one_cluster=True))
    assert told == Unmet("Restored.\n503 for a topic.")


def test_a_retired_cluster_that_is_gone_holds_up_no_restoration() -> None:
    conf = {"clusters": ["pulsar_blue"], "retired": ["pulsar_gone"], "restore": True}
    restores, finds = OVERRIDE_WATCH.each
    assert OVERRIDE_WATCH.connections(conf) == {"clusters": ["pulsar_blue"]}
    assert OVERRIDE_WATCH.connections(conf, step=restores) == {"clusters": ["pulsar_blue"]}
    assert OVERRIDE_WATCH.connections(conf, step=finds)["retired"] == ["pulsar_gone"]


def session(said: list[str]) -> Session:
    return Session({}, cast(Run, None), {}, say=said.append)
