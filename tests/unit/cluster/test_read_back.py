"""What was written is read back also where another broker answers first, with what it remembers."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from pulsar_fleet.cluster import polling


@pytest.mark.parametrize(("answers", "kept"), [([True], True), ([False, False, True], True), ([False], False)])
async def test_a_value_is_waited_for_and_no_longer_than_its_time(
    answers: list[bool], kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "KEPT_SECONDS", 0.5)
    remaining = chain(answers, repeat(answers[-1]))

    async def read() -> bool:
        return next(remaining)

    assert await polling.is_kept(read) is kept
