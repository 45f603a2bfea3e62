"""The report and the evidence of a migration, from the records of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import command_line, counted, duration, listed
from pulsar_fleet.ledger.rows import RecordedPhase, RecordedVerdict
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import (
    BASELINE,
    CURSOR_TRANSFERS,
    CUT_OVER,
    DRAIN_STATE,
    FAILBACK_CHECKS,
    FINDINGS,
    FINDINGS_BEFORE_CUT_OVER,
    ORIGINAL_SETTINGS,
    REDIRECT,
    WAIVERS,
    WAVE_MOVES,
    WAVES,
)
from pulsar_fleet.migration.model import Moves, Phase, is_reversible, reversal_text
from pulsar_fleet.migration.procedure import Failback
from pulsar_fleet.migration.waves.steps import find_moves
from pulsar_fleet.preflight.findings import Finding, count_line, findings_markdown
from pulsar_fleet.report.document import Outcome, Report, sections, texts
from pulsar_fleet.report.failure import failure_details, failure_line, failure_to_do
from pulsar_fleet.report.migration_timeline import migration_picture, no_picture_text
from pulsar_fleet.report.page import approval_text, store_report


def migration_report(run: Run, failed: Mapping[str, str], approval: JsonObject | None = None) -> Report:
    """The outcome, what to do, the phase of each namespace; what happened and the records as details.

    :param failed: task that failed by itself → its reason, empty if that is only in its log.
    :param approval: answer to the approval of the wave: `about`, `answer`, `by`, `at`; None without an approval.
    """
    moves = find_moves(run)
    phases = run.ledger.phases(run.id)
    verdicts = run.ledger.verdicts(run.id)
    findings = [Finding.from_json(document) for document in run.stored(FINDINGS) or []]
    proofs = (f"* **{verdict.verdict.upper()}** `{verdict.scope}`: {verdict.summary}" for verdict in verdicts)
    headline, state = _headline(moves, phases, verdicts, failed)
    return Report(
        outcome=_outcome(phases, failed),
        headline=headline,
        to_do=(*(failure_to_do(failed) if failed else ()), *_next_steps(run, moves, phases)),
        body=texts(state, approval_text(approval), _newest_phases(phases), _reversible(phases)),
        details=sections(
            [
                ("Phases", _phase_table(phases)),
                ("Cut-over", _switches(moves, run.stored(CUT_OVER) or {}) if moves else ""),
                ("Drain and incidents", _drain(run.stored(DRAIN_STATE) or {})),
                ("Proofs", "\n".join(proofs)),
                (f"Findings: {count_line(findings)}", findings_markdown(findings)),
                ("Picture", no_picture_text()),
                ("Records", f"Run `{run.id}` in the ledger, documents in `{run.artefacts.folder(run.id)}`."),
            ]
        ),
    )


def store_migration_report(run: Run, failed: Mapping[str, str], approval: JsonObject | None = None) -> Report:
    """Write report, picture and evidence into the run's artefacts, return the report; a second call replaces them."""
    report = migration_report(run, failed, approval)
    state = run.stored(DRAIN_STATE) or {}
    samples = {name: drain["samples"] for name, drain in (state.get("namespaces") or {}).items()}
    phases = run.ledger.phases(run.id)
    picture = migration_picture(phases, samples)
    if picture:
        run.artefacts.write(run.id, "migration.svg", picture)
    store_report(run, report, picture=picture)
    run.artefacts.write_json(
        run.id,
        "evidence.json",
        {
            "schema_version": 1,
            "run": run.id,
            "failed": dict(failed),
            "approval": approval,
            "phases": [[entry.namespace, entry.phase, entry.at.isoformat(), entry.detail] for entry in phases],
            "verdicts": [[row.scope, row.verdict, row.messages, row.summary] for row in run.ledger.verdicts(run.id)],
            **{name: run.stored(document) for name, document in _EVIDENCE.items()},
        },
    )
    return report


_EVIDENCE = {
    "moves": WAVE_MOVES,
    "waves": WAVES,
    "findings": FINDINGS,
    "waivers": WAIVERS,
    "findings_before_cut_over": FINDINGS_BEFORE_CUT_OVER,
    "redirect": REDIRECT,
    "original_settings": ORIGINAL_SETTINGS,
    "cut_over": CUT_OVER,
    "drain": DRAIN_STATE,
    "failback_checks": FAILBACK_CHECKS,
    "cursor_transfers": CURSOR_TRANSFERS,
    "baseline": BASELINE,
}
"""Part of the evidence → artefact of the run."""


def _headline(
    moves: Moves | None,
    phases: Sequence[RecordedPhase],
    verdicts: Sequence[RecordedVerdict],
    failed: Mapping[str, str],
) -> tuple[str, str]:
    """The outcome in one line, and what that means."""
    if failed:
        reached = {entry.namespace: Phase(entry.phase) for entry in phases}
        migrated = [name for name, phase in reached.items() if not is_reversible(phase)]
        cut = "led to the new cluster" if moves and moves.move_clients else "cut over"
        state = f"Already {cut}: {listed(migrated)}." if migrated else f"No namespace was {cut}: nothing lost."
        if ended := [name for name, phase in reached.items() if phase is Phase.RETURN_ENDED]:
            state = f"Applications of {listed(ended)} cannot return any more, and who stayed is not redirected yet."
        if moves and moves.move_clients and not migrated and any(entry.phase == Phase.MOVED for entry in phases):
            state = f"They were led to {moves.green} and back: both clusters replicate until this run is undone."
        return failure_line(failed), f"{state}{failure_details(failed)}"
    if moves and all(entry.phase == Phase.MOVED for entry in _newest(phases).values()):
        # The namespaces of the wave, of which each has one.
        return (
            f"Moved the clients of {counted(len(moves.moves), 'namespace')} from {moves.blue} to {moves.green}; they "
            "can return",
            "Both clusters replicate to each other. The copy was compared before the applications moved.",
        )
    if moves and moves.move_clients and any(entry.phase == Phase.MOVED for entry in phases):
        return (
            f"The clients of {counted(len(moves.moves), 'namespace')} were led to {moves.green}, and back",
            f"{moves.blue} has them again. Both clusters replicate to each other until this run is undone.",
        )
    finished = {entry.namespace for entry in phases if entry.phase in (Phase.CLEANED, Phase.FINISHED)}
    if moves is None or not finished:
        return "Every gate holds", "Nothing has been changed."
    topics = sum(len(move.topics) for move in moves.moves)
    came = [move for move in moves.moves if not move.strategy.is_moved_before]
    arrived = (
        f"{counted(sum(move.producers for move in came), 'producer')} and "
        f"{counted(sum(move.consumers for move in came), 'consumer')} arrived. "
    )
    return (
        f"Migrated {counted(len(finished), 'namespace')}, {counted(topics, 'topic')}, from {moves.blue} to "
        f"{moves.green}",
        f"{arrived if came else ''}{_verified(moves, verdicts)}",
    )


def _verified(moves: Moves, verdicts: Sequence[RecordedVerdict]) -> str:
    """What was shown for each strategy: copied messages were compared, a redirect copies none."""
    replicated = {str(move.namespace) for move in moves.moves if move.strategy.compares}
    redirected = sum(not move.strategy.copies for move in moves.moves)
    sentences = []
    if moved := sum(move.strategy.is_moved_before for move in moves.moves):
        sentences.append(
            f"{moves.green} has confirmed every message of {counted(moved, 'namespace')} whose applications were there "
            "before; these were not compared."
        )
    if replicated:
        # Verdicts of copies and of subscriptions have their own scopes, and count the same messages.
        messages = sum(verdict.messages for verdict in verdicts if verdict.scope in replicated)
        sentences.append(f"{counted(messages, 'message')} compared, equal on both sides.")
    if redirected:
        subject = counted(redirected, "namespace") if replicated else "Every backlog"
        sentences.append(
            f"{subject} drained on {moves.blue}: no unread entry is left there. A redirect copies no message, so none "
            "was compared."
        )
    return " ".join(sentences)


def _outcome(phases: Sequence[RecordedPhase], failed: Mapping[str, str]) -> Outcome:
    if failed:
        return Outcome.FAILED
    left = any(entry.phase in (Phase.CLEANED, Phase.INCOMPLETE) for entry in _newest(phases).values())
    return Outcome.ATTENTION if left else Outcome.SUCCEEDED


def _newest(phases: Sequence[RecordedPhase]) -> dict[str, RecordedPhase]:
    return {entry.namespace: entry for entry in phases}


def _newest_phases(phases: Sequence[RecordedPhase]) -> str:
    """A row for each namespace."""
    began: dict[str, datetime] = {}
    for entry in phases:
        began.setdefault(entry.namespace, entry.at)
    rows = [
        f"| `{name}` | {entry.phase} | {entry.at:%H:%M:%S} | {duration((entry.at - began[name]).total_seconds())} |"
        for name, entry in _newest(phases).items()
    ]
    return (
        "\n".join(["| namespace | phase | since (UTC) | after |", "| --- | --- | --- | --- |", *rows]) if rows else ""
    )


def _phase_table(phases: Sequence[RecordedPhase]) -> str:
    if not phases:
        return ""
    rows = []
    begun: dict[str, datetime] = {}
    for entry in phases:
        begun.setdefault(entry.namespace, entry.at)
        seconds = (entry.at - begun[entry.namespace]).total_seconds()
        rows.append(f"| `{entry.namespace}` | {entry.phase} | {entry.at:%H:%M:%S} | {seconds:.1f} s |")
    return "\n".join(["| namespace | phase | at (UTC) | since the first |", "| --- | --- | --- | --- |", *rows])


def _switches(moves: Moves, switched: JsonObject) -> str:
    lines: list[str] = []
    redirected = {str(move.namespace) for move in moves.moves if move.strategy.redirects_rest}
    for name, result in switched.items():
        if result.get("repointed"):
            lines += _repointed(name, moves.blue, result)
            continue
        if name in redirected:
            lines += _redirected_rest(name, moves, result)
            continue
        lines.append(
            f"`{name}`: producers were throttled for {result['throttled_seconds']:.1f} s. {_late(moves.green, result)}"
        )
        lines += [
            f"* `{cursor['subscription']}` on `{cursor['topic']}` had no consumer: it continues on {moves.green} with "
            f"{counted(cursor['unread'], 'unread entry')}; of the individually acknowledged messages "
            f"{cursor['carried']:,} were acknowledged on {moves.green}, {cursor['redelivered']:,} are redelivered."
            for cursor in result["cursors"]
        ]
        window = result["duplicates"]
        lines.append(
            f"* Duplicates to expect: {counted(sum(window.values()), 'message')}, written to {moves.blue} after the "
            f"cursors were set on {moves.green}; each subscription with consumers receives them from both clusters."
            if window
            else "* Duplicates to expect from the transfer of the cursors: none."
        )
        lines.append(
            f"* A message that was in flight when its topic was terminated is stored on {moves.blue} and sent again to "
            f"{moves.green} by its client: at most one batch per producer, delivered twice to every subscription with "
            "consumers."
        )
    return "\n".join(lines)


def _repointed(name: str, blue: str, result: JsonObject) -> Iterator[str]:
    """What each subscription got from both clusters; nothing was redirected."""
    yield (
        f"`{name}`: every application left {blue}, which refuses producers of these topics now. Producers were "
        f"throttled for {result['throttled_seconds']:.1f} s meanwhile, and none was connected."
    )
    for cursor in result["cursors"]:
        twice = cursor["redelivered"]
        yield (
            f"* `{cursor['subscription']}` on `{cursor['topic']}`: "
            + (f"{counted(twice, 'entry')} delivered on both clusters." if twice else "nothing delivered twice.")
        )


def _redirected_rest(name: str, moves: Moves, result: JsonObject) -> Iterator[str]:
    """What subscriptions continue with that nobody had read on green, where other applications had moved before."""
    yield (
        f"`{name}`: {moves.blue} redirects to {moves.green} who was there still, and {moves.green} replicates to it "
        f"no more. Producers on {moves.blue} were throttled for {result['throttled_seconds']:.1f} s."
    )
    for cursor in result["cursors"]:
        yield (
            f"* `{cursor['subscription']}` on `{cursor['topic']}`, which nobody had read on {moves.green}, continues "
            f"there with {counted(cursor['unread'], 'unread entry')}. Up to "
            f"{counted(cursor['redelivered'], 'entry')} may be delivered on both clusters."
        )


def _late(green: str, result: JsonObject) -> str:
    late = result.get("late") or {}
    if not late:
        return "No entry was counted between the moment when nothing was in flight and the termination."
    return (
        f"{counted(sum(late.values()), 'entry')} of producers that had been idle entered just before the "
        f"termination, on {listed(sorted(late))}: check that the producers of these topics are on {green}."
    )


def _drain(state: JsonObject) -> str:
    """The drain: forecast and actual time, incidents with their remediation, the cost of monitoring."""
    if not state:
        return ""
    lines = []
    for name, namespace in state["namespaces"].items():
        if (error := namespace["forecast_error"]) is not None:
            lines.append(
                f"`{name}`: the first forecast of the drain's end was {duration(abs(error['first']))} too "
                f"{'early' if error['first'] > 0 else 'late'}, the one at half-time {duration(abs(error['middle']))}."
            )
        lines += [
            f"* **{incident['kind']}** {incident['sentence']} *{_remediated(incident)}*"
            for incident in namespace["incidents"].values()
        ]
    lines.append(f"Monitoring took {counted(state['polls'], 'poll')} and {counted(state['calls'], 'admin call')}.")
    return "\n".join(lines)


def _remediated(incident: JsonObject) -> str:
    seconds = f"lasted {duration(incident['last'] - incident['first'])}"
    ended = "over" if incident["outcome"] == "over" else "**not over**"
    return f"{incident.get('remediated') or 'Nothing was changed for it.'} {ended.capitalize()}, {seconds}."


def _reversible(phases: Sequence[RecordedPhase]) -> str:
    """What can still be undone for each namespace, and its leftovers on the old cluster."""
    newest = _newest(phases)
    lines = [f"* `{name}`: {reversal_text(Phase(entry.phase))}." for name, entry in newest.items()]
    lines += [
        f"* `{entry.namespace}`: {entry.detail['text']}"
        for entry in newest.values()
        if isinstance(entry.detail, dict) and "text" in entry.detail
    ]
    return "\n".join(["**What can still be undone**", "", *lines]) if lines else ""


def _next_steps(run: Run, moves: Moves | None, phases: Sequence[RecordedPhase]) -> tuple[str, ...]:
    recorded = run.ledger.run(run.id)
    conf = recorded.conf if recorded else {}
    if moves and moves.move_clients and Phase.MOVED in (newest.phase for newest in _newest(phases).values()):
        named = (word for move in moves.moves for word in ("--namespaces", move.namespace))
        complete = command_line("migrate", conf.get("blue") or moves.blue, conf.get("green") or moves.green, *named)
        return (
            f"watch the applications on {moves.green}. Lead them back, as long as the move is not completed: "
            f"`{command_line('return-clients', run.id)}`",
            f"when nobody is to return any more, complete the move: `{complete}`",
        )
    if moves is None or not any(entry.phase == Phase.CUT_OVER for entry in phases):
        return ()
    # In a failback the cluster that is left is the setting `green`.
    left = conf.get("green" if recorded and recorded.procedure == Failback.NAME else "blue") or moves.blue
    namespaces = (word for move in moves.moves for word in ("--namespaces", move.namespace))
    restore = command_line("restore", left, "--delete-inactive-topics", *namespaces)
    redirecting = [move for move in moves.moves if move.strategy.redirects]
    first = (
        f"configure the applications with {moves.green}; {moves.blue} redirects clients until then: leave it running."
        if redirecting
        else f"{moves.blue} refuses producers of these topics, and redirects no client: change the default address of "
        f"every application to {moves.green} before it is restarted."
    )
    return (
        first,
        f"restart consumers that subscribe by pattern against {moves.green}: until then they do not find topics that "
        "are created from now on.",
        f"then restore the policies of {moves.blue}, which deletes no inactive topic of these namespaces: `{restore}`.",
    )
