"""The move of applications to another data centre as a procedure; see docs/fail_over_applications.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import command_line, counted
from pulsar_fleet.migration.artefacts import MOVEMENT
from pulsar_fleet.procedures.moving_clients import (
    answers,
    asked,
    decide,
    departure_of,
    find_movement,
    keep_clients,
    led_by_another,
    left_behind_text,
    note_left_behind,
    origin_name,
    publish,
    published_before,
    published_text,
    reached,
    required_movement,
    sides_of,
)
from pulsar_fleet.procedures.procedure import Checked, Ending, NotYet, Procedure, Session, Step, Unmet, Wait
from pulsar_fleet.settings.client_moves import FOLLOWED
from pulsar_fleet.settings.failover import SETTINGS

if TYPE_CHECKING:
    from pulsar_fleet.clients.document import ConnectionDocument
    from pulsar_fleet.clients.store import Publication
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.selection import Selection
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.replication.failover.client_move import Movement
    from pulsar_fleet.replication.failover.forecast import Forecast


def validate(conf: JsonObject) -> None:
    """Refuse an invalid selection, and a document that no client could follow."""
    from pulsar_fleet.clients.document import require_group
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.cluster.names import parse_namespaces
    from pulsar_fleet.cluster.selection import Selection

    Selection.parse(conf["selection"])
    if not conf.get("group"):
        if unused := [name for name in FOLLOWED if conf.get(name)]:
            raise InvalidRequest(f"{unused[0]!r} belongs to the document of a group: set 'group', or leave it out.")
        return
    require_group(conf["group"])
    if not conf["selection"]:
        raise InvalidRequest("With 'group' name in 'selection' all namespaces that these applications use.")
    parse_namespaces(conf["selection"])
    asked(conf)


async def require(session: Session) -> None:
    """Refuse one cluster twice, and a group that is elsewhere."""
    from pulsar_fleet.cluster.connection import refuse_same_cluster

    # One question to a cluster that may be gone: each takes seconds, in which applications wait.
    name, target = await origin_name(session), await session.clusters["target"].cluster_name()
    refuse_same_cluster(session.conf["origin"], session.conf["target"], (name or "", target))
    if session.conf.get("group") and find_movement(session.run) is None:
        _left(session, name, target)


async def forecast(session: Session) -> Checked:
    """Forecast what is redelivered and lost if the applications move; nothing is changed."""
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.report import forecast_body, headline, owner_steps

    announced = await steps.announce_failover(*sides_of(session), _selection(session), session.run)
    rows, redelivered = announced.rows(), counted(announced.redelivered, "message")
    todo, refusal = owner_steps(announced), ""
    if session.conf.get("group"):
        todo, refusal = await _check_clients(session, announced)
    return Checked(
        headline=f"{headline(announced)}: {redelivered} redelivered, {announced.lost:,} lost.",
        changes=tuple(f"{row.topic} {row.subscription}" for row in rows),
        text=f"```\n{forecast_body(announced)}\n```\n\n{todo}\n",
        refusal=refusal,
        warnings=sum(row.lost != 0 for row in rows),
    )


async def _require_gone(session: Session) -> None:
    """Refuse to lead clients away from a cluster that is back, or that may be alive."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    movement = required_movement(session.run)
    if await answers(session):
        raise PreconditionFailed(
            f"{movement.origin} answers again. No client was moved: it may be enough to let them stay. Else move them "
            "with their positions (move_clients)."
        )
    if why := await _why_alive(session.conf, movement.origin, movement.before):
        raise PreconditionFailed(why)


async def _why_alive(conf: JsonObject, origin: str, before: ConnectionDocument) -> str:
    """Why a cluster whose admin API does not answer may be alive, with what to do; empty where nothing says so."""
    from pulsar_fleet.cluster.admin.probes import host_urls, unreachable

    hosts = host_urls(before.service_url)
    if conf["accept_lost"] or len(await unreachable(hosts)) == len(hosts):
        return ""
    return (
        f"The admin API of {conf['origin']} does not answer, and {before.service_url} does, where the clients are: "
        f"{origin} may be alive. If it is, name the address of its admin API, and move them with their positions "
        "(move_clients). Else set accept_lost. No client was moved."
    )


async def _check_clients(session: Session, announced: Forecast) -> tuple[str, str]:
    """Where the document would lead the clients, and why it may not."""
    from pulsar_fleet.cluster.names import parse_namespaces

    conf, target = session.conf, announced.target
    before = _left(session, None if announced.origin_unreachable else announced.origin, target)
    words = [word for name in conf["selection"] for word in ("--namespaces", name)]
    move = command_line("move-clients", conf["origin"], conf["target"], "--group", conf["group"], *words)
    if not announced.origin_unreachable:
        return "", f"{announced.origin} answers: move its clients with their positions: {move}. No client was moved."
    namespaces = parse_namespaces(conf["selection"])
    movement = await decide(conf, sides_of(session)[1], (before.cluster, target), namespaces)
    session.run.artefacts.write_json(session.run.id, MOVEMENT, movement.to_json())
    text = (
        f"The clients of {movement.group} are led from {before.cluster} to {target}: {movement.before.service_url} → "
        f"{movement.document.service_url}. Their positions are those that replicated subscriptions have carried. One "
        f"that {target} lacks is made by its client, by default behind everything: what it had not read it gets when "
        f"it returns. What {before.cluster} had not replicated is missing on {target} until it is back, and comes "
        "then, behind what is newer."
    )
    return text, await _why_alive(conf, before.cluster, before.document)


async def prepare_target(session: Session) -> str:
    """Create the replicated subscriptions that the target lacks, and forecast again; fail while consumers are left.

    With a group nothing is created: what the cluster that is gone has is not known.
    """
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.report import forecast_body, not_ready, prepared_text

    if session.conf.get("group"):
        return "The subscriptions stay as the target has them."
    prepared, ready = await steps.prepare_target(*sides_of(session), _selection(session), session.run)
    if reason := not_ready(ready, accept_lost=session.conf["accept_lost"]):
        raise PreconditionFailed(reason)
    return f"{prepared_text(prepared)}\n{forecast_body(ready)}"


async def lead_clients(session: Session) -> str:
    """Publish the document that leads the clients of the group to the target, without the cluster that is gone."""
    from pulsar_fleet.clients.choice import require_led_to
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.migration.prepare.lease import require_free
    from pulsar_fleet.procedures.exact_moves import release_rates
    from pulsar_fleet.replication.failover.client_move import connected, require_open

    if not session.conf.get("group"):
        # Not skipped: the steps behind it would be too.
        return "No group was named: owners start their applications themselves."
    movement, documents, run = required_movement(session.run), ConnectionDocuments.open(), session.run
    target = session.clusters["target"]
    expected = documents.newest(movement.group)
    if made := published_before(run, None, documents, movement, expected):
        return published_text(made, documents)
    require_led_to(documents, movement.group, movement.origin)
    await _require_gone(session)
    # The target's record alone is read: what a run has of both clusters is on both, and applications wait.
    await require_free(replace(reached(session), blue=sides_of(session)[1]), run, movement.namespaces)
    await require_open(target, movement.namespaces)
    await release_rates(target, movement.namespaces)
    topics = await note_left_behind(session, movement)
    # Who is on the target already is nobody who comes.
    keep_clients(run, await connected(target, topics))
    return published_text(publish(run, None, documents, movement, expected), documents)


async def wait_arrived(session: Session) -> str | NotYet | Unmet:
    """Wait until applications have acknowledged on the target what the forecast has.

    Those that had consumers when the failover was announced; all, if none had. It reads messages, and the cursors on
    the target, which loads the topics. Of clients that were led nobody knows how many there were: one has to come.
    """
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.client_move import connected, newcomers, topics_of

    if session.conf.get("group"):
        if ended := led_by_another(session.run):
            return ended
        movement, target = required_movement(session.run), session.clusters["target"]
        clients = await connected(target, await topics_of(target, movement.namespaces))
        come = newcomers(clients, departure_of(session.run).clients)
        line = f"{counted(len(come), 'client')} came to {movement.target}"
        return line if come else NotYet(line)
    missing = await steps.arrival(*sides_of(session), session.run)
    return NotYet(missing) if missing else "The applications have caught up."


def _missing_applications(run: Run) -> str:
    return (
        "When they have caught up, clear this task; what they got until now says: "
        f"{command_line('failover-outcome', run.id)}"
    )


async def read_outcome(session: Session) -> str:
    """Compare what each subscription got with the forecast."""
    from pulsar_fleet.replication.failover import steps
    from pulsar_fleet.replication.failover.report import verdict

    return verdict(await steps.record_outcome(*sides_of(session), session.run))


def end(run: Run, conf: JsonObject, failed: Mapping[str, str]) -> Ending:  # noqa: ARG001
    """The outcome and the forecasts."""
    from pulsar_fleet.ledger.approval import read_approval
    from pulsar_fleet.replication.failover.records import read_records
    from pulsar_fleet.report.failover import failover_report

    movement = find_movement(run)
    is_led = movement is not None and _has_led(run, movement)
    back = (command_line("return-clients", run.id),) if is_led and not led_by_another(run) else ()
    then = [left_behind_text(run, movement)] if is_led and movement else []
    then += [f"lead the clients back: `{command}`" for command in back]
    report = failover_report(read_records(run), read_approval(run), failed, then)
    document: JsonObject = {"report": report.markdown(), "movement": movement.to_json() if movement else None}
    return Ending(report=report, text=report.markdown(), document=document, commands=back, undo=back)


def _has_led(run: Run, movement: Movement) -> bool:
    from pulsar_fleet.clients.store import ConnectionDocuments

    return ConnectionDocuments.open().has_moved(movement.group, run.id)


def _left(session: Session, answered: str | None, target: str) -> Publication:
    """What the clients follow; `PreconditionFailed` where they are led to the target already, or the cluster that they
    leave is another one, as far as its name is known.

    :param answered: its name, empty where it tells nobody, None where it does not answer.
    """
    from pulsar_fleet.clients.choice import require_led_to
    from pulsar_fleet.clients.store import ConnectionDocuments

    documents, group = ConnectionDocuments.open(), session.conf["group"]
    before, name = documents.latest(group), answered or sides_of(session)[0].cluster_name
    led_to = before.cluster if before and before.cluster != target else "the cluster that they leave"
    return require_led_to(documents, group, name or led_to)


def _selection(session: Session) -> Selection:
    from pulsar_fleet.cluster.selection import Selection

    return Selection.parse(session.conf["selection"])


FAILOVER = Procedure(
    name="fail_over_applications",
    summary="Move applications with replicated subscriptions to another data centre.",
    clusters={"origin": "The cluster that applications leave.", "target": "The cluster that they connect to."},
    own_settings=SETTINGS,
    opening="read_request",
    checks="forecast",
    approves="approve_failover",
    validate=validate,
    require=require,
    check=forecast,
    may_be_absent=frozenset({"origin"}),
    urgent=True,
    command="fail-over",
    work=(
        Step("prepare_target", prepare_target),
        Step("lead_clients", lead_clients, finish="The document is published first."),
        Step("wait_arrived", wait_arrived, reads=True, wait=Wait("arrival_minutes", _missing_applications)),
        Step("read_outcome", read_outcome, reads=True),
    ),
    end=end,
)
