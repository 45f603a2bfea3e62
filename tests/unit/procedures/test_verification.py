"""What a verification gives to each of its jobs, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.procedures import runner
from pulsar_fleet.procedures.procedure import Batches, Session
from pulsar_fleet.procedures.verification import limit_of_batch


@pytest.mark.parametrize(
    ("limit", "parts", "at_once", "share"),
    [
        (None, 8, 4, None),
        (1_000, 1, 4, 1_000),
        (1_000, 2, 4, 500),
        (1_000, 8, 4, 250),
        (1_000, 8, 1, 1_000),
        (1, 8, 4, 1),
    ],
)
async def test_jobs_that_work_at_once_share_the_read_limit(
    records: Path, limit: int | None, parts: int, at_once: int, share: int | None
) -> None:
    session = Session({"max_bytes_per_second": limit}, Run.open("verify_clusters/1"), {}, jobs_at_once=at_once)

    async def read(_: Session) -> list[dict[str, str]]:
        return [{"folder": str(number)} for number in range(parts)]

    await runner.read_batches(Batches("parts", read, ()), session)
    assert limit_of_batch(session) == share
