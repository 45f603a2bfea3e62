"""The move of clients that follow a connection document, and their return, as procedures; see docs/move_clients.md."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.migration.artefacts import MOVEMENT
from pulsar_fleet.procedures.exact_moves import (
    begin_again,
    is_exact,
    lead_leased,
    release_rates,
    require_holds,
    require_one_of,
    return_held,
)
from pulsar_fleet.procedures.moving_clients import (
    HOLDS,
    accepts,
    answers,
    asked,
    client_risks,
    decide,
    departure_of,
    find_movement,
    keep_clients,
    late_text,
    led_by_another,
    left_behind_text,
    note_arrival,
    note_left_behind,
    present_before,
    publish,
    published_before,
    published_text,
    reached,
    readers_text,
    require_carried,
    required_movement,
    sides_of,
    transaction_risks,
)
from pulsar_fleet.procedures.procedure import (
    Checked,
    Done,
    Ended,
    Ending,
    NotYet,
    Procedure,
    Session,
    Step,
    Unmet,
    Wait,
)
from pulsar_fleet.settings.client_moves import RETURN_SETTINGS, SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.names import NamespaceName
    from pulsar_fleet.cluster.statistics import ConnectedClient
    from pulsar_fleet.ledger.rows import RecordedRun
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.replication.failover.carry import CarriedPositions
    from pulsar_fleet.replication.failover.client_move import Movement, MovePlan

log = logging.getLogger(__name__)

_MIGRATION, _FAILOVER = "migrate_namespaces", "fail_over_applications"
_MOVE, _RETURN, _ARRIVED = "move_clients", "return_clients", "wait_arrived"
_SKIP_SECONDS = 60.0
"""How long positions may take where a person has said that they may be skipped."""


def validate(conf: JsonObject) -> None:
    """Refuse invalid names, and a document that no client could follow."""
    from pulsar_fleet.clients.document import require_group
    from pulsar_fleet.cluster.names import parse_namespaces

    require_group(conf["group"])
    require_one_of(conf)
    parse_namespaces(conf["namespaces"])
    asked(conf)


async def require(session: Session) -> None:
    """Refuse one cluster twice, and a group that is elsewhere."""
    from pulsar_fleet.clients.choice import require_led_to
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.cluster.connection import refuse_same_cluster

    origin, target = await _names(session)
    refuse_same_cluster(session.conf["origin"], session.conf["target"], (origin, target))
    if find_movement(session.run) is None:
        require_led_to(ConnectionDocuments.open(), session.conf["group"], origin)


async def check_move(session: Session) -> Checked:
    """Say what a move would do to each subscription and client; refuse what could not come back. Nothing is changed."""
    from pulsar_fleet.cluster.names import parse_namespaces
    from pulsar_fleet.replication.failover.client_move import plan_move

    namespaces = parse_namespaces(session.conf["namespaces"])
    movement = await decide(session.conf, sides_of(session)[1], await _names(session), namespaces)
    await _require_free(session, namespaces)
    plan = await plan_move(*sides_of(session), namespaces)
    session.run.artefacts.write_json(session.run.id, MOVEMENT, movement.to_json())
    before, after = movement.before.service_url, movement.document.service_url
    lines = [
        f"{movement.group}: {before} → {after}",
        f"{counted(len(plan.clients), 'client')} on {movement.origin} now",
        *plan.positions.lines(movement.target),
    ]
    if is_exact(session.conf):
        await require_holds(session.clusters["origin"])
        lines.append(HOLDS.format(origin=movement.origin))
    risks = _risks(session.conf, movement, plan)
    risks += await transaction_risks(session.conf, session.clusters["origin"], namespaces)
    return Checked(
        headline=f"Move the clients of {movement.group} from {movement.origin} to {movement.target}: "
        f"{plan.positions.headline()}.",
        changes=(f"{movement.group} → {movement.target}", *(str(name) for name in namespaces)),
        text="\n".join(f"* {line}" for line in [*lines, *(text for text, _ in risks)]),
        question=f"Move the clients of {movement.group} to {movement.target}?",
        refusal=next((text for text, refused in risks if refused), ""),
        warnings=len(risks),
        about=f"the move of {movement.group}",
    )


def _risks(conf: JsonObject, movement: Movement, plan: MovePlan) -> list[tuple[str, bool]]:
    """What stands in the way, and whether it forbids the move."""
    found: list[tuple[str, bool]] = []
    if why := plan.positions.problem():
        doctor = command_line("doctor", conf["origin"], conf["target"])
        see = f"See why: {doctor}; or" if plan.positions.one_way else "Correct it, or"
        found.append((f"{why}. {see} set {plan.positions.accepted_by}.", not accepts(conf, plan.positions)))
    return [*found, *client_risks(conf, movement.group, plan.clients, plan.elsewhere, plan.unread)]


async def carry_first(session: Session) -> str:
    """Create on the target what it lacks, and carry every position: the next time takes only what has changed."""
    from pulsar_fleet.replication.failover.client_move import carry

    movement = required_movement(session.run)
    await _require_free(session, movement.namespaces)
    carried, _ = await carry(*sides_of(session), movement.namespaces, limit_seconds=0.0)
    require_carried(session.conf, carried)
    return carried.headline()


async def wait_replicated(session: Session) -> str | NotYet:
    """Wait until the target has nearly every message."""
    from pulsar_fleet.links.lag import read_replication_progress
    from pulsar_fleet.replication.failover.client_move import topics_of

    movement, origin = required_movement(session.run), session.clusters["origin"]
    topics = await topics_of(origin, movement.namespaces)
    progress = await read_replication_progress(origin, movement.target, topics)
    line = f"{counted(progress.lag.entries, 'entry')} still to replicate to {movement.target}{progress.text()}"
    return line if progress.is_near else NotYet(line)


async def move_clients(session: Session) -> Done | str:
    """Carry the positions, and publish the document that leads the clients to the target."""
    from pulsar_fleet.clients.choice import require_led_to
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.replication.failover.client_move import carry

    movement, documents = required_movement(session.run), ConnectionDocuments.open()
    expected = documents.newest(movement.group)
    run, why = session.run, session.conf["why"]
    if is_exact(session.conf):
        await begin_again(session, movement)
    if made := published_before(run, why, documents, movement, expected):
        return published_text(made, documents)
    require_led_to(documents, movement.group, movement.origin)
    await release_rates(session.clusters["target"], movement.namespaces)
    if is_exact(session.conf):
        return await lead_leased(session, movement, documents, expected)
    await _require_free(session, movement.namespaces)
    carried, clients = await carry(*sides_of(session), movement.namespaces)
    require_carried(session.conf, carried)
    # Positions are carried for a while.
    await _require_free(session, movement.namespaces)
    keep_clients(run, clients)
    return Done(published_text(publish(run, why, documents, movement, expected), documents), carried)


async def return_clients(session: Session) -> Done | str:
    """Carry the positions back, and publish the document that leads the clients back.

    Where the cluster that they leave does not answer, they return without it: positions are those that replicated
    subscriptions have carried.
    """
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.replication.failover.client_move import require_open

    movement, documents = required_movement(session.run), ConnectionDocuments.open()
    expected = documents.newest(movement.group)
    run, why = session.run, session.conf["why"]
    # A cluster that is gone holds nobody.
    holds = is_exact(session.conf) and await answers(session)
    if is_exact(session.conf):
        await begin_again(session, movement, is_gone=not holds)
    if made := published_before(run, why, documents, movement, expected):
        _enter_phases(run, movement)
        return published_text(made, documents)
    _require_moved_by(documents, movement, session.conf["run"])
    # The move may have died while it held the producers there.
    await release_rates(session.clusters["target"], movement.namespaces, session.conf["run"])
    if holds and (done := await return_held(session, movement, documents, expected)):
        _enter_phases(run, movement)
        return done
    # What the other cluster has of leases it has as well. A migration that is taken back may have died with its own.
    await _require_free(session, movement.namespaces, run=_moved(session), also_unread=True)
    carried, clients, uncarried = await _carried_back(session, movement)
    # Positions are carried for a while. It answers, and no migration has taken or ended the namespaces meanwhile.
    await _require_free(session, movement.namespaces, run=_moved(session), also_unread=True)
    await require_open(session.clusters["target"], movement.namespaces)
    # Of a cluster that does not say who is connected those are awaited who came by the move.
    keep_clients(run, clients or departure_of(_moved(session)).clients)
    said = published_text(publish(run, why, documents, movement, expected), documents)
    _enter_phases(run, movement)
    return Done(said, carried) if carried else f"{said} Positions are those that replication had carried: {uncarried}."


async def _carried_back(
    session: Session, movement: Movement
) -> tuple[CarriedPositions | None, tuple[ConnectedClient, ...], str]:
    """The positions that were carried, and who is connected; without a cluster that is gone, none and why.

    What is on that cluster alone is noted then.
    """
    from pulsar_fleet.cluster.errors import FleetError
    from pulsar_fleet.replication.failover.client_move import carry

    skips = session.conf["skip_positions"]
    why = f"{movement.origin} does not answer"
    if not await answers(session):
        await note_left_behind(session, movement)
        return None, (), why
    try:
        async with asyncio.timeout(_SKIP_SECONDS if skips else None):
            limit = _SKIP_SECONDS if skips else math.inf
            carried, clients = await carry(
                *sides_of(session), movement.namespaces, limit_seconds=limit, present=present_before(session)
            )
        require_carried(session.conf, carried)
    except (FleetError, TimeoutError) as error:
        # It may have died meanwhile: then its errors say nothing of the positions.
        if await answers(session):
            if not skips:
                raise
        else:
            await note_left_behind(session, movement)
        log.warning("Positions are not carried: %s", error)
        return None, (), str(error).rstrip(".") or f"they took longer than {_SKIP_SECONDS:.0f} s"
    return carried, clients, ""


async def _require_free(
    session: Session, namespaces: tuple[NamespaceName, ...], *, run: Run | None = None, also_unread: bool = False
) -> None:
    """Refuse namespaces that a migration has now, and a record of that which cannot be read.

    :param run: that may have them; by default the session's own.
    :param also_unread: go on without a record that cannot be read.
    """
    from pulsar_fleet.migration.prepare.lease import require_free

    if (unread := await require_free(reached(session), run or session.run, namespaces)) and not also_unread:
        raise unread


async def wait_arrived(session: Session) -> str | NotYet | Unmet:
    """Wait until no client is connected to the cluster that they leave; name those that stay.

    Of a subscription whose consumers have not come yet the position is carried again.
    """
    from pulsar_fleet.cluster.errors import FleetError, Unavailable
    from pulsar_fleet.replication.failover.client_move import look_arrived, look_arrived_alone

    if ended := led_by_another(session.run):
        return ended
    movement, departure = required_movement(session.run), departure_of(session.run)
    try:
        arrival = await look_arrived(*sides_of(session), movement.namespaces, departure, present_before(session))
    except FleetError as error:
        if not session.conf["skip_positions"] and await answers(session):
            # One topic that cannot be read is not everybody gone.
            if isinstance(error, Unavailable):
                return NotYet(str(error))
            raise
        log.info("%s", error)
        arrival = await look_arrived_alone(session.clusters["target"], movement, departure)
    return note_arrival(session.run, movement, departure, arrival)


def _first_move(run_id: str) -> tuple[RecordedRun | None, bool]:
    from pulsar_fleet.clients.store import first_move
    from pulsar_fleet.ledger.ledger import Ledger

    return first_move(Ledger.open(), run_id)


def _enter_phases(run: Run, movement: Movement) -> None:
    """Say of the namespaces of a migration that their clients have returned, or were led to the new cluster again."""
    from pulsar_fleet.clients.store import first_move
    from pulsar_fleet.ledger.ledger import MIGRATIONS
    from pulsar_fleet.migration.model import Phase

    first, is_there = first_move(run.ledger, run.id)
    if first is None or first.procedure not in MIGRATIONS:
        return
    phase = Phase.MOVED if is_there else Phase.REPLICATED
    for namespace in movement.namespaces:
        if not run.ledger.entered(first.run_id, str(namespace), Phase.MOVED):
            # It died when it had published.
            run.ledger.enter_phase(first.run_id, str(namespace), Phase.MOVED, {"by": run.id})
        run.ledger.enter_phase(first.run_id, str(namespace), phase, {"by": run.id})


def clusters_of_return(conf: JsonObject) -> JsonObject:
    """The clusters of the move that is taken back, exchanged; of a return that is taken back as they were."""
    first, is_there = _first_move(conf["run"])
    move = first.conf if first else {}
    origin, target = move.get("origin") or move.get("blue") or "", move.get("target") or move.get("green") or ""
    return {"origin": target, "target": origin} if is_there else {"origin": origin, "target": target}


def is_exchanged(conf: JsonObject) -> bool:
    """Whether the clients leave the cluster to which the move has led them, and not the one where it began."""
    return _first_move(conf["run"])[1]


def validate_return(conf: JsonObject) -> None:
    """Refuse a run that the ledger lacks, of another procedure, or that has moved nobody."""
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
    from pulsar_fleet.ledger.run import Run

    require_one_of(conf)
    run = Run.open(conf["run"])
    recorded = run.ledger.require_run(run.id)
    if recorded.procedure not in (MOVE.name, RETURN.name, _MIGRATION, _FAILOVER):
        raise InvalidRequest(
            f"{run.id} is a run of {recorded.procedure}: name one of {MOVE.name}, {RETURN.name}, {_MIGRATION} or "
            f"{_FAILOVER}."
        )
    movement = find_movement(run)
    if movement is None or not ConnectionDocuments.open().has_moved(movement.group, run.id):
        raise PreconditionFailed(f"{run.id} has moved no client: there is nothing to take back.")


async def require_return(session: Session) -> None:
    """Refuse other clusters than those of the move, and a group that is elsewhere by now."""
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.cluster.errors import PreconditionFailed

    movement = required_movement(_moved(session)).back()
    name = await session.clusters["target"].cluster_name()
    if name != movement.target:
        raise PreconditionFailed(
            f"{session.connections['target'][0].name} leads to the cluster {name!r}, and {session.conf['run']} has "
            f"moved clients away from {movement.target!r}. Correct the connection. No client was moved."
        )
    if find_movement(session.run) is None:
        _require_moved_by(ConnectionDocuments.open(), movement, session.conf["run"])
        session.run.artefacts.write_json(session.run.id, MOVEMENT, movement.to_json())


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:
    """Where the clients are, who has not come, and the positions that were carried."""
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.preflight.findings import Planned
    from pulsar_fleet.procedures.runner import described, has_ended, is_planned, result_of
    from pulsar_fleet.replication.failover.carry import CarriedPositions
    from pulsar_fleet.report.planned_run import planned_report

    movement = find_movement(run)
    planned: Planned[Any] = described(run) if is_planned(run) else Planned(plan=None, findings=(), headline="", text="")
    step = next((name for name in (_MOVE, _RETURN) if has_ended(run, name)), "")
    carried = result_of(run, step, CarriedPositions) if step else None
    steps = [str(run.stored(f"steps/{name}.json")) for name in (step, _ARRIVED) if name and has_ended(run, name)]
    positions = [f"* {line}" for line in carried.lines(movement.target)] if carried and movement else []
    documents = ConnectionDocuments.open()
    moved = movement is not None and documents.has_moved(movement.group, run.id)
    published = documents.current(movement.group) if movement and moved else None
    elsewhere = published is not None and published.run != run.id
    back = command_line(RETURN.word, run.id) if moved and not elsewhere else ""
    said = [*([f"Lead them back: `{back}`"] if back else ()), *steps]
    if moved and (readers := readers_text(departure_of(run).clients)):
        said.append(f"{readers}.")
    if movement and (later := left_behind_text(run, movement, conf.get("run", ""))):
        said.append(later)
    if elsewhere and published:
        said.append(f"Since then {published.text()}.")
    if back and movement and "group" in conf:
        names = [part for name in movement.namespaces for part in ("--namespaces", str(name))]
        ends = command_line("migrate", conf["origin"], conf["target"], *names)
        said.append(f"They can return until a migration of these namespaces completes the move, such as: `{ends}`")
    verb = "are on" if has_ended(run, _ARRIVED) and not failed else "are led to"
    where = f"The clients of {movement.group} {verb} {movement.target}." if movement and moved else ""
    if elsewhere:
        where = "The clients are led elsewhere by now: this run waited for nobody any more."
    headline = where or planned.headline or "No client was moved."
    report = planned_report(
        headline,
        ["\n".join(f"* {line}" for line in said), "\n".join(["Positions:", "", *positions]) if positions else ""],
        planned,
        approval=read_approval(run),
        failed=failed,
    )
    document: JsonObject = {
        "movement": movement.to_json() if movement else None,
        "positions": carried.to_json() if carried else None,
        "report": report.markdown(),
    }
    return Ending(
        report=report,
        text=report.markdown(),
        document=document,
        ended=Ended.DIFFERENT if elsewhere else Ended.DONE,
        commands=(back,) if back and not failed else (),
        undo=(back,) if back else (),
    )


def _moved(session: Session) -> Run:
    """The run that is taken back."""
    from pulsar_fleet.ledger.run import Run

    return Run(session.conf["run"], session.run.ledger, session.run.artefacts)


async def _names(session: Session) -> tuple[str, str]:
    return await session.clusters["origin"].cluster_name(), await session.clusters["target"].cluster_name()


def _require_moved_by(documents: ConnectionDocuments, movement: Movement, run_id: str) -> None:
    """Refuse to take back a run behind which the clients were moved again."""
    from pulsar_fleet.clients.choice import require_led_to
    from pulsar_fleet.cluster.errors import PreconditionFailed

    published = require_led_to(documents, movement.group, movement.origin)
    if published.run != run_id:
        name = f"Take that run back: {command_line(RETURN.word, published.run)}. " if published.run else ""
        raise PreconditionFailed(f"{run_id} did not move them last: {published.text()}. {name}No client was moved.")


_COMING = Wait("arrival_minutes", late_text, poll_seconds=5.0, again=True, missed="clients have not come")
_ARRIVING = Step(_ARRIVED, wait_arrived, wait=_COMING)
_SIDES = {"origin": "The cluster that the clients leave.", "target": "The cluster that they move to."}

MOVE = Procedure(
    name=_MOVE,
    summary="Move live clients that follow a connection document to another cluster; they can be moved back.",
    clusters=_SIDES,
    own_settings=SETTINGS,
    opening="read_request",
    checks="check_move",
    approves="approve_move",
    validate=validate,
    require=require,
    check=check_move,
    work=(
        Step("carry_positions", carry_first),
        Step(
            "wait_replicated",
            wait_replicated,
            reads=True,
            wait=Wait("arrival_minutes", again=True, missed="the messages are not replicated"),
        ),
        Step(_MOVE, move_clients, finish="The document is published first."),
        _ARRIVING,
    ),
    end=end,
)
RETURN = Procedure(
    name=_RETURN,
    summary="Move the clients of a run of move_clients back at once.",
    clusters=_SIDES,
    own_settings={
        **{
            side: replace(SETTINGS[side], default=None, is_example=False, schema={"type": ["null", "string"]})
            for side in _SIDES
        },
        **RETURN_SETTINGS,
    },
    clusters_of=clusters_of_return,
    may_be_absent=frozenset({"origin"}),
    exchanged=is_exchanged,
    opening="read_request",
    urgent=True,
    validate=validate_return,
    require=require_return,
    work=(Step(_RETURN, return_clients, finish="The document is published first."), _ARRIVING),
    end=end,
)
