"""The lease of a run on its namespaces, on both clusters: it keeps every other run out, whatever its ledger."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import ExecutedElsewhere, FleetError, PermissionDenied, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.polling import all_ended
from pulsar_fleet.cluster.runs.leases import ClusterRuns, Lease
from pulsar_fleet.cluster.runs.state_topic import read_runs, update_runs
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.model import Moves
from pulsar_fleet.migration.resumption import has_written

log = logging.getLogger(__name__)

LEASE_SECONDS = 600.0
"""Longer than the time between two steps of a run that waits for a worker."""
RENEW_SECONDS = 120.0
_renewed: dict[str, float] = {}
"""Run → when this process renewed its lease."""

Rest = ParamSpec("Rest")
Result = TypeVar("Result")
ResultCo = TypeVar("ResultCo", covariant=True)


class _Step(Protocol[Rest, ResultCo]):
    def __call__(
        self, sides: Sides, run: Run, moves: Moves, *args: Rest.args, **options: Rest.kwargs
    ) -> Coroutine[Any, Any, ResultCo]: ...


def holding(step: Callable[Concatenate[Sides, Run, Moves, Rest], Awaitable[Result]]) -> _Step[Rest, Result]:
    """A step of a migration that runs under the lease of what moves, see `held`."""

    @wraps(step)
    async def run_step(sides: Sides, run: Run, moves: Moves, *args: Rest.args, **options: Rest.kwargs) -> Result:
        async with held(sides, run, [move.namespace for move in moves.moves]):
            return await step(sides, run, moves, *args, **options)

    return run_step


@asynccontextmanager
async def held(
    sides: Sides, run: Run, namespaces: Iterable[NamespaceName], *, gives_up: bool = True
) -> AsyncIterator[None]:
    """Take or renew the lease of these namespaces on both clusters, and renew it while the block runs.

    What was taken here for a run that ends before its first write is given up: another run need not wait for its end.

    :param gives_up: False: not even that. The caller releases it when nothing is overridden any more.

    :raises PreconditionFailed: another run has one of them, or another process executes this run. Nothing was changed.
    """
    names = [str(name) for name in namespaces]
    taken = await renew(sides, run, names)
    try:
        async with renewing(partial(renew, sides, run, names)):
            yield
    except BaseException:
        if taken and gives_up:
            await _give_up(sides, run)
        raise


@asynccontextmanager
async def renewing(renew_: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Renew a lease every two minutes while the block runs."""
    task = asyncio.create_task(_keep(renew_))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _give_up(sides: Sides, run: Run) -> None:
    """As `release`, of a run that has failed before its first write: what is not given up ends after ten minutes."""
    try:
        if not has_written(run):
            await release(sides, run)
    except FleetError as error:
        log.warning("The lease is left until it ends: %s", error)


async def require_free(sides: Sides, run: Run, namespaces: Iterable[NamespaceName]) -> FleetError | None:
    """Refuse namespaces that another run has, as `held` does, without taking them.

    Returns why a cluster's record could not be read: the gates name the cause, the caller raises it if they do not.
    """
    names, lease = [str(name) for name in namespaces], lease_of(run)
    unread: FleetError | None = None
    async with sides.open() as (blue, green):
        for admin in (blue, green):
            try:
                runs = await read_runs(admin)
            except (PermissionDenied, Unavailable) as error:
                log.warning("%s", error)
                unread = unread or error
                continue
            runs.with_leases(names, lease, cluster=admin.connection.name, now=time.time())
    return unread


async def renew(sides: Sides, run: Run, names: Collection[str]) -> bool:
    """Take or renew the lease on both clusters, where less than a part of it is left; errors as those of `held`.

    What green refuses, or Ctrl-C prevents there, is not kept on blue.

    :returns: whether the run had no lease of one of them.
    """
    async with sides.open() as (blue, green):
        taken = await renew_on(blue, run, names)
        try:
            return bool(await renew_on(green, run, names) or taken)
        except (PreconditionFailed, asyncio.CancelledError):
            if taken:
                await leave_on(blue, run, taken)
            raise


async def require_own(sides: Sides, run: Run) -> None:
    """Refuse to go on with a run that another process executes; a record that cannot be read refuses nothing.

    :raises ExecutedElsewhere: a lease of this run that has not expired is another process's, which may be alive.
    """
    lease, now = lease_of(run), time.time()
    async with sides.open() as (blue, green):
        for admin in (blue, green):
            try:
                runs = await read_runs(admin)
            except (PermissionDenied, Unavailable) as error:
                log.warning("%s", error)
                continue
            for name, current in runs.leases.items():
                _require_own(run, name, current, lease, now)


def _require_own(run: Run, name: str, current: Lease, lease: Lease, now: float) -> None:
    if current.is_of_same_run(lease) and _is_alive(current, lease, now):
        raise ExecutedElsewhere(
            f"The run {run.id} is being executed by the process {current.process}, which renewed its lease "
            f"of {name} until {current.until()}. This process changes nothing. Wait until that process has ended."
        )


async def require_ended(sides: Sides, run: Run) -> None:
    """Refuse a run of Airflow whose lease has not expired: outside Airflow nobody knows whether it goes on.

    :raises PreconditionFailed: a worker may execute it.
    """
    lease, now = lease_of(run), time.time()
    async with sides.open() as admins:
        for admin in admins:
            for name, current in (await read_runs(admin)).leases.items():
                if current.is_of_same_run(lease) and not current.process and current.expires > now:
                    raise PreconditionFailed(
                        f"Airflow may still execute {run.id}: it has {name} until {current.until()}. Mark it as failed "
                        "there and wait until then, or start the DAG abort_migration, which asks Airflow."
                    )


async def renew_while_waiting(sides: Sides, run: Run, moves: Moves) -> None:
    """Renew the lease for a caller that polls often: only every two minutes in this process.

    While a cluster does not answer, the caller goes on, and the next call tries again: the lease lasts longer.
    """
    now = time.monotonic()
    if now - _renewed.get(run.id, -RENEW_SECONDS) >= RENEW_SECONDS:
        try:
            await renew(sides, run, [str(move.namespace) for move in moves.moves])
        except Unavailable as error:
            log.warning("the lease is not renewed: %s", error)
        else:
            _renewed[run.id] = now


async def release(sides: Sides, run: Run) -> None:
    """Give up the leases of a run on both clusters, also where one does not answer; a second call changes nothing."""
    async with sides.open() as admins:
        await all_ended(*(leave_on(admin, run) for admin in admins))


async def leave_on(admin: AdminClient, run: Run, names: Collection[str] | None = None) -> None:
    """Give up the leases of a run on one cluster, of these namespaces or of all."""
    lease = lease_of(run)

    async def leave(runs: ClusterRuns) -> ClusterRuns:
        return runs.without_run(lease, names)

    runs = await read_runs(admin)
    if runs.without_run(lease, names) != runs:
        await update_runs(admin, leave)


def lease_of(run: Run) -> Lease:
    """A lease of the run that begins now."""
    record = run.ledger.run(run.id)
    started = record.started_at.isoformat() if record else ""
    return Lease(run=run.id, started=started, process=run.process, expires=time.time() + LEASE_SECONDS)


async def renew_on(admin: AdminClient, run: Run, names: Collection[str]) -> tuple[str, ...]:
    """Take or renew the lease on one cluster; returns the names of which the run had none."""
    lease = lease_of(run)

    async def take(runs: ClusterRuns) -> ClusterRuns:
        now = time.time()
        for name in names:
            if current := runs.leases.get(name):
                _require_own(run, name, current, lease, now)
        return runs.with_leases(names, lease, cluster=admin.connection.name, now=now)

    runs = await read_runs(admin)
    own = {name: other for name in names if (other := runs.leases.get(name)) and _is_own(other, lease)}
    if len(own) == len(names) and min(other.expires for other in own.values()) > lease.expires - RENEW_SECONDS:
        return ()
    await update_runs(admin, take)
    return tuple(name for name in names if name not in own)


def _is_own(current: Lease, lease: Lease) -> bool:
    return current.is_of_same_run(lease) and current.process == lease.process


def _is_alive(current: Lease, lease: Lease, now: float) -> bool:
    """Whether another process than ours executes the run: one of this host is asked, another has until its lease ends.

    The workers of a DAG's run have no process.
    """
    if not current.process or current.process == lease.process or current.expires <= now:
        return False
    host, _, pid = current.process.rpartition(":")
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _keep(renew_: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        try:
            await renew_()
        except FleetError as error:
            # The step goes on: the next one, and each cut-over of a namespace, refuses without a lease.
            log.warning("The lease was not renewed: %s", error)
