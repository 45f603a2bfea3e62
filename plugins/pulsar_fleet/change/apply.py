"""Carry out a plan: each change reads the live value, acts only if the plan still fits, and reads back its write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pulsar_fleet.change.diff import Resource, same
from pulsar_fleet.change.hazards import guard_cluster_lists, hazard_of_call, worst
from pulsar_fleet.change.live import LiveNamespace
from pulsar_fleet.change.outcome import Applied, Outcome, Result
from pulsar_fleet.change.plan import Action, Change, Plan
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.call import Call
from pulsar_fleet.cluster.errors import Conflict, FleetError, Refused, Transient
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies import BY_FIELD
from pulsar_fleet.cluster.policy_documents import problems
from pulsar_fleet.cluster.secrets import Seal, unseal
from pulsar_fleet.cluster.topic_policy_reader import TopicPolicyReader
from pulsar_fleet.records.ledger import Ledger

log = logging.getLogger(__name__)

# Setting a policy makes the broker walk over all topics of the namespace, so one namespace gets one write at a time.
_ONE_BY_ONE = (Resource.TENANT, Resource.NAMESPACE, Resource.POLICY)


Progress = Callable[[int, int], None]


async def apply_plan(
    plan: Plan,
    admin: AdminClient,
    ledger: Ledger,
    run_id: str,
    *,
    seal: Seal,
    allow: Collection[str] = frozenset(),
    secrets: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Carry out the plan on its target; safe to run again at any point, since what is in place is left as it is.

    Namespaces run side by side, bounded by the connection's `max_connections`; the changes of one run in order.
    A change that cannot be made stops what depends on it and nothing else. Every change is recorded in the ledger.

    :param allow: ids of the irreversible and destructive changes that the operator has allowed; others are refused.
    :param secrets: fingerprint → secret, for changes that write one.
    :param progress: called with changes done and all changes.
    :raises Refused: the plan is for another cluster.
    """
    own = await admin.cluster_name()
    if own != plan.target:
        raise Refused(
            f"The plan {plan.id} is for {plan.target!r}, but connection {admin.connection.name!r} leads to {own!r}; "
            "nothing was sent.",
            cluster=own,
        )
    async with TopicPolicyReader(admin, seal) as reader:
        run = _Run(
            plan=plan,
            admin=admin,
            ledger=ledger,
            run_id=run_id,
            own=own,
            seal=seal,
            allow=frozenset(allow),
            secrets=secrets or {},
            progress=progress,
            reader=reader,
        )
        return await run.all()


@dataclass(kw_only=True)
class _Run:
    plan: Plan
    admin: AdminClient
    ledger: Ledger
    run_id: str
    own: str
    seal: Seal
    allow: frozenset[str]
    secrets: Mapping[str, str]
    progress: Progress | None
    reader: TopicPolicyReader
    results: dict[str, Result] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.admin.connection.max_connections)

    async def all(self) -> Applied:
        """Tenants first, then every namespace."""
        tenants = [change for change in self.plan.changes if change.namespace is None]
        for stage in _stages(tenants):
            await self._stage(stage)
        rest = [change for change in self.plan.changes if change.namespace is not None]
        groups = [list(group) for _, group in groupby(rest, key=lambda change: str(change.namespace))]
        await asyncio.gather(*(self._group(group) for group in groups))
        ordered = tuple(self.results[change.id] for change in self.plan.changes)
        return Applied(self.plan.id, self.plan.target, ordered)

    async def _group(self, changes: Sequence[Change]) -> None:
        for stage in _stages(changes):
            await self._stage(stage)

    async def _stage(self, changes: Sequence[Change]) -> None:
        """Changes of one kind: read what they share once, make each, read the shared part back once."""
        open_changes = [change for change in changes if not self._blocked(change)]
        if not open_changes:
            return
        try:
            live = await self._read(open_changes)
        except FleetError as error:
            for change in open_changes:
                self._finish(change, _failure(change, error), None)
            return
        if changes[0].resource in _ONE_BY_ONE:
            written = [await self._write(change, live) for change in open_changes]
        else:
            written = await asyncio.gather(*(self._write(change, live) for change in open_changes))
        await self._read_back([pending for pending in written if pending is not None])

    async def _write(self, change: Change, live: LiveNamespace) -> Pending | None:
        """Send the change's calls if the live value is the plan's; what remains is to read it back."""
        async with self._slots:
            before: Json = None
            try:
                before = await live.value(change)
                settled = self._settle(change, before)
                if settled is None:
                    for call in change.calls:
                        await self._send(call)
                    return Pending(change, before)
            except (Conflict, Transient) as error:
                # The call may have taken effect all the same: an answer got lost, or a second try met the first.
                return Pending(change, before, error)
            except FleetError as error:
                settled = _failure(change, error)
        self._finish(change, settled, before)
        return None

    async def _send(self, call: Call) -> None:
        guard_cluster_lists(call, self.own)
        _check_creation(call, self.own)
        await self.admin.send(replace(call, body=unseal(call.body, self.secrets)))

    def _settle(self, change: Change, live: Json) -> Result | None:
        """The result where nothing is to be sent; None when the change has to be made."""
        hazard = worst(change.hazard, *(hazard_of_call(call) for call in change.calls))
        if same(live, change.after):
            return Result(change, Outcome.ALREADY)
        if not same(live, change.before):
            return Result(
                change, Outcome.CONFLICT, f"expected {_short(change.before)}, found {_short(live)}: plan again"
            )
        if hazard.needs_permission and change.id not in self.allow:
            return Result(change, Outcome.REFUSED, f"{hazard.value}: allow it by its id {change.id}")
        return None

    async def _read_back(self, pending: Sequence[Pending]) -> None:
        if not pending:
            return
        try:
            live = await self._read([one.change for one in pending])
        except FleetError as error:
            for one in pending:
                self._finish(one.change, _failure(one.change, error), one.before)
            return
        await asyncio.gather(*(self._check(one, live) for one in pending))

    async def _check(self, pending: Pending, live: LiveNamespace) -> None:
        change = pending.change
        try:
            async with self._slots:
                found = await live.value(change)
            result = Result(change, Outcome.APPLIED)
            if not same(_known(change, found), _known(change, change.after)):
                result = Result(change, Outcome.FAILED, f"wrote {_short(change.after)}, read back {_short(found)}")
                result = _failure(change, pending.error) if pending.error else result
        except FleetError as error:
            result = _failure(change, error)
        self._finish(change, result, pending.before)

    async def _read(self, changes: Sequence[Change]) -> LiveNamespace:
        async with self._slots:
            return await LiveNamespace.read(self.admin, changes, self.seal, self.reader)

    def _blocked(self, change: Change) -> bool:
        parents = {change.name, *_parents(change)}
        missing = sorted(parents & self.missing)
        if missing:
            self._finish(change, Result(change, Outcome.SKIPPED, f"{missing[0]} was not made"), None)
        return bool(missing)

    def _finish(self, change: Change, result: Result, before: Json) -> None:
        self.results[change.id] = result
        if change.action is Action.CREATE and not change.field and not result.outcome.in_place:
            self.missing.add(change.name)
        if result.outcome is not Outcome.ALREADY:
            self.ledger.record_change(
                self.run_id,
                change_id=change.id,
                cluster=self.own,
                resource=change.label,
                action=change.action.value,
                hazard=change.hazard.value,
                before=before,
                after=change.after,
                outcome=result.outcome.value,
                detail=result.detail or None,
            )
        level = logging.INFO if result.outcome.in_place else logging.WARNING
        log.log(level, "%s: %s %s: %s %s", self.own, change.action, change.label, result.outcome, result.detail)
        if self.progress:
            self.progress(len(self.results), len(self.plan.changes))


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that was sent and is not read back yet; `error` when the broker did not say that it was done."""

    change: Change
    before: Json
    error: FleetError | None = None


def _stages(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Runs of changes of the same kind; the planner has put them in order."""
    for _, stage in groupby(changes, key=lambda change: change.resource):
        yield list(stage)


def _parents(change: Change) -> tuple[str, ...]:
    namespace = change.namespace
    return () if namespace is None else (namespace.tenant, str(namespace))


def _known(change: Change, value: Json) -> Json:
    """Of a created namespace, only what the catalogue knows: an older broker drops the fields of a newer one."""
    if change.resource is Resource.NAMESPACE and value:
        return {field: one for field, one in value.items() if field in BY_FIELD}
    return value


def _check_creation(call: Call, own: str) -> None:
    parts = call.path.strip("/").split("/")
    if call.method == "PUT" and parts[0] == "namespaces" and len(parts) == 3:
        wrong = problems(call.body or {}, own)
        if wrong:
            raise Refused(f"{'/'.join(parts[1:])} was not created, since {'; '.join(wrong)}.", cluster=own)


def _failure(change: Change, error: FleetError) -> Result:
    outcome = Outcome.REFUSED if isinstance(error, Refused) else Outcome.FAILED
    return Result(change, outcome, str(error), passing=isinstance(error, Transient))


def _short(value: Json) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= 160 else f"{text[:157]}..."
