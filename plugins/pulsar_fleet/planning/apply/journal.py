"""Write to the ledger from an event loop: concurrent rows share one transaction, in a thread."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent, NewChange, RecordedChange
from pulsar_fleet.planning.apply.outcome import Outcome


@dataclass(frozen=True, slots=True)
class EarlierAttempt:
    """What an earlier attempt of the same run recorded in the ledger.

    :param begun: change id → the intent of a change that was begun and not confirmed.
    :param applied: ids of the confirmed changes.
    """

    begun: Mapping[str, Intent]
    applied: frozenset[str]

    @classmethod
    def of(cls, intents: Sequence[Intent], changes: Sequence[RecordedChange]) -> Self:
        """Read the rows of a run: an intent is open until its change was applied as often as it was begun."""
        applied = Counter(change.change_id for change in changes if change.outcome == Outcome.APPLIED)
        begun: dict[str, Intent] = {}
        times: Counter[str] = Counter()
        for intent in intents:
            times[intent.change_id] += 1
            if times[intent.change_id] > applied[intent.change_id]:
                begun.setdefault(intent.change_id, intent)
        return cls(begun, frozenset(applied))


class Journal:
    """The records of one run. A method returns when its rows are committed; many namespaces share a transaction."""

    def __init__(self, ledger: Ledger, run_id: str) -> None:
        self._ledger = ledger
        self._run_id = run_id
        self._intents: list[Intent] = []
        self._changes: list[NewChange] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None

    async def earlier(self) -> EarlierAttempt:
        """What an earlier attempt of this run recorded."""
        intents = await asyncio.to_thread(self._ledger.intents, self._run_id)
        return EarlierAttempt.of(intents, await asyncio.to_thread(self._ledger.changes, self._run_id))

    async def begin(self, intents: Sequence[Intent]) -> None:
        """Record what will be written; it may be sent only afterwards."""
        self._intents += intents
        await self._written(intents)

    async def record(self, changes: Sequence[NewChange]) -> None:
        """Record the results of changes."""
        self._changes += changes
        await self._written(changes)

    async def _written(self, rows: Sequence[Intent | NewChange]) -> None:
        if not rows:
            return
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(safe)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        await safe

    async def _write(self) -> None:
        while self._waiting:
            intents, changes, waiting = self._intents, self._changes, self._waiting
            self._intents, self._changes, self._waiting = [], [], []
            failed: Exception | None = None
            try:
                await asyncio.to_thread(self._ledger.record, self._run_id, new_intents=intents, new_changes=changes)
            except Exception as error:
                failed = error
            for safe in waiting:
                if safe.cancelled():
                    continue
                if failed is None:
                    safe.set_result(None)
                else:
                    safe.set_exception(failed)
