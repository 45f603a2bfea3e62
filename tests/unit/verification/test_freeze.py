"""What a retention of the target proves about what was copied to it."""

from __future__ import annotations

import pytest

from pulsar_fleet.verification.bounds.freeze import _keeps_all


@pytest.mark.parametrize(("minutes", "size", "all_kept"), [(-1, -1, True), (-1, 9, False), (9, -1, False)])
def test_a_retention_keeps_everything_without_limit_of_time_and_size(minutes: int, size: int, all_kept: bool) -> None:
    retention = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}
    assert _keeps_all({"retention_policies": retention}) is all_kept
    assert not _keeps_all({})
