"""Migrations and failbacks as procedures; see docs/migrate_namespaces.md and docs/fail_back_namespaces.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.polling import POLL_SECONDS
from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.procedures.procedure import (
    Application,
    Checked,
    Ending,
    Following,
    NextRun,
    NotYet,
    Procedure,
    Session,
    Skipped,
    Step,
    Wait,
)
from pulsar_fleet.settings.migration import FAILBACK_SETTINGS, SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.procedure import Failback, Migration
    from pulsar_fleet.migration.proof.reader import Job
    from pulsar_fleet.migration.resumption import Reached

_SIDES, _NAMES = ("blue", "green"), "clusters.json"
RENEW_SECONDS = 120.0
"""Between two looks at the change windows: each renews the lease of the namespaces, which ends after ten minutes."""


def validate_migration(conf: JsonObject) -> None:
    """Refuse invalid settings of a migration."""
    from pulsar_fleet.migration.procedure import Migration

    Migration.validate(conf)


def validate_failback(conf: JsonObject) -> None:
    """Refuse invalid settings of a failback."""
    from pulsar_fleet.migration.procedure import Failback

    Failback.validate(conf)


async def require_migration(session: Session) -> None:
    """Refuse one cluster twice, others than those of the run, and namespaces that blue lacks."""
    from pulsar_fleet.migration.prepare.lease import require_own

    await _require_clusters(session)
    await require_own(_of(session).sides, session.run)
    if not _is_prepared(session.run):
        await _migration(session).select_namespaces()


async def require_failback(session: Session) -> None:
    """Refuse one cluster twice, others than those of the run, and namespaces that green lacks."""
    from pulsar_fleet.migration.prepare.lease import require_own

    await _require_clusters(session)
    failback = _failback(session)
    await require_own(failback.sides, session.run)
    if not failback.begun:
        await failback.require_namespaces()


async def _require_clusters(session: Session) -> None:
    """Refuse one cluster twice and, once the gates were evaluated, others than then; keeps their names."""
    from pulsar_fleet.cluster.connection import refuse_same_cluster

    names = [await session.clusters[side].cluster_name() for side in _SIDES]
    refuse_same_cluster(session.conf["blue"], session.conf["green"], (names[0], names[1]))
    _refuse_others(session, names)
    session.run.artefacts.write_json(session.run.id, _NAMES, names)


async def _require_recorded_clusters(session: Session) -> None:
    """As `_require_clusters`, for who restores: the name of a cluster that does not answer refuses nothing."""
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
    from pulsar_fleet.migration.waves.steps import find_moves

    known: list[str] | None = session.run.stored(_NAMES)
    if known is None and (moves := find_moves(session.run)):
        # A run of an earlier release. What moves is stored with the cluster first that it leaves.
        known = [moves.blue, moves.green]
        if isinstance(_of(session), Failback):
            known.reverse()
    if known is None or not session.run.ledger.phases(session.run.id):
        return
    for side, name, recorded in zip(_SIDES, names, known, strict=True):
        if name is not None and name != recorded:
            raise PreconditionFailed(
                f"The run {session.run.id!r} has {recorded!r} as {side!r}, and {session.conf[side]!r} leads to "
                f"{name!r} now; nothing was sent. Correct the connection, then go on with the run."
            )


async def check_migration(session: Session) -> Checked:
    """Evaluate every gate and plan the waves; a blocker stops the run. Nothing has been changed."""
    migration = _migration(session)
    wave, findings = await migration.check_gates(await migration.select_namespaces())
    return Checked(
        headline=wave.headline,
        changes=tuple(str(move.namespace) for move in migration.moves.moves),
        text=session.run.artefacts.read(wave.text).decode(),
        question=f"Approve wave {wave.number} of {wave.waves}?",
        warnings=len(findings),
        about=f"wave {wave.number}",
    )


async def check_failback(session: Session) -> Checked:
    """Evaluate every interlock and every gate; a blocker stops the run. Nothing has been changed."""
    from pulsar_fleet.preflight.findings import findings_markdown

    failback = _failback(session)
    findings, names = await failback.check_failback(), listed(failback.namespaces)
    home, away = failback.clusters.blue.name, failback.clusters.green.name
    return Checked(
        headline=f"Failback of {names} from {away} to {home}.",
        changes=tuple(map(str, failback.namespaces)),
        text=f"{findings_markdown(findings)}\n{names}: {home} is reopened, and its terminated topics are removed and "
        f"recreated. From then on an application that restarts stays on {home}.",
        question=f"Move these namespaces back from {away} to {home}?",
        warnings=len(findings),
        about=f"failback of {names}",
    )


async def reopen_blue(session: Session) -> str:
    """Clear blue's migration flags and recreate its terminated topics; applications that restart now stay on blue."""
    return counted(len(await _failback(session).reopen_blue()), "namespace")


async def choose_strategies(session: Session) -> str:
    """Evaluate every gate again, now that blue is reopened, and choose the strategy of each namespace."""
    from pulsar_fleet.preflight.findings import count_line

    return count_line((await _failback(session).check_gates())[1])


async def prepare_new(session: Session) -> str:
    """Create on the new cluster what the clients need and it lacks."""
    from pulsar_fleet.migration import steps

    run = _of(session)
    # Also of what was cut over: it is the remedy where the new cluster has lost a topic since.
    return counted((await steps.prepare_green(run.sides, run.run, run.moves))["changes"], "change")


async def recheck_gates(session: Session) -> str:
    """Evaluate every gate again, now that green is prepared; a new blocker stops the run."""
    from pulsar_fleet.preflight.findings import count_line

    run = _migration(session)
    return count_line(await run.recheck_gates(run.moves))


async def freeze_old(session: Session) -> str:
    """Turn off what could unload or delete a topic on the old cluster; stores the original settings."""
    from pulsar_fleet.migration import steps

    run = _of(session)
    await steps.freeze_blue(run.sides, run.run, run.moves)
    return "the original settings are stored"


async def start_replication(session: Session) -> str:
    """Replicate stored messages to the new cluster, where the strategy of the namespace requires it."""
    from pulsar_fleet.migration import steps

    run = _of(session)
    replicated = await steps.start_replication(run.sides, run.run, run.moves)
    return f"{replicated} of {counted(len(run.moves.moves), 'namespace')}"


async def wait_replicated(session: Session) -> str | NotYet:
    """Wait until the copy is near its end; the cut-over waits for the rest while producers are throttled."""
    from pulsar_fleet.procedures.copy_wait import CopyWait

    run = _of(session)
    copy = session.kept.setdefault("copy", CopyWait(run.sides, run.run, run.moves))
    return _waiting(*await copy.look())


async def verify_copy(session: Session) -> str:
    """Compare the copied messages, and store the proof that the cut-over requires.

    In this task; above the run's `spark_above_entries` by the Spark job. A job that was killed is submitted again by
    the next try, which continues the same proof.
    """
    run = _of(session)
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
    """Wait until the owners of applications that blue does not redirect have connected them to green.

    It sets cursors on green that no consumer uses.
    """
    from pulsar_fleet.migration.repoint.steps import repoint_progress

    run = _of(session)
    return _waiting(*await repoint_progress(run.sides, run.run, run.moves))


async def cut_over(session: Session) -> str:
    """Quiesce the producers, transfer the cursors, redirect the clients. The point of no return."""
    run = _of(session)
    await run.cut_over(run.moves, run.original, stopping=session.stopping)
    return listed([move.namespace for move in run.moves.moves])


async def verify_subscriptions(session: Session) -> str:
    """Compare the cursors of subscriptions without consumers on both clusters, right after the cut-over."""
    from pulsar_fleet.migration import steps

    run = _of(session)
    return _counts(await steps.verify_subscriptions(run.sides, run.run, run.moves))


async def wait_drained(session: Session) -> str | NotYet:
    """Wait until every namespace is drained on the old cluster, and remediate incidents."""
    from pulsar_fleet.migration.drain.steps import monitor_drain

    run = _of(session)
    status = await monitor_drain(run.sides, run.run, run.moves)
    return _waiting(status.is_done, status.line())


async def look_drained(session: Session) -> str | NotYet:
    """Whether a worker must go on with `wait_drained`: a remedy writes to the clusters and can block with a client."""
    from pulsar_fleet.migration.drain.steps import poll_drain

    run = _of(session)
    status = await poll_drain(run.sides, run.run, run.moves)
    return _waiting(status.needs_worker, status.line())


async def verify_messages(session: Session) -> str:
    """Compare the old cluster's messages with their copy on the new cluster; fail unless they are equal."""
    run = _of(session)
    return _counts(await run.verify_messages(run.moves, _job(session)))


async def clean_up(session: Session) -> str:
    """End replication, remove from the old cluster what continues on the new one, and list the leftovers."""
    run = _of(session)
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
    await require_own(_of(session).sides, session.run)
    restored = await _of(session).restore()
    if restored is None:
        return Skipped("The run changed no setting.")
    return "\n".join([counted(len(restored), "change"), *(f"* {line}" for line in restored)])


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
    """The report from the ledger, and whether the run can still be undone."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.migration.model import Phase, is_reversible
    from pulsar_fleet.report.migration import store_migration_report

    report = store_migration_report(run, failed, read_approval(run))
    text, recorded = report.markdown(), run.ledger.run(run.id)
    phases = {*_reached(run).phases.values()}
    is_migration = recorded is not None and recorded.procedure == MIGRATION.name
    given_up = sorted(name for name, phase in _reached(run).phases.items() if phase is Phase.ABORTED)
    undoable = is_migration and phases - {Phase.CHECKED} and all(map(is_reversible, phases))
    return Ending(
        report=report,
        text=text,
        document={"failed": list(failed), "report": text},
        has_page=True,
        undo=(command_line("abort", run.id),) if undoable else (),
        instead=(
            f"Start another failback of {listed(given_up)} only: this run gave that up, and has cut over the rest."
            if not is_migration and given_up and not all(map(is_reversible, phases))
            else ""
        ),
    )


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


def _of(session: Session) -> Migration | Failback:
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.procedure import PROCEDURES

    recorded = session.run.ledger.run(session.run.id)
    assert recorded is not None, f"the first task has recorded {session.run.id}"
    (blue,), (green,) = session.connections["blue"], session.connections["green"]
    parsing = session.dag_parsing() if session.dag_parsing else None
    return PROCEDURES[recorded.procedure].of(session.conf, Sides(blue, green), session.run, parsing)


def _migration(session: Session) -> Migration:
    from pulsar_fleet.migration.procedure import Migration

    run = _of(session)
    assert isinstance(run, Migration)
    return run


def _failback(session: Session) -> Failback:
    from pulsar_fleet.migration.procedure import Failback

    run = _of(session)
    assert isinstance(run, Failback)
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


def _reached(run: Run) -> Reached:
    from pulsar_fleet.migration.resumption import Reached

    return Reached.of(run)


def _is_prepared(run: Run) -> bool:
    from pulsar_fleet.migration.model import Phase

    return _reached(run).any(Phase.PREPARED)


def _is_frozen(run: Run) -> bool:
    from pulsar_fleet.migration.model import Phase

    return _reached(run).any(Phase.FROZEN)


def _all(name: str) -> Callable[[Run], bool]:
    """Whether every namespace of a run is in a phase or beyond it."""

    def reached(run: Run) -> bool:
        from pulsar_fleet.migration.model import Phase
        from pulsar_fleet.migration.waves.steps import find_moves

        moves, phase = find_moves(run), Phase(name)
        return moves is not None and _reached(run).all(moves, phase)

    return reached


_COPIED, _SWITCHED, _DRAINED, _VERIFIED = map(_all, ("replicated", "cut_over", "drained", "verified"))


def _advice(run: Run) -> str:
    again = "--resume waits again" if run.id.startswith("cli/") else "clear this task to wait again"
    return f"Check the namespaces; {again}."


def _wait(minutes: str, missed: str, look: Callable[..., object]) -> Wait:
    return Wait(
        minutes,
        _advice,
        poll_seconds=POLL_SECONDS,
        look=look,  # type: ignore[arg-type]
        again=True,
        missed=missed,
    )


def _proof(old: str, new: str) -> Application:
    return Application("verify_messages.py", clusters=(old, new))


def _prepare(old: str, new: str, *checks: Step) -> tuple[Step, ...]:
    """From the preparation of the new cluster to the proof of the copy."""
    copying = _wait("drain_timeout_minutes", "the namespaces are not replicated", wait_replicated)
    return (
        Step(f"prepare_{new}", prepare_new, reached=_is_frozen),
        *checks,
        Step(f"freeze_{old}", freeze_old, reached=_COPIED),
        Step("start_replication", start_replication, reached=_COPIED),
        Step("wait_replicated", wait_replicated, reads=True, wait=copying, reached=_COPIED),
        Step("verify_copy", verify_copy, spark=_proof(old, new), reached=_SWITCHED),
    )


def _switch(old: str, new: str) -> tuple[Step, ...]:
    """From the cut-over to the end of the old cluster's work."""
    draining = _wait("drain_timeout_minutes", "the namespaces are not drained", look_drained)
    finish = "A cut-over that has begun is finished first."
    return (
        Step("cut_over", cut_over, reached=_SWITCHED, finish=finish),
        Step("verify_subscriptions", verify_subscriptions, reads=True, reached=_VERIFIED),
        Step("wait_drained", wait_drained, beside=True, wait=draining, reached=_DRAINED),
        Step("verify_messages", verify_messages, spark=_proof(old, new), reached=_VERIFIED),
        Step(f"clean_up_{old}", clean_up, reached=_all("cleaned")),
    )


def _restoring(old: str) -> Step:
    return Step(
        f"restore_{old}",
        restore,
        reached=lambda run: False,  # noqa: ARG005
        finish="The original settings are restored first.",
    )


_ID = "admin URL or Airflow connection id."
_CLUSTERS = {"blue": f"The old cluster: {_ID}", "green": f"The new cluster: {_ID}"}

MIGRATION = Procedure(
    name="migrate_namespaces",
    summary="Move namespaces to another cluster while their clients keep running, one wave after the other.",
    command="migrate",
    clusters=_CLUSTERS,
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
        *_prepare("blue", "green", Step("recheck_gates", recheck_gates, reads=True, reached=_is_frozen)),
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
            wait=_wait("repoint_timeout_minutes", "applications are still on the old cluster", wait_repointed),
            reached=_SWITCHED,
        ),
        *_switch("blue", "green"),
    ),
    always=_restoring("blue"),
    follows=Following("plan_next_run", "start_next_wave", next_wave),
    lists_runs=True,
    end=end,
)

FAILBACK = Procedure(
    name="fail_back_namespaces",
    summary="Move migrated namespaces back to the cluster that they left.",
    command="fail-back",
    clusters=_CLUSTERS,
    own_settings=FAILBACK_SETTINGS,
    opening="read_request",
    checks="check_failback",
    approves="",
    validate=validate_failback,
    require=require_failback,
    check=check_failback,
    begun=_is_frozen,
    records=True,
    work=(
        Step("reopen_blue", reopen_blue, reached=_is_frozen),
        Step("check_gates", choose_strategies, reached=_is_frozen),
        *_prepare("green", "blue"),
        *_switch("green", "blue"),
    ),
    always=_restoring("green"),
    lists_runs=True,
    end=end,
)
