"""Migration as a procedure, and the steps that it shares with failback; see docs/migrate_namespaces.md."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.procedures.moving_clients import (
    asked,
    carry_left,
    check_clients,
    late_text,
    lead_clients,
    led_by_another,
    look_left_blue,
    look_moved,
)
from pulsar_fleet.procedures.procedure import (
    Application,
    Checked,
    Ended,
    Ending,
    Following,
    NextRun,
    NotYet,
    Procedure,
    Said,
    Session,
    Skipped,
    Step,
    Unmet,
    Wait,
)
from pulsar_fleet.settings.migration import SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.procedure import Failback, Migration
    from pulsar_fleet.migration.proof.reader import Job
    from pulsar_fleet.migration.resumption import Reached

_SIDES, _NAMES = ("blue", "green"), "clusters.json"
_A_WORKER_LOOKS = "positions are carried again where clients have not come yet"
_CARRIED = "every position was carried entry by entry, right before the document was published"
_COMPARED = "the copy was compared before; what both clusters have from now on, verify_replication compares"
RENEW_SECONDS = 120.0
"""Between two looks at the change windows: each renews the lease of the namespaces, which ends after ten minutes."""


def validate_migration(conf: JsonObject) -> None:
    """Refuse invalid settings of a migration."""
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.migration.procedure import Migration
    from pulsar_fleet.settings.client_moves import OF_MIGRATION

    Migration.validate(conf)
    if conf["group"]:
        asked(conf)
    elif given := [name for name in OF_MIGRATION if conf.get(name)]:
        raise InvalidRequest(f"{given[0]!r} is a setting of the strategy replicate_then_move_clients: leave it out.")


async def require_migration(session: Session) -> None:
    """Refuse one cluster twice, others than those of the run, and namespaces that blue lacks."""
    await require_clusters(session)
    if not _is_prepared(session.run):
        await _migration(session).select_namespaces()


async def require_clusters(session: Session) -> None:
    """Refuse one cluster twice, a run that another process executes, and other clusters than the gates were about.

    The first call keeps the names of the clusters.
    """
    from pulsar_fleet.cluster.connection import refuse_same_cluster
    from pulsar_fleet.migration.prepare.lease import require_own

    names = [await session.clusters[side].cluster_name() for side in _SIDES]
    refuse_same_cluster(session.conf["blue"], session.conf["green"], (names[0], names[1]))
    _refuse_others(session, names)
    session.run.artefacts.write_json(session.run.id, _NAMES, names)
    await require_own(run_of(session).sides, session.run)


async def _require_recorded_clusters(session: Session) -> None:
    """As `require_clusters`, for who restores: the name of a cluster that does not answer refuses nothing."""
    from pulsar_fleet.cluster.errors import PermissionDenied, Unavailable

    async def name_of(side: str) -> str | None:
        try:
            return await session.clusters[side].cluster_name()
        except (PermissionDenied, Unavailable):
            return None

    _refuse_others(session, [await name_of(side) for side in _SIDES])


def _refuse_others(session: Session, names: Sequence[str | None]) -> None:
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.migration.procedure import Failback

    known = recorded_clusters(session.run, is_failback=isinstance(run_of(session), Failback))
    if known is None or not session.run.ledger.phases(session.run.id):
        return
    if other := first_other(names, known):
        side, name, recorded = other
        raise PreconditionFailed(
            f"The run {session.run.id!r} has {recorded!r} as {side!r}, and {session.conf[side]!r} leads to "
            f"{name!r} now; nothing was sent. Correct the connection, then go on with the run."
        )


def first_other(names: Sequence[str | None], recorded: Sequence[str]) -> tuple[str, str, str] | None:
    """Side, name and recorded name of the first cluster that is not the recorded one; a name of None is unknown."""
    compared = zip(_SIDES, names, recorded, strict=True)
    return next(((side, name, known) for side, name, known in compared if name is not None and name != known), None)


def recorded_clusters(run: Run, *, is_failback: bool) -> list[str] | None:
    """The names of blue and green that a run has begun with; None where it has stored none."""
    from pulsar_fleet.migration.waves.steps import find_moves

    known: list[str] | None = run.stored(_NAMES)
    if known is None and (moves := find_moves(run)):
        # A run of an earlier release. What moves is stored with the cluster first that it leaves.
        known = [moves.blue, moves.green]
        if is_failback:
            known.reverse()
    return known


async def check_migration(session: Session) -> Checked:
    """Evaluate every gate and plan the waves; a blocker stops the run. Nothing has been changed."""
    migration = _migration(session)
    wave, findings = await migration.check_gates(await migration.select_namespaces())
    lines, risks = list[str](), list[tuple[str, bool]]()
    if migration.moves.move_clients and not migration.are_clients_moved:
        lines, risks = await check_clients(session, migration.moves)
    text = session.run.artefacts.read(wave.text).decode()
    lines += _led_lines(session.run, migration.moves.green)
    about_clients = "\n".join(f"* {line}" for line in [*lines, *(risk for risk, _ in risks)])
    return Checked(
        headline=wave.headline,
        changes=tuple(str(move.namespace) for move in migration.moves.moves),
        text=f"{about_clients}\n\n{text}" if about_clients else text,
        question=f"Approve wave {wave.number} of {wave.waves}?",
        refusal=next((risk for risk, refused in risks if refused), ""),
        warnings=len(findings) + len(risks),
        about=f"wave {wave.number}",
    )


def _led_lines(run: Run, green: str) -> list[str]:
    """What the cut-over does with the replication of third clusters."""
    from pulsar_fleet.migration.artefacts import LED

    return [
        f"{third} replicates into {listed(namespaces)}: the cut-over holds that replication for some seconds, then "
        f"leads it to {green}."
        for third, namespaces in (run.stored(LED) or {}).items()
    ]


_Look = Callable[[Session], Awaitable[Said]]


def _unless_moved(step: _Look) -> _Look:
    """A step that prepares or copies, which a run whose applications are on green leaves alone: they are theirs now."""

    @wraps(step)
    async def run_step(session: Session) -> Said:
        from pulsar_fleet.migration.procedure import Migration

        run = run_of(session)
        if isinstance(run, Migration) and run.are_clients_moved:
            return f"The applications are on {run.moves.green}: nothing is changed there."
        return await step(session)

    return run_step


@_unless_moved
async def prepare_new(session: Session) -> str:
    """Create on the new cluster what the clients need and it lacks."""
    from pulsar_fleet.migration import steps

    run = run_of(session)
    # Also of what was cut over: it is the remedy where the new cluster has lost a topic since.
    return counted((await steps.prepare_green(run.sides, run.run, run.moves))["changes"], "change")


@_unless_moved
async def recheck_gates(session: Session) -> str:
    """Evaluate every gate again, now that green is prepared; a new blocker stops the run."""
    from pulsar_fleet.preflight.findings import count_line

    run = _migration(session)
    return count_line(await run.recheck_gates(run.moves))


@_unless_moved
async def freeze_old(session: Session) -> str:
    """Turn off what could unload or delete a topic on the old cluster; stores the original settings."""
    from pulsar_fleet.migration import steps

    run = run_of(session)
    await steps.freeze_blue(run.sides, run.run, run.moves)
    return "the original settings are stored"


@_unless_moved
async def start_replication(session: Session) -> str:
    """Replicate stored messages to the new cluster, where the strategy of the namespace requires it."""
    from pulsar_fleet.migration import steps

    run = run_of(session)
    replicated = await steps.start_replication(run.sides, run.run, run.moves)
    return f"{replicated} of {counted(len(run.moves.moves), 'namespace')}"


@_unless_moved
async def wait_replicated(session: Session) -> str | NotYet:
    """Wait until the copy is near its end; the cut-over waits for the rest while producers are throttled."""
    from pulsar_fleet.procedures.copy_wait import CopyWait

    run = run_of(session)
    copy = session.kept.setdefault("copy", CopyWait(run.sides, run.run, run.moves))
    return _waiting(*await copy.look())


@_unless_moved
async def verify_copy(session: Session) -> str:
    """Compare the copied messages, and store the proof that the cut-over requires.

    In this task; above the run's `spark_above_entries` by the Spark job. A job that was killed is submitted again by
    the next try, which continues the same proof.
    """
    run = run_of(session)
    return _counts(await run.verify_copy(run.moves, _job(session)))


async def wait_for_window(session: Session) -> str | NotYet:
    """Wait for a change window, by the run's `change_windows` and `freeze_windows`."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    migration, now = _migration(session), datetime.now(UTC)
    window = migration.calendar.permission(now, "This wave")
    if window.granted:
        return window.sentence
    if window.opens is None:
        raise PreconditionFailed(window.sentence)
    await migration.keep_lease()
    return NotYet(window.sentence, min(RENEW_SECONDS, max(POLL_SECONDS, (window.opens - now).total_seconds())))


async def wait_repointed(session: Session) -> str | NotYet:
    """Wait until applications that blue does not redirect have left it: their owners connect them to green.

    It sets cursors on green that no consumer uses.
    """
    from pulsar_fleet.migration.repoint.steps import repoint_progress

    run = run_of(session)
    has_left, line = await repoint_progress(run.sides, run.run, run.moves)
    if not any(move.strategy.is_moved_before for move in run.moves.moves):
        return _waiting(has_left, line)
    have_left, moved = await look_left_blue(run)
    return _waiting(has_left and have_left, moved if has_left else f"{line}; {moved}")


async def cut_over(session: Session) -> Said:
    """Quiesce the producers, transfer the cursors, redirect the clients: the point of no return.

    With `replicate_then_move_clients` it is none: the document leads the clients to the new cluster.
    """
    run = run_of(session)
    if run.moves.move_clients:
        return await lead_clients(session, _migration(session))
    await run.cut_over(run.moves, run.original, stopping=session.stopping, carry_left=partial(carry_left, run))
    return listed([move.namespace for move in run.moves.moves])


async def verify_subscriptions(session: Session) -> str:
    """Compare the cursors of subscriptions without consumers on both clusters, right after the cut-over."""
    from pulsar_fleet.migration import steps

    run = run_of(session)
    if run.moves.move_clients:
        return _CARRIED
    return _counts(await steps.verify_subscriptions(run.sides, run.run, run.moves))


async def wait_drained(session: Session) -> str | NotYet | Unmet:
    """Wait until every namespace is drained on the old cluster, and remediate incidents.

    With `replicate_then_move_clients`: until every client has come, also those of positions that are carried again.
    """
    from pulsar_fleet.migration.drain.steps import monitor_drain

    run = run_of(session)
    if run.moves.move_clients:
        return await look_moved(session, _migration(session))
    status = await monitor_drain(run.sides, run.run, run.moves)
    return _waiting(status.is_done, status.line())


async def look_drained(session: Session) -> Said:
    """Whether a worker must go on with `wait_drained`: a remedy writes to the clusters and can block with a client."""
    from pulsar_fleet.migration.drain.steps import poll_drain

    run = run_of(session)
    if run.moves.move_clients:
        return _A_WORKER_LOOKS
    status = await poll_drain(run.sides, run.run, run.moves)
    return _waiting(status.needs_worker, status.line())


async def verify_messages(session: Session) -> str:
    """Compare the old cluster's messages with their copy on the new cluster; fail unless they are equal."""
    run = run_of(session)
    if run.moves.move_clients:
        return _COMPARED
    return _counts(await run.verify_messages(run.moves, _job(session)))


async def clean_up(session: Session) -> str:
    """End replication, remove from the old cluster what continues on the new one, and list the leftovers."""
    run = run_of(session)
    if run.moves.move_clients:
        return f"{run.moves.blue} goes on: applications can return to it until the move is completed."
    results = await run.clean_up(run.moves, run.original)
    return " ".join(str(result["text"]) for result in results.values())


async def restore(session: Session) -> str | Skipped:
    """Restore every setting and rate limit that the run changed on the old cluster, also after a failed run."""
    from pulsar_fleet.migration.prepare.lease import require_own

    if session.run.ledger.run(session.run.id) is None:
        return Skipped("The run was refused before it began.")
    if not session.run.ledger.phases(session.run.id):
        return Skipped("The run changed no setting.")
    # What the settings lead to now may be another cluster, and another process may execute the run.
    await _require_recorded_clusters(session)
    await require_own(run_of(session).sides, session.run)
    restored = await run_of(session).restore()
    if restored is None:
        return Skipped("The run changed no setting.")
    return "\n".join([counted(len(restored), "change"), *(f"* {line}" for line in restored)])


def end_migration(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
    """The report from the ledger, and whether the run can still be undone."""
    from pulsar_fleet.migration.model import Phase, is_reversible

    phases = {*reached(run).phases.values()}
    if _were_moved(run) and led_by_another(run):
        # By a return, or by a person: what is left of the run can be undone.
        return ending(run, failed, undo=(command_line("abort", run.id),), ended=Ended.DIFFERENT)
    if Phase.MOVED in phases:
        return ending(run, failed, undo=(command_line("return-clients", run.id),))
    undoable = phases - {Phase.CHECKED} and all(map(is_reversible, phases))
    return ending(run, failed, undo=(command_line("abort", run.id),) if undoable else ())


def _were_moved(run: Run) -> bool:
    """Whether the run has led applications to the new cluster, wherever they are now."""
    from pulsar_fleet.migration.model import Phase

    return any(entry.phase == Phase.MOVED for entry in run.ledger.phases(run.id))


def ending(run: Run, failed: Mapping[str, str], **more: Any) -> Ending:
    """The report of a migration or a failback from the ledger; its page is stored.

    :param more: other fields of the ending.
    """
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.report.migration import store_migration_report

    report = store_migration_report(run, failed, read_approval(run))
    text = report.markdown()
    return Ending(report=report, text=text, document={"failed": list(failed), "report": text}, has_page=True, **more)


def next_wave(run: Run, conf: JsonObject) -> NextRun | Skipped | None:
    """The run of the next wave; None after the last one."""
    from pulsar_fleet.migration.procedure import following_wave

    if (following := following_wave(run, conf)) is None:
        return None
    run_id, settings = following
    by_hand = (
        f"Wave {settings['wave']} is left: start it with the same clusters and --continues {settings['continues']} "
        f"--wave {settings['wave']}, in the form with both settings."
    )
    return NextRun(run_id, settings, by_hand) if conf["next_waves"] else Skipped(f"'next_waves' is off. {by_hand}")


def run_of(session: Session) -> Migration | Failback:
    """The migration or failback of a session."""
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.procedure import PROCEDURES

    recorded = session.run.ledger.run(session.run.id)
    assert recorded is not None, f"the first task has recorded {session.run.id}"
    (blue,), (green,) = session.connections["blue"], session.connections["green"]
    parsing = session.dag_parsing() if session.dag_parsing else None
    sides = Sides(blue, green, thirds=session.connections.get("third_clusters", ()))
    return PROCEDURES[recorded.procedure].of(session.conf, sides, session.run, parsing)


def _migration(session: Session) -> Migration:
    from pulsar_fleet.migration.procedure import Migration

    run = run_of(session)
    assert isinstance(run, Migration)
    return run


def _job(session: Session) -> Job | None:
    if (submit := session.spark) is None:
        return None

    async def job(request: str, result: str) -> None:
        # The lease is renewed meanwhile.
        await asyncio.to_thread(submit, request, result)

    return job


def _waiting(done: bool, line: str) -> str | NotYet:
    return line if done else NotYet(line)


def _counts(document: JsonObject) -> str:
    return ", ".join(f"{name} {value}" for name, value in document.items())


def reached(run: Run) -> Reached:
    """The newest phase of each namespace of a run."""
    from pulsar_fleet.migration.resumption import Reached

    return Reached.of(run)


def _any(name: str) -> Callable[[Run], bool]:
    """Whether a namespace of a run is in a phase or beyond it."""

    def any_one_is(run: Run) -> bool:
        from pulsar_fleet.migration.model import Phase

        return reached(run).any(Phase(name))

    return any_one_is


def _all(name: str) -> Callable[[Run], bool]:
    """Whether every namespace of a run is in a phase or beyond it."""

    def all_are(run: Run) -> bool:
        from pulsar_fleet.migration.model import Phase
        from pulsar_fleet.migration.waves.steps import find_moves

        moves, phase = find_moves(run), Phase(name)
        return moves is not None and reached(run).all(moves, phase)

    return all_are


is_frozen, _is_prepared = _any("frozen"), _any("prepared")
_COPIED, _SWITCHED, _DRAINED, _VERIFIED = map(_all, ("replicated", "moved", "drained", "verified"))


def _advice(run: Run) -> str:
    from pulsar_fleet.migration.model import Phase
    from pulsar_fleet.migration.waves.steps import find_moves

    again = "--resume waits again" if run.id.startswith("cli/") else "clear this task to wait again"
    moves = find_moves(run)
    if moves and moves.move_clients and reached(run).all(moves, Phase.MOVED):
        return f"{late_text(run)} Or lead them back: {command_line('return-clients', run.id)}."
    return f"Check the namespaces; {again}."


def _wait(minutes: str, missed: str, look: Callable[[Session], Awaitable[Said]]) -> Wait:
    return Wait(minutes, _advice, poll_seconds=POLL_SECONDS, look=look, again=True, missed=missed)


def _proof(old: str, new: str) -> Application:
    return Application("verify_messages.py", clusters=(old, new))


def preparing(old: str, new: str, *checks: Step) -> tuple[Step, ...]:
    """From the preparation of the new cluster to the proof of the copy."""
    copying = _wait("drain_timeout_minutes", "the namespaces are not replicated", wait_replicated)
    return (
        Step(f"prepare_{new}", prepare_new, reached=is_frozen),
        *checks,
        Step(f"freeze_{old}", freeze_old, reached=_COPIED),
        Step("start_replication", start_replication, reached=_COPIED),
        Step("wait_replicated", wait_replicated, reads=True, wait=copying, reached=_COPIED),
        Step("verify_copy", verify_copy, spark=_proof(old, new), reached=_SWITCHED),
    )


def switching(old: str, new: str) -> tuple[Step, ...]:
    """From the cut-over to the end of the old cluster's work."""
    draining = _wait("drain_timeout_minutes", "clients or messages are still on the old cluster", look_drained)
    finish = "A cut-over that has begun is finished first."
    return (
        Step("cut_over", cut_over, reached=_SWITCHED, finish=finish),
        Step("verify_subscriptions", verify_subscriptions, reads=True, reached=_VERIFIED),
        Step("wait_drained", wait_drained, beside=True, wait=draining, reached=_DRAINED),
        Step("verify_messages", verify_messages, spark=_proof(old, new), reached=_VERIFIED),
        Step(f"clean_up_{old}", clean_up, reached=_all("cleaned")),
    )


def restoring(old: str) -> Step:
    """What is done at the end, whatever happened."""
    return Step(
        f"restore_{old}",
        restore,
        reached=lambda run: False,  # noqa: ARG005
        finish="The original settings are restored first.",
    )


_ID = "admin URL or Airflow connection id."
CLUSTERS = {
    "blue": f"The old cluster: {_ID}",
    "green": f"The new cluster: {_ID}",
    "third_clusters": f"A further cluster that replicates into the namespaces: {_ID}",
}

MIGRATION = Procedure(
    name="migrate_namespaces",
    summary="Move namespaces to another cluster while their clients keep running, one wave after the other.",
    command="migrate",
    clusters=CLUSTERS,
    own_settings=SETTINGS,
    opening="read_request",
    checks="check_gates",
    approves="approve_wave",
    validate=validate_migration,
    require=require_migration,
    check=check_migration,
    begun=_is_prepared,
    records=True,
    work=(
        *preparing("blue", "green", Step("recheck_gates", recheck_gates, reads=True, reached=is_frozen)),
        Step(
            "wait_for_window",
            wait_for_window,
            reads=True,
            wait=Wait("", poll_seconds=RENEW_SECONDS),
            reached=_SWITCHED,
        ),
        Step(
            "wait_repointed",
            wait_repointed,
            wait=_wait(
                "repoint_timeout_minutes",
                "applications are still on the old cluster, or a position cannot be carried",
                wait_repointed,
            ),
            reached=_SWITCHED,
        ),
        *switching("blue", "green"),
    ),
    always=restoring("blue"),
    follows=Following("plan_next_run", "start_next_wave", next_wave),
    lists_runs=True,
    end=end_migration,
)
