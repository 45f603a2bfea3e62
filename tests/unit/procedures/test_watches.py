"""What a watch found is told, whatever else fails: what it has restored no later look finds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pulsar_fleet.cluster.errors import FleetError, PermissionDenied, Unavailable
from pulsar_fleet.procedures.procedure import Unmet
from pulsar_fleet.procedures.watches import judged

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
    assert asyncio.run(judged(map(look, looks), "Fine.")) == told


def test_only_clusters_that_do_not_answer_are_tried_again() -> None:
    with pytest.raises(Unavailable, match="green does not answer"):
        asyncio.run(judged(map(look, [[], DOWN]), "Fine."))
