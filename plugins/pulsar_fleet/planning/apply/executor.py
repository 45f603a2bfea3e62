"""One plan being carried out: in which order, what runs side by side, and what stops what."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.ledger.rows import Intent, NewChange
from pulsar_fleet.planning.apply.journal import Earlier, Journal
from pulsar_fleet.planning.apply.outcome import Applied, Key, Outcome, Result, checked, creates, failure, needs, settle
from pulsar_fleet.planning.apply.writer import Writer, may_have_been_made
from pulsar_fleet.planning.changes.namespaces import OPEN_STRATEGY, STRATEGY
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Action, Change, Plan

log = logging.getLogger(__name__)

# Changes of one kind that are read, kept as intents, sent and read back together.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Sent:
    """A change that is about to be sent, or was; `before` is the value from before the first attempt."""

    change: Change
    before: Json
    begun: bool


@dataclass(kw_only=True)
class Application:
    """Carries out one plan once; the namespaces run side by side, each in the plan's order.

    :param earlier: what an earlier attempt of the same run left.
    """

    plan: Plan
    writer: Writer
    journal: Journal
    earlier: Earlier
    allow: frozenset[str]
    progress: Callable[[int, int], None] | None
    results: dict[str, Result] = field(default_factory=dict)
    missing: set[Key] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    """Topics that were created just now: what lies in them is not asked for before it is made, only read back."""

    def __post_init__(self) -> None:
        self._replayed = replayed_histories(self.plan.changes)

    async def run(self) -> Applied:
        """Make what belongs to the cluster and what lies in namespaces in the plan's order of the two."""
        for shared, changes in groupby(self.plan.changes, key=lambda change: change.namespace is None):
            if shared:
                await self._in_order(list(changes))
            else:
                await asyncio.gather(*(self._in_order(group) for group in _by_namespace(changes)))
        ordered = tuple(self.results[change.id] for change in self.plan.changes)
        return Applied(self.plan.id, self.plan.target, ordered)

    async def _in_order(self, changes: Sequence[Change]) -> None:
        for stage in _stages(changes):
            await self._stage(stage)

    async def _stage(self, changes: Sequence[Change]) -> None:
        """Changes of one kind: read what they share once, make each, read the shared part back once."""
        told = [(change, self._without_asking(change)) for change in changes]
        results, sent = await self._decide([change for change, result in told if result is None])
        results += [(change, result, None) for change, result in told if result is not None]
        await self.journal.begin([self._intent(one) for one in sent if not one.begun])
        errors = await self.writer.send_all([one.change for one in sent], [one.begun for one in sent])
        results += await self._check(sent, errors)
        await self._finish(results)

    def _without_asking(self, change: Change) -> Result | None:
        """The result of a change that needs no look at the cluster."""
        missing = sorted(name for _, name in needs(change) & self.missing)
        if missing:
            return Result(change, Outcome.SKIPPED, f"{missing[0]} was not made")
        histories = self._replayed.get(change.id)
        if histories and histories <= self.earlier.applied and change.id in self.earlier.applied:
            return Result(change, Outcome.ALREADY, "the schema history is in")
        return None

    async def _decide(self, changes: Sequence[Change]) -> tuple[list[Outcomes], list[Sent]]:
        """Compare each change with the live value: what is settled by that, and what is to be sent."""
        results: list[Outcomes] = []
        sent: list[Sent] = []
        asked = [change for change in changes if not self._lies_in_new(change)]
        told = dict(zip((change.id for change in asked), await self._live(asked), strict=True))
        for change in changes:
            live, earlier = told.get(change.id), self.earlier.begun.get(change.id)
            before = earlier.before if earlier else live
            if isinstance(live, FleetError):
                results.append((change, failure(change, live), None))
                continue
            result = settle(
                change,
                live,
                own=self.writer.own,
                allow=self.allow,
                begun=earlier is not None,
                made=change.id in self.earlier.applied,
            )
            if result is None:
                sent.append(Sent(change, before, earlier is not None))
            else:
                results.append((change, result, before))
        return results, sent

    def _lies_in_new(self, change: Change) -> bool:
        return change.resource is Resource.SUBSCRIPTION and change.action is Action.CREATE and change.name in self.made

    async def _check(self, sent: Sequence[Sent], errors: Sequence[FleetError | None]) -> list[Outcomes]:
        """Read back what was sent."""
        found: list[Outcomes] = []
        unsure: list[tuple[Sent, FleetError | None]] = []
        for one, error in zip(sent, errors, strict=True):
            if may_have_been_made(error):
                unsure.append((one, error))
            elif error is not None:
                found.append((one.change, failure(one.change, error), one.before))
        values = await self._live([one.change for one, _ in unsure])
        for (one, error), value in zip(unsure, values, strict=True):
            unread = isinstance(value, FleetError)
            result = failure(one.change, value) if unread else checked(one.change, value, error)
            found.append((one.change, result, one.before))
        return found

    async def _live(self, changes: Sequence[Change]) -> Sequence[Json | FleetError]:
        if not changes:
            return []
        try:
            live = await self.writer.read(changes)
        except FleetError as error:
            return [error] * len(changes)
        return await self.writer.values(changes, live)

    def _intent(self, one: Sent) -> Intent:
        change = one.change
        return Intent(
            change_id=change.id,
            cluster=self.writer.own,
            kind=change.resource.value,
            name=change.name,
            field=change.field,
            before=one.before,
            after=change.after,
        )

    async def _finish(self, outcomes: Sequence[Outcomes]) -> None:
        new = [_row(self.writer.own, *one) for one in outcomes if one[1].outcome is not Outcome.ALREADY]
        await self.journal.record(new)
        for change, result, _ in outcomes:
            self.results[change.id] = result
            if creates(change) and not result.outcome.in_place:
                self.missing.add((change.resource, change.name))
            if creates(change) and change.resource is Resource.TOPIC and result.outcome is Outcome.APPLIED:
                self.made.add(change.name)
            level = logging.INFO if result.outcome.in_place else logging.WARNING
            own = self.writer.own
            log.log(level, "%s: %s %s: %s %s", own, change.action, change.label, result.outcome, result.detail)
            if self.progress:
                self.progress(len(self.results), len(self.plan.changes))


Outcomes = tuple[Change, Result, Json]
"""A change, what became of it, and the value before."""


def replayed_histories(changes: Iterable[Change]) -> Mapping[str, frozenset[str]]:
    """For each change that opens a schema strategy for a while: the changes that need it open."""
    found: dict[str, frozenset[str]] = {}
    for group in _by_namespace(change for change in changes if change.namespace is not None):
        histories = frozenset(change.id for change in group if change.resource is Resource.SCHEMA)
        for change in group:
            if change.field == STRATEGY and change.after == OPEN_STRATEGY and histories:
                found[change.id] = histories
    return found


def _row(own: str, change: Change, result: Result, before: Json) -> NewChange:
    return NewChange(
        change_id=change.id,
        cluster=own,
        resource=change.label,
        action=change.action.value,
        hazard=change.hazard.value,
        before=before,
        after=change.after,
        outcome=result.outcome.value,
        detail=result.detail or None,
    )


def _by_namespace(changes: Iterable[Change]) -> list[list[Change]]:
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(str(change.namespace), []).append(change)
    return list(groups.values())


def _stages(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Runs of changes of the same kind, in the planner's order, none longer than what is made at once."""
    for _, stage in groupby(changes, key=lambda change: change.resource):
        rest = list(stage)
        for first in range(0, len(rest), _AT_ONCE):
            yield rest[first : first + _AT_ONCE]
