"""A list that is stored whole keeps what others put into it."""

from __future__ import annotations

import asyncio

import pytest

from pulsar_fleet.cluster import polling
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.links.cluster_lists import change_list


class Stored:
    """A list on a cluster; `meanwhile` is what another writer stores after the next read, and again after it."""

    def __init__(self, names: list[str], meanwhile: list[list[str]]) -> None:
        self.names, self.meanwhile, self.writes = names, meanwhile, list[list[str]]()

    async def read(self) -> list[str]:
        await asyncio.sleep(0)
        return list(self.names)

    async def write(self, before: list[str], after: list[str]) -> None:
        self.writes.append(after)
        self.names = self.meanwhile.pop(0) if self.meanwhile else after


async def test_what_is_there_stays_and_a_second_call_writes_nothing() -> None:
    stored = Stored(["gold"], [])
    assert await change_list(stored.read, stored.write, add=["bronze"])
    assert not await change_list(stored.read, stored.write, add=["bronze"])
    assert await change_list(stored.read, stored.write, remove=["gold"])
    assert stored.writes == [["bronze", "gold"], ["bronze"]]
    assert await change_list(stored.read, stored.write, add=["bronze"], again=True)
    assert stored.writes[-1] == ["bronze"]


async def test_a_list_that_another_writer_stored_meanwhile_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polling, "KEPT_SECONDS", 0.1)
    stored = Stored([], [["silver"]])
    assert await change_list(stored.read, stored.write, add=["gold"])
    assert stored.names == ["gold", "silver"]
    always = Stored([], [["silver"]] * 9)
    with pytest.raises(Conflict, match="Others write the list"):
        await change_list(always.read, always.write, add=["gold"])
