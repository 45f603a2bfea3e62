"""The abort of a migration or a failback as a procedure; see docs/abort_migration.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pulsar_fleet.cluster.text import counted, listed
from pulsar_fleet.procedures.procedure import Checked, Done, Ended, Ending, Procedure, Session, Step
from pulsar_fleet.settings.migration import ABORT_SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.abort import AbortResult
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.model import Moves


class _Aborted(NamedTuple):
    """The run that is undone.

    :param clusters: those of its settings; of a failback the namespaces return to the first one.
    """

    run: Run
    clusters: Sides
    is_failback: bool

    @property
    def sides(self) -> Sides:
        """The cluster that the namespaces leave comes first."""
        return self.clusters.reversed() if self.is_failback else self.clusters


def validate(conf: JsonObject) -> None:
    """Refuse a run that the ledger lacks, or of another procedure, and one whose clusters nobody names."""
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.ledger.ledger import MIGRATIONS
    from pulsar_fleet.ledger.run import Run

    recorded = Run.open(conf["run"]).ledger.require_run(conf["run"])
    if recorded.procedure not in MIGRATIONS:
        raise InvalidRequest(
            f"{conf['run']} is a run of {recorded.procedure}: only a migration or a failback is aborted."
        )
    if missing := [side for side, name in clusters_of(conf).items() if side in CLUSTERS and not name]:
        raise InvalidRequest(f"{conf['run']} did not record its clusters: name {listed(missing)} too.")


def clusters_of(conf: JsonObject) -> JsonObject:
    """The clusters that the settings leave empty: those of the run that is undone."""
    from pulsar_fleet.ledger.run import Run

    recorded = Run.open(conf["run"]).ledger.run(conf["run"])
    before = recorded.conf if recorded else {}
    empty = {side: before.get(side) or "" for side in CLUSTERS if not conf[side]}
    return empty if conf.get(_THIRDS) else {**empty, _THIRDS: before.get(_THIRDS) or []}


async def require(session: Session) -> None:
    """Refuse a run that goes on, other clusters than its own, and namespaces that a later run has moved since."""
    from pulsar_fleet.cluster.connection import refuse_same_cluster
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.migration.abort import later_runs
    from pulsar_fleet.migration.prepare.lease import require_ended
    from pulsar_fleet.procedures.migration import first_other, recorded_clusters

    aborted = _aborted(session)
    run, connections = aborted.run, {side: session.connections[side][0].name for side in CLUSTERS}
    names = await _names(aborted)
    refuse_same_cluster(connections["blue"], connections["green"], names)
    recorded = recorded_clusters(run, is_failback=aborted.is_failback)
    if recorded is None and not all(session.conf[side] for side in CLUSTERS):
        raise PreconditionFailed(
            f"The records do not say between which clusters {run.id} moves: name {listed(CLUSTERS)} too. Nothing was "
            "undone."
        )
    if other := first_other(names, recorded or names):
        side, name, known = other
        raise PreconditionFailed(f"{connections[side]} leads to the cluster {name!r}, and the run has {known!r} there.")
    if later := later_runs(run):
        namespace, mover = next(iter(later.items()))
        raise PreconditionFailed(
            f"{namespace} was moved by {mover} after this run: nothing was undone, as an abort would undo that too."
        )
    if session.goes_on is None:
        if not run.id.startswith("cli/"):
            await require_ended(aborted.sides, run)
    elif session.goes_on(run.id):
        raise PreconditionFailed(f"{run.id} still goes on: mark it as failed in Airflow, then start this run again.")


async def check_abort(session: Session) -> Checked:
    """Refuse a run that has terminated a topic, and say what an abort undoes; nothing is changed."""
    from pulsar_fleet.migration.abort import require_reversible, touched_namespaces

    aborted = _aborted(session)
    moves, names = _moves(aborted), touched_namespaces(aborted.run)
    if moves:
        await require_reversible(aborted.sides, aborted.run, moves)
    blue, green = await _names(aborted)
    closes = f" {blue} redirects its clients to {green} again." if aborted.is_failback else ""
    return Checked(
        headline=f"Abort of {aborted.run.id}: {counted(len(names), 'namespace')}.",
        changes=tuple(map(str, names)),
        text=f"An abort would undo everything of {listed(names, 20)}: flags, replication that the run began, "
        f"overrides, and what it created and no client uses.{closes}",
        question=f"Undo what {aborted.run.id} changed for {counted(len(names), 'namespace')} on the clusters {blue} "
        f"and {green}, and remove the unused resources that it created?",
        about=f"abort of {aborted.run.id}",
    )


async def abort_run(session: Session) -> Done:
    """Undo what a migration or a failback changed; refused while it goes on, and once a topic is terminated."""
    from pulsar_fleet.migration.abort import abort_failback, abort_migration

    # A connection may have changed, or the run may have been cleared, while a person was asked.
    await require(session)
    aborted = _aborted(session)
    moves = _moves(aborted)
    if aborted.is_failback:
        result = await abort_failback(aborted.clusters, aborted.run, moves)
    else:
        assert moves is not None, "a migration without moves was refused"
        result = await abort_migration(aborted.sides, aborted.run, moves)
    aborted.run.ledger.finish_run(aborted.run.id, "undone")
    return Done(_text(result), result)


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """What was undone, and what was kept."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.abort import AbortResult, touched_namespaces
    from pulsar_fleet.procedures.runner import described, result_of
    from pulsar_fleet.report.planned_run import planned_report

    undone, planned = result_of(run, "abort_run", AbortResult), described(run)
    rows = [f"* {line}" for line in _text(undone).splitlines()] if undone else []
    outcome = f"{conf['run']} is undone." if undone else planned.headline
    report = planned_report(outcome, ["\n".join(rows)], planned, approval=read_approval(run), failed=failed)
    names = touched_namespaces(Run(conf["run"], run.ledger, run.artefacts))
    document: JsonObject = {"run": conf["run"], "namespaces": [*map(str, names)], "report": report.markdown()}
    return Ending(
        report=report,
        text=_text(undone) if undone else report.markdown(),
        document=document | (undone.to_json() if undone else {}),
        ended=Ended.PARTLY if undone and undone.kept else Ended.DONE,
    )


def _aborted(session: Session) -> _Aborted:
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.procedures.failback import FAILBACK

    # A process that dies leaves a lease that the next one takes at once.
    run = Run(session.conf["run"], session.run.ledger, session.run.artefacts, session.run.process)
    recorded, ((blue,), (green,)) = run.ledger.run(run.id), (session.connections[side] for side in CLUSTERS)
    is_failback = recorded is not None and recorded.procedure == FAILBACK.name
    return _Aborted(run, Sides(blue, green, thirds=session.connections.get(_THIRDS, ())), is_failback)


async def _names(aborted: _Aborted) -> tuple[str, str]:
    async with aborted.clusters.open() as (blue, green):
        return await blue.cluster_name(), await green.cluster_name()


def _moves(aborted: _Aborted) -> Moves | None:
    """What it moves; None of a failback that has reopened namespaces and not decided how they move."""
    from pulsar_fleet.migration.abort import touched_namespaces
    from pulsar_fleet.migration.waves.steps import find_moves, recorded_moves

    reopened = aborted.is_failback and touched_namespaces(aborted.run)
    return find_moves(aborted.run) if reopened else recorded_moves(aborted.run)


def _text(aborted: AbortResult) -> str:
    parts = {
        "flags cleared": aborted.flags,
        "redirected again": aborted.closed,
        "replication ended": aborted.replication,
        "overrides restored": aborted.overrides,
        "removed": aborted.removed,
        "kept": aborted.kept,
    }
    lines = [f"{name}: {listed(resources, 20)}" for name, resources in parts.items() if resources]
    return "\n".join(lines) or "Nothing was left to undo."


CLUSTERS = {"blue": "The old cluster.", "green": "The new cluster."}
_THIRDS = "third_clusters"
ABORT = Procedure(
    name="abort_migration",
    summary="Undo a migration or a failback before its first topic is terminated.",
    command="abort",
    clusters={**CLUSTERS, _THIRDS: "Third clusters of the run."},
    own_settings=ABORT_SETTINGS,
    clusters_of=clusters_of,
    opening="read_request",
    checks="check_abort",
    approves="approve_abort",
    validate=validate,
    require=require,
    urgent=True,
    check=check_abort,
    work=(Step("abort_run", abort_run),),
    end=end,
)
