"""Apply a plan in its order: each change reads the live value, writes if the plan still applies, and reads it back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, with_parent
from pulsar_fleet.cluster.polling import is_kept
from pulsar_fleet.cluster.redaction import Redactor, fingerprints
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent, NewChange, RecordedChange
from pulsar_fleet.planning.apply.outcome import (
    ChangeResult,
    Key,
    Outcome,
    PlanResult,
    creates_resource,
    dependencies,
    failed_result,
    result_after_write,
    result_before_write,
)
from pulsar_fleet.planning.apply.writer import Writer, may_have_taken_effect
from pulsar_fleet.planning.changes.limits import retention_steps
from pulsar_fleet.planning.changes.namespaces import OPEN_STRATEGY, STRATEGY
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Action, Change, Plan
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


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


log = logging.getLogger(__name__)

# Changes of one kind that are read, recorded as intents, sent and read back together.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change that will be sent or was sent; `before` is the value before the first attempt."""

    change: Change
    before: Json
    begun: bool


@dataclass(kw_only=True)
class PlanExecutor:
    """Executes one plan once; the namespaces run concurrently, each in the plan's order.

    :param earlier: what an earlier attempt of the same run recorded.
    """

    plan: Plan
    writer: Writer
    journal: Journal
    earlier: EarlierAttempt
    allow: frozenset[str]
    progress: Callable[[int, int], None] | None
    results: dict[str, ChangeResult] = field(default_factory=dict)
    missing: set[Key] = field(default_factory=set)
    created: set[str] = field(default_factory=set)
    """Topics that this execution created: their subscriptions are not read before creation, only read back."""

    def __post_init__(self) -> None:
        self._replayed = replayed_histories(self.plan.changes)
        self._retention = retention_steps(self.plan.changes)

    async def run(self) -> PlanResult:
        """Apply cluster-wide changes and those in namespaces, in the plan's order."""
        for shared, changes in groupby(self.plan.changes, key=lambda change: change.namespace is None):
            if shared:
                await self._in_order(list(changes))
            else:
                await asyncio.gather(*(self._in_order(group) for group in _by_namespace(changes)))
        ordered = tuple(self.results[change.id] for change in self.plan.changes)
        return PlanResult(self.plan.id, self.plan.target, ordered)

    async def _in_order(self, changes: Sequence[Change]) -> None:
        for stage in _stages(changes):
            await self._stage(stage)

    async def _stage(self, changes: Sequence[Change]) -> None:
        """Apply changes of one kind: read what they share once, send each, read the shared part back once."""
        early_results = [(change, self._result_without_read(change)) for change in changes]
        results, sent = await self._decide([change for change, result in early_results if result is None])
        results += [(change, result, None) for change, result in early_results if result is not None]
        await self.journal.begin([self._intent(pending) for pending in sent if not pending.begun])
        errors = await self.writer.send_all([pending.change for pending in sent], [pending.begun for pending in sent])
        results += await self._check(sent, errors)
        await self._finish(results)

    def _result_without_read(self, change: Change) -> ChangeResult | None:
        """The result of a change that needs no read of the cluster."""
        missing = sorted(name for _, name in dependencies(change) & self.missing)
        if missing:
            return ChangeResult(change, Outcome.SKIPPED, f"{missing[0]} was not made")
        histories = self._replayed.get(change.id)
        if histories and histories <= self.earlier.applied and change.id in self.earlier.applied:
            return ChangeResult(change, Outcome.ALREADY, "the schema history is registered")
        return None

    async def _decide(self, changes: Sequence[Change]) -> tuple[list[Outcomes], list[PendingChange]]:
        """Compare each change with the live value: the results of those that need no write, and those to send."""
        results: list[Outcomes] = []
        sent: list[PendingChange] = []
        readable = [change for change in changes if not self._belongs_to_created(change)]
        live_values = dict(zip((change.id for change in readable), await self._live(readable), strict=True))
        for change in changes:
            live, earlier = live_values.get(change.id), self.earlier.begun.get(change.id)
            before = earlier.before if earlier else live
            if isinstance(live, FleetError):
                results.append((change, failed_result(change, live), None))
                continue
            result = self._result_of_limit(change, live_values) or result_before_write(
                change,
                live,
                own=self.writer.own,
                allow=self.allow,
                begun=earlier is not None,
                done=change.id in self.earlier.applied,
            )
            if result is None:
                sent.append(PendingChange(change, before, earlier is not None))
            else:
                results.append((change, result, before))
        return results, sent

    def _result_of_limit(self, change: Change, live: Mapping[str, Json | FleetError]) -> ChangeResult | None:
        """The result of a raised retention that is final by now, or of what waits for permission to change one."""
        steps = self._retention.get(change.id)
        if steps is None:
            return None
        raised = change.id == steps.first.id
        if same(live.get(steps.first.id), steps.last.after):
            return ChangeResult(change, Outcome.ALREADY, "the final value is set") if raised else None
        if not steps.last.hazard.needs_permission or steps.last.id in self.allow:
            return None
        detail = f"it needs the change of the retention: allow that one by its id {steps.last.id}"
        return ChangeResult(change, Outcome.REFUSED if raised else Outcome.SKIPPED, detail)

    def _belongs_to_created(self, change: Change) -> bool:
        creation = change.resource is Resource.SUBSCRIPTION and change.action is Action.CREATE
        return creation and bool(with_parent(change.name) & self.created)

    async def _check(self, sent: Sequence[PendingChange], errors: Sequence[FleetError | None]) -> list[Outcomes]:
        """Read back what was sent."""
        results: list[Outcomes] = []
        unconfirmed: list[tuple[PendingChange, FleetError | None]] = []
        for pending, error in zip(sent, errors, strict=True):
            if may_have_taken_effect(error):
                unconfirmed.append((pending, error))
            elif error is not None:
                results.append((pending.change, failed_result(pending.change, error), pending.before))
        values: Sequence[Json | FleetError] = ()

        async def read() -> bool:
            nonlocal values
            values = await self._live([pending.change for pending, _ in unconfirmed])
            return not any(_is_old(*change, value) for change, value in zip(unconfirmed, values, strict=True))

        await is_kept(read)
        for (pending, error), value in zip(unconfirmed, values, strict=True):
            change, unread = pending.change, isinstance(value, FleetError)
            result = failed_result(change, value) if unread else result_after_write(change, value, error)
            results.append((change, result, pending.before))
        return results

    async def _live(self, changes: Sequence[Change]) -> Sequence[Json | FleetError]:
        if not changes:
            return []
        try:
            live = await self.writer.read(changes)
        except FleetError as error:
            return [error] * len(changes)
        return await self.writer.values(changes, live)

    def _intent(self, pending: PendingChange) -> Intent:
        change = pending.change
        return Intent(
            change_id=change.id,
            cluster=self.writer.own,
            kind=change.resource.value,
            name=change.name,
            field=change.field,
            before=pending.before,
            after=change.after,
        )

    async def _finish(self, outcomes: Sequence[Outcomes]) -> None:
        new = [_row(self.writer.own, *row) for row in outcomes if row[1].outcome is not Outcome.ALREADY]
        await self.journal.record(new)
        for change, result, _ in outcomes:
            self.results[change.id] = result
            if creates_resource(change) and not result.outcome.in_place:
                self.missing.add((change.resource, change.name))
            if creates_resource(change) and change.resource is Resource.TOPIC and result.outcome is Outcome.APPLIED:
                self.created.add(change.name)
            level = logging.INFO if result.outcome.in_place else logging.WARNING
            own = self.writer.own
            log.log(level, "%s: %s %s: %s %s", own, change.action, change.label, result.outcome, result.detail)
            if self.progress:
                self.progress(len(self.results), len(self.plan.changes))


def _is_old(pending: PendingChange, error: FleetError | None, value: Json | FleetError) -> bool:
    """Whether a broker has confirmed the change, and one that answers still has the value before it."""
    if error is not None or isinstance(value, FleetError) or not same(value, pending.before):
        return False
    return not result_after_write(pending.change, value, None).outcome.in_place


Outcomes = tuple[Change, ChangeResult, Json]
"""A change, its result, and the value before."""


def replayed_histories(changes: Iterable[Change]) -> Mapping[str, frozenset[str]]:
    """For each change that sets the strategy to accept every schema: the changes that need this strategy."""
    histories_by_change: dict[str, frozenset[str]] = {}
    for group in _by_namespace(change for change in changes if change.namespace is not None):
        histories = frozenset(change.id for change in group if change.resource is Resource.SCHEMA)
        for change in group:
            if change.field == STRATEGY and change.after == OPEN_STRATEGY and histories:
                histories_by_change[change.id] = histories
    return histories_by_change


def _row(own: str, change: Change, result: ChangeResult, before: Json) -> NewChange:
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
    """Consecutive changes of the same kind, in the planner's order, at most `_AT_ONCE` in a group.

    Topics are created before properties of their partitions are set. A value that changes twice changes in two
    groups: the second change is decided by what the first one wrote.
    """
    stage: list[Change] = []
    values: set[tuple[str, str]] = set()
    for change in changes:
        value = (change.name, change.field)
        if stage and (_kind(stage[0]) != _kind(change) or value in values or len(stage) == _AT_ONCE):
            yield stage
            stage, values = [], set()
        stage.append(change)
        values.add(value)
    if stage:
        yield stage


def _kind(change: Change) -> tuple[Resource, bool]:
    return change.resource, creates_resource(change)


Progress = Callable[[int, int], None]


async def apply_plan(
    plan: Plan,
    admin: AdminClient,
    ledger: Ledger,
    run_id: str,
    *,
    redactor: Redactor,
    allow: Collection[str] = frozenset(),
    secrets: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    again: bool = False,
) -> PlanResult:
    """Apply the plan (or a `batch` of it) on its target.

    A second call is safe at any point: it skips changes that are in place, and finishes what an interrupted attempt of
    the same run began. Namespaces run concurrently, bounded by the connection's `max_connections`; the setters of one
    namespace run in sequence. A change that fails stops only the changes that depend on it. The ledger records every
    change twice: as an intent before it is sent, and with its result before the namespace's next kind of change.

    :param allow: ids of the irreversible and destructive changes that the operator allowed; others are refused.
    :param secrets: fingerprint → secret, for changes that write a secret.
    :param again: what an earlier attempt of the run made has been deleted since, so that its records do not count.
    :param progress: called with the number of finished changes and of all changes.
    :raises PreconditionFailed: the plan is for another cluster.
    """
    own = await admin.cluster_name()
    if own != plan.target:
        raise PreconditionFailed(
            f"The plan {plan.id} is for {plan.target!r}, but connection {admin.connection.name!r} leads to {own!r}; "
            "nothing was sent.",
            cluster=own,
        )
    journal = Journal(ledger, run_id)
    async with TopicPolicyReader(admin, redactor) as reader:
        writer = Writer(admin=admin, own=own, redactor=redactor, secrets=secrets or {}, reader=reader)
        application = PlanExecutor(
            plan=plan,
            writer=writer,
            journal=journal,
            earlier=EarlierAttempt({}, frozenset()) if again else await journal.earlier(),
            allow=frozenset(allow),
            progress=progress,
        )
        return await application.run()


async def read_secrets(plan: Plan, source: AdminClient, redactor: Redactor) -> dict[str, str]:
    """Fingerprint → secret for every secret that the plan writes and the source still has; they stay in memory."""
    namespaces = {
        (change.namespace, change.resource is Resource.TOPIC_POLICY)
        for change in plan.changes
        if change.namespace and any(fingerprints(call.body) for call in change.calls)
    }
    secrets: dict[str, str] = {}
    async with TopicPolicyReader(source, None) as reader:
        for namespace, in_topics in sorted(namespaces):
            secrets |= await _secrets(source, reader, namespace, redactor, in_topics=in_topics)
    return secrets


async def _secrets(
    source: AdminClient, reader: TopicPolicyReader, namespace: NamespaceName, redactor: Redactor, *, in_topics: bool
) -> dict[str, str]:
    if not in_topics:
        return redactor.secrets(await source.namespace(namespace) or {})
    states = await reader.read(namespace)
    return {key: text for state in states for key, text in redactor.secrets(state.policies).items()}
