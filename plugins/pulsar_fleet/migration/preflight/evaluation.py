"""Evaluate every gate of a migration and decide how each namespace moves. Changes nothing on the clusters."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pulsar_fleet.clients.choice import require_led_to
from pulsar_fleet.clients.store import ConnectionDocuments, led_since, publications
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import utc
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import (
    BROKERS,
    FINDINGS,
    FINDINGS_BEFORE_CUT_OVER,
    LED,
    REDIRECT,
    WAIVERS,
    WAIVERS_BEFORE_CUT_OVER,
)
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.facts import NamespaceFacts
from pulsar_fleet.migration.model import Followed, Move, Moves, Phase, Strategy, plan_move
from pulsar_fleet.migration.preflight import gates
from pulsar_fleet.migration.preflight.broker_changes import BrokerVersions
from pulsar_fleet.migration.preflight.client_compatibility import followed_by
from pulsar_fleet.migration.preflight.gates.catalogue import never_waived
from pulsar_fleet.migration.preflight.survey import survey
from pulsar_fleet.migration.preflight.view import Expectations, OverridesWatch, Survey, View
from pulsar_fleet.migration.prepare.freeze import find_original_settings
from pulsar_fleet.migration.prepare.overrides import with_original_tenants
from pulsar_fleet.migration.subscriptions.checkpoint import store_gate_clients
from pulsar_fleet.migration.third_clusters import read_third_clusters
from pulsar_fleet.preflight.findings import Finding, refusal_text
from pulsar_fleet.preflight.waivers import Waiver, WaiverResult, apply_waivers

log = logging.getLogger(__name__)

_READING_SECONDS = 90.0
"""A client that follows a document reads it about once a minute at the least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedGates:
    """What the gates read and decided, without an unwaived blocker."""

    namespaces: tuple[NamespaceFacts, ...]
    moves: Moves
    findings: tuple[Finding, ...]


async def evaluate_gates(
    sides: Sides,
    run: Run,
    names: Sequence[NamespaceName],
    strategy: Strategy | None,
    *,
    expected: Expectations,
    waivers: Sequence[Waiver],
) -> PassedGates:
    """Evaluate every gate and choose each namespace's strategy; see `steps.check_gates`."""
    view = await _view(sides, run, names, expected)
    green, unflagged = view.green.name, view.blue.unflagged
    followed = _followed(view) if strategy is None and expected.group else None
    planned = (
        plan_move(facts, strategy, green, unflagged=unflagged, followed=followed) for facts in view.survey.namespaces
    )
    moves = tuple(_without_own_ends(run, move) for move in planned)
    view = replace(view, strategies=_strategies(moves))
    # On a failback `check_failback` has matched each waiver with its blocker; for a later wave the first run has.
    whole = not (expected.is_failback or expected.continues)
    result = apply_waivers(_findings(run, FINDINGS, view), waivers, whole_run=whole, never=never_waived(view.names))
    _refuse_blockers(run, WAIVERS, result, "Nothing has been changed.")
    led = {third: [str(name) for name in names if view.leads(third, name)] for third in view.thirds}
    run.artefacts.write_json(run.id, LED, {third: namespaces for third, namespaces in led.items() if namespaces})
    run.artefacts.write_json(run.id, REDIRECT, view.survey.redirect_probe.to_json())
    for move in moves:
        log.info("%s: %s, because %s", move.namespace, move.strategy, move.reason)
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.CHECKED, {"strategy": move.strategy.value})
    return PassedGates(
        namespaces=view.survey.namespaces,
        moves=Moves(view.blue.name, view.green.name, moves),
        findings=result.findings,
    )


async def recheck_gates(
    sides: Sides, run: Run, moves: Moves, *, expected: Expectations, waivers: Sequence[Waiver] = ()
) -> tuple[Finding, ...]:
    """Evaluate every gate again for what was planned, before the first step that is not reversible.

    Green must have everything by now, and no new blocker may have appeared. Call it after green was prepared and before
    replication starts, which makes the two clusters differ. Waivers may name other namespaces of the run.

    :raises PreconditionFailed: there are blockers, as for `steps.check_gates`.
    """
    view = await _view(sides, run, [move.namespace for move in moves.moves], replace(expected, prepares_green=False))
    view = replace(view, strategies=_strategies(moves.moves))
    result = apply_waivers(
        _findings(run, FINDINGS_BEFORE_CUT_OVER, view), waivers, whole_run=False, never=never_waived(view.names)
    )
    _refuse_blockers(run, WAIVERS_BEFORE_CUT_OVER, result, "No topic was terminated, and no client was redirected.")
    return result.findings


async def _view(sides: Sides, run: Run, names: Sequence[NamespaceName], expected: Expectations) -> View:
    thirds = await read_third_clusters(sides, names)
    async with sides.open() as (blue, green):
        properties = not expected.prepares_green
        surveyed = await survey(blue, green, names, run, redactor=open_redactor(), properties=properties)
    log.info("%s", surveyed.headline())
    surveyed = _with_documents(surveyed, expected)
    brokers = BrokerVersions.of(surveyed.blue.snapshot.brokers, surveyed.green.snapshot.brokers)
    run.artefacts.write_json(run.id, BROKERS, brokers.to_json())
    for facts in surveyed.namespaces:
        connected = {partition.topic: tuple(partition.clients) for partition in facts.partitions}
        store_gate_clients(run, str(facts.namespace), connected)
    # The task may have been cleared after blue was frozen.
    original = _with_original_settings(surveyed, run)
    connections = (sides.blue.argument, sides.green.argument)
    # Only Airflow has the DAG that restores what a dead run left.
    watch = overrides_watch(run.ledger) if expected.dag_parsing else None
    return View(
        survey=original,
        strategies={},
        expected=expected,
        connections=connections,
        watch=watch,
        thirds=thirds,
        third_connections=tuple(third.argument for third in sides.thirds),
    )


def _with_documents(surveyed: Survey, expected: Expectations) -> Survey:
    """To which of both clusters connection documents lead applications of the namespaces, as far as these are known.

    A failback goes to a cluster on which clients may be already, and completes no move.
    """

    published = publications()

    def led(facts: NamespaceFacts) -> NamespaceFacts:
        own = [one for one in published if str(facts.namespace) in one.namespaces]
        to_green = [one for one in own if one.cluster == surveyed.green.name and not expected.is_failback]
        # What a group uses is known from its last move; before its first from the run.
        to_blue = [one for one in published if one in own or one.group == expected.group]
        return replace(
            facts,
            led_to_green="; ".join(one.text() for one in to_green),
            led_since=led_since(surveyed.green.name, [str(facts.namespace)], to_green),
            led_to_blue=tuple(one.group for one in to_blue if one.cluster == surveyed.blue.name),
        )

    return replace(surveyed, namespaces=tuple(map(led, surveyed.namespaces)))


def _followed(view: View) -> Followed | None:
    """Whether every client that is connected to blue reads the document of the run's group, by host and version.

    None where a document has led applications of a namespace to green already: all strategies of a run have one way;
    and in a later wave, since a document leads all namespaces of its group at once.
    """
    if view.expected.continues or any(facts.led_to_green for facts in view.moving):
        return None
    group, documents = view.expected.group, ConnectionDocuments.open()
    require_led_to(documents, group, view.blue.name)
    now = datetime.now(UTC).timestamp()
    hosts = {reader.host for reader in documents.readers(group) if now - reader.at <= _READING_SECONDS}
    return followed_by([client for facts in view.moving for _, client in facts.clients], group, hosts)


def _without_own_ends(run: Run, move: Move) -> Move:
    """Without partitions that an earlier run may have terminated: nothing marks them where no flag has.

    What their owner has terminated is terminated on green too, and applications may use these there.
    """
    earlier = run.ledger.last_run_in(str(move.namespace), Phase.QUIESCED)
    return move if move.strategy.redirects or earlier in (None, run.id) else replace(move, ended=())


def overrides_watch(ledger: Ledger) -> OverridesWatch:
    """What the last run of `watch_overrides` has watched; of one that restores nothing no cluster."""
    if (last := ledger.last_run_of("watch_overrides")) is None:
        return OverridesWatch()
    minutes = (datetime.now(UTC) - utc(last.started_at)).total_seconds() / 60
    return OverridesWatch(minutes=minutes, clusters=tuple(last.conf["clusters"] if last.conf["restore"] else ()))


def _with_original_settings(surveyed: Survey, run: Run) -> Survey:
    original = find_original_settings(run)
    if original is None:
        return surveyed
    snapshot = with_original_tenants(surveyed.blue.snapshot, original)
    return replace(surveyed, blue=replace(surveyed.blue, snapshot=snapshot))


def _strategies(moves: Iterable[Move]) -> dict[NamespaceName, Strategy]:
    return {move.namespace: move.strategy for move in moves}


def _findings(run: Run, artefact: str, view: View) -> tuple[Finding, ...]:
    findings = gates.check(view)
    run.artefacts.write_json(run.id, artefact, [finding.to_json() for finding in findings])
    for finding in findings:
        log.warning("%s", finding.text())
    return findings


def _refuse_blockers(run: Run, artefact: str, result: WaiverResult, state: str) -> None:
    run.artefacts.write_json(run.id, artefact, result.to_json())
    if result.unwaived:
        raise PreconditionFailed(refusal_text(result.findings, state, result.unwaived))
