"""Cut over the namespaces of a wave: one after the other, or all at once where the flag of the cluster redirects."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.cluster_redirect import redirects_every_topic
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.polling import all_ended
from pulsar_fleet.cluster.text import listed, with_names
from pulsar_fleet.ledger.artefacts import Reference
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import BROKERS, CUT_OVER, FINDINGS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.namespace_cutover import CutOverResult, NamespaceCutOver
from pulsar_fleet.migration.cutover.redirect import ClusterFlag, Redirect, is_flagged, together
from pulsar_fleet.migration.cutover.termination import (
    is_moved,
    read_terminations,
    unterminated_partitions,
    without_moved,
)
from pulsar_fleet.migration.drain.remediate import record_moved_bundles
from pulsar_fleet.migration.facts import ConnectedClients
from pulsar_fleet.migration.model import Move, Moves, Phase
from pulsar_fleet.migration.preflight.broker_changes import BrokerVersions, absences, new_blockers, upgrades
from pulsar_fleet.migration.preflight.gates.clients import stopping_clients
from pulsar_fleet.migration.preflight.redirect_probe import redirect_of
from pulsar_fleet.migration.prepare import freeze
from pulsar_fleet.migration.prepare.freeze import keep_unused, recreate_missing
from pulsar_fleet.migration.prepare.lease import holding, renew, renewing
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.migration.prepare.target import prepare_deleted
from pulsar_fleet.migration.proof.baseline import require_copied_topics, require_fresh
from pulsar_fleet.migration.repoint.steps import RepointState, read_state
from pulsar_fleet.migration.repoint.terminate import CarryLeft, redirect_left, terminate_namespace
from pulsar_fleet.migration.request import QUIESCE_SECONDS
from pulsar_fleet.migration.resumption import Reached
from pulsar_fleet.migration.subscriptions.checkpoint import Checkpoint, stored_clients, with_clients
from pulsar_fleet.migration.subscriptions.transfer_plan import IndividuallyAcknowledged
from pulsar_fleet.migration.third_clusters import Incoming, go_on, wait_linked
from pulsar_fleet.migration.unread_brokers import not_reported, reported_findings
from pulsar_fleet.preflight.findings import refusal_text
from pulsar_fleet.snapshot.cluster_reader import read_brokers
from pulsar_fleet.snapshot.model import Snapshot

_LATE_STATE = (
    "They connected after the gates; no topic was terminated, and no client was redirected. Then clear cut_over or use "
    "--resume."
)


def require_following_clients(run: Run, moves: Moves, namespace: str, connected: ConnectedClients) -> None:
    """Refuse the cut-over of a namespace to which a client has connected that a redirect would stop.

    Findings that the gates reported have a waiver. A run that evaluated no gates is not checked.

    :param connected: the clients of the namespace now.
    :raises PreconditionFailed: names each of these clients with its version and address.
    """
    if run.stored(FINDINGS) is None:
        return
    clients = (client for group in connected.values() for client in group)
    if late := not_reported(stopping_clients(namespace, clients), reported_findings(run)):
        raise PreconditionFailed(with_names(refusal_text(late, _LATE_STATE), moves.names))


SETTLE_SECONDS = 120.0
_POLL_SECONDS = 2.0
_STATE = "No topic was terminated, and no client was redirected."


async def require_settled_brokers(
    blue: AdminClient, green: AdminClient, run: Run, moves: Moves, *, seconds: float = SETTLE_SECONDS
) -> None:
    """Wait until every broker of the gates answers and all run one version; then check what the brokers run and set.

    Clients that are redirected while a broker of green restarts find it closed, and retry ever more seldom. After
    `seconds`, brokers that do not answer count as removed. A run of an earlier release, which recorded no brokers, is
    not checked. Calls: one for each cluster and two for each broker, in each poll.

    :raises PreconditionFailed: a rolling upgrade is not finished after `seconds`, or a broker now has a blocker.
    """
    document = run.stored(BROKERS)
    if document is None:
        return
    before, end = BrokerVersions.from_json(document), time.monotonic() + seconds
    while True:
        is_last = time.monotonic() > end
        try:
            snapshots = await asyncio.gather(_read(blue, moves.blue), _read(green, moves.green))
        except Unavailable as error:
            if is_last:
                raise
            upgrading, absent = [], [str(error)]
        else:
            now = BrokerVersions.of(*(snapshot.brokers for snapshot in snapshots))
            upgrading, absent = upgrades(before, now), absences(before, now)
            if is_last or not (upgrading or absent):
                break
        log.info("The cut-over waits for the brokers: %s", "; ".join([*upgrading, *absent]))
        await asyncio.sleep(_POLL_SECONDS)
    if upgrading:
        raise PreconditionFailed(f"{'. '.join(upgrading)}. {_STATE} Finish it, then clear cut_over or use --resume.")
    for sentence in absent:
        log.warning("%s: the cut-over goes on without the others", sentence)
    redirects = any(move.strategy.redirects for move in moves.moves)
    if findings := new_blockers(*snapshots, reported_findings(run), redirects=redirects):
        raise PreconditionFailed(refusal_text(findings, _STATE))


async def _read(admin: AdminClient, cluster: str) -> Snapshot:
    brokers = await read_brokers(admin, open_redactor(), PartialReads())
    return Snapshot(cluster=cluster, began="", ended="", key_id="", brokers=tuple(brokers))


log = logging.getLogger(__name__)


@holding
async def cut_over(
    sides: Sides,
    run: Run,
    moves: Moves,
    original: OriginalSettings,
    *,
    quiesce_seconds: float = QUIESCE_SECONDS,
    individually_acknowledged: IndividuallyAcknowledged = IndividuallyAcknowledged.CARRY,
    proof_max_age_minutes: float | None = None,
    stopping: Callable[[], bool] = lambda: False,
    carry_left: CarryLeft | None = None,
) -> Reference:
    """Cut over every namespace; one that is cut over already is only confirmed, by the cluster.

    It freezes blue first: after a failed attempt `restore_blue` may have run. When every namespace is drained, blue is
    left as it is.

    :param quiesce_seconds: how long producers are throttled before the flag; more prolongs the publish
        pause.
    :param individually_acknowledged: what happens to individually acknowledged messages in what was replicated.
    :param proof_max_age_minutes: refuse a namespace whose proof is older, or stale for another reason; None: no check.
    :param stopping: asked before each namespace: whether a person wants to stop.
    :param carry_left: carries the positions of subscriptions that are read on blue only, where applications were moved
        before and the rest is redirected.
    """
    redirect = redirect_of(sides, run)
    if redirect.placeholders and any(move.strategy.redirects for move in moves.moves):
        log.info(
            "%s has no service for %s; placeholders are stored in the redirect",
            sides.green.name,
            ", ".join(redirect.placeholders),
        )
    async with sides.open() as (blue, green), sides.open_thirds() as thirds:
        if not Reached.of(run).all(moves, Phase.DRAINED):
            await freeze.freeze(blue, run, original)
        if (waiting := await without_moved(blue, moves)).moves:
            await require_settled_brokers(blue, green, run, waiting)
        wave = _WaveCutOver(
            sides=sides,
            run=run,
            moves=moves,
            original=original,
            blue=blue,
            green=green,
            redirect=redirect,
            watched=read_state(run),
            quiesce_seconds=quiesce_seconds,
            individually_acknowledged=individually_acknowledged,
            proof_max_age_minutes=proof_max_age_minutes,
            stopping=stopping,
            carry_left=carry_left,
            thirds=thirds,
        )
        await (wave.all_at_once() if any(move.strategy.flags_cluster for move in moves.moves) else wave.one_by_one())
        return run.artefacts.write_json(run.id, CUT_OVER, wave.done())


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaveCutOver:
    sides: Sides
    run: Run
    moves: Moves
    original: OriginalSettings
    blue: AdminClient
    green: AdminClient
    redirect: Redirect
    watched: RepointState
    quiesce_seconds: float
    individually_acknowledged: IndividuallyAcknowledged
    proof_max_age_minutes: float | None
    stopping: Callable[[], bool]
    carry_left: CarryLeft | None
    thirds: Mapping[str, AdminClient]

    def done(self) -> dict[str, JsonObject]:
        """Namespace → what its cut-over did."""
        return self.run.stored(CUT_OVER) or {}

    async def one_by_one(self) -> None:
        for move in self.moves.moves:
            unterminated = await self._prepared(move)
            if unterminated is not None:
                self._require_wanted()
                await self._cut_over(move, unterminated)

    def _require_wanted(self) -> None:
        if self.stopping():
            moved = [move.namespace for move in self.moves.moves if str(move.namespace) in self.done()]
            raise PreconditionFailed(f"Stopped: {listed(moved)} cut over." if moved else "Stopped before any cut-over.")

    async def all_at_once(self) -> None:
        """With the flag of the cluster: nothing is flagged unless every namespace can be cut over."""
        prepared = {move.namespace: await self._prepared(move) for move in self.moves.moves}
        open_ = {name: partitions for name, partitions in prepared.items() if partitions is not None}
        moves = [move for move in self.moves.moves if move.namespace in open_]
        if not moves:
            return
        self._require_wanted()
        flag = ClusterFlag(self.blue, self.moves.moves, self.redirect, waiting=len(moves))
        if not await redirects_every_topic(self.blue):
            await flag.require_all()
        await together(lambda move: self._cut_over(move, open_[move.namespace], flag), moves)

    async def _prepared(self, move: Move) -> tuple[TopicName, ...] | None:
        """The partitions that are not terminated, when the namespace may be cut over; None when it was already."""
        name = str(move.namespace)
        done = name in self.done()
        if not done and not await is_moved(self.blue, move):
            await require_copied_topics(self.blue, move, self.run)
            await recreate_missing(self.blue, move.namespace, move.topics, self.green)
            await prepare_deleted(self.blue, self.green, self.run, [move], used=not move.strategy.redirects)
        unterminated = await self._open_partitions(move, done=done)
        if done and not unterminated:
            return None
        # Applications have written to a copy that their owners connected them to.
        proven = move.strategy.redirects and not move.strategy.is_moved_before
        proven = proven and len(unterminated) == len(move.partitions)
        if self.proof_max_age_minutes and proven:
            await require_fresh(self.blue, self.green, move, self.run, max_age_minutes=self.proof_max_age_minutes)
        return unterminated

    async def _open_partitions(self, move: Move, *, done: bool) -> tuple[TopicName, ...]:
        """Partitions that are to be terminated; calls them only where a flag is set, or was set in this run.

        What its owner has terminated is among them until the cursors behind its copies are set.
        """
        if done or await is_flagged(self.blue, move):
            return (await read_terminations(self.blue, move)).waiting
        if self.run.ledger.entered(self.run.id, str(move.namespace), Phase.QUIESCED):
            return await unterminated_partitions(self.blue, move)
        return tuple(move.partitions)

    async def _cut_over(self, move: Move, unterminated: Sequence[TopicName], flag: ClusterFlag | None = None) -> None:
        run, name = self.run, str(move.namespace)
        await renew(self.sides, run, [name])
        if move.strategy.redirects and not move.strategy.is_moved_before and len(unterminated) == len(move.partitions):
            # As late as possible: their minute as inactive topics begins again.
            try:
                await keep_unused(self.green, move.partitions)
            except NotFound:
                await prepare_deleted(self.blue, self.green, run, [move])
                await keep_unused(self.green, move.partitions)
        run.ledger.enter_phase(run.id, name, Phase.QUIESCED)
        cut_over = NamespaceCutOver(
            blue=self.blue,
            green=self.green,
            move=move,
            before=self.original,
            checkpoint=Checkpoint(run, name),
            unterminated=unterminated,
            quiesce_seconds=self.quiesce_seconds,
        )
        if not move.strategy.redirects:
            self._store(await terminate_namespace(cut_over, self.watched.namespace(name)))
            return
        require_clients = partial(require_following_clients, run, self.moves, name)
        if move.strategy.redirects_rest:
            assert self.carry_left is not None, f"{move.strategy} belongs to a migration"
            self._store(await redirect_left(cut_over, self.redirect, require_clients, self.carry_left))
            return
        known = with_clients(move, stored_clients(run, replace(self.moves, moves=(move,))))
        async with self._incoming(move):
            result = await replace(cut_over, move=known).redirect(
                self.redirect,
                cluster_flag=flag,
                individually_acknowledged=self.individually_acknowledged,
                require_clients=require_clients,
            )
        self._store(result)

    @asynccontextmanager
    async def _incoming(self, move: Move) -> AsyncIterator[None]:
        """Hold what third clusters replicate into the namespace; once it is terminated, lead that to green."""
        thirds, name = self.thirds.items(), move.namespace
        sides = {"old": self.moves.blue, "new": self.moves.green}
        try:
            looked = [await Incoming.find(third, cluster, name, **sides) for cluster, third in thirds]
            incoming = [replication for replication in looked if replication]
            for replication in incoming:
                await replication.hold(self.run, self.sides)
            async with renewing(lambda: all_ended(*(each.renew(self.run) for each in incoming))):
                yield
        finally:
            await all_ended(
                *(go_on(third, cluster, self.run, move, blue=self.blue, **sides) for cluster, third in thirds)
            )
        # Also where an earlier attempt has led it, and died before it was connected.
        await all_ended(*(wait_linked(third, cluster, name, **sides) for cluster, third in thirds))

    def _store(self, result: CutOverResult) -> None:
        run = self.run
        if result.moved_bundles:
            record_moved_bundles(run, self.moves.blue, result.namespace, result.moved_bundles)
        run.artefacts.write_json(run.id, CUT_OVER, {**self.done(), result.namespace: result.to_json()})
        run.ledger.enter_phase(run.id, result.namespace, Phase.CUT_OVER, result.to_json())
