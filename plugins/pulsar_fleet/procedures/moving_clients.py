"""How a run moves clients that follow a connection document: what moves where, the document, who has come.

For `move_clients`, `return_clients` and a migration.
"""

from __future__ import annotations

from socket import gethostname
from typing import TYPE_CHECKING

from pulsar_fleet.cluster.text import command_line, counted, listed
from pulsar_fleet.migration.artefacts import DEPARTURE, MOVEMENT
from pulsar_fleet.procedures.procedure import Done, NotYet, Session, Unmet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pulsar_fleet.clients.document import ConnectionDocument
    from pulsar_fleet.clients.store import ConnectionDocuments, Publication
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.connection import ClusterConnection
    from pulsar_fleet.cluster.json import JsonObject
    from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
    from pulsar_fleet.cluster.statistics import ConnectedClient
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.migration.clusters import Sides
    from pulsar_fleet.migration.model import Move, Moves
    from pulsar_fleet.migration.procedure import Failback, Migration
    from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor
    from pulsar_fleet.replication.failover.carry import CarriedPositions
    from pulsar_fleet.replication.failover.client_move import Arrival, Departure, Left, Movement

_MOST = 5
_REACH_SECONDS = 3.0
"""How long a cluster that clients leave may not answer before they are led away without it."""
_CLUSTERS = "replication_clusters"
HOLDS = (
    "exact: producers on {origin} wait in their clients while the last positions are carried and until they have read "
    "the document, some seconds"
)


def sides_of(session: Session) -> tuple[ClusterConnection, ClusterConnection]:
    """The cluster that clients leave, and the one that they move to."""
    (origin,), (target,) = (session.connections[name] for name in ("origin", "target"))
    return origin, target


def reached(session: Session) -> Sides:
    """Both, for calls that do not wait for a cluster which is gone."""
    from pulsar_fleet.migration.clusters import Sides

    return Sides(*sides_of(session), retry_seconds=_REACH_SECONDS)


async def origin_name(session: Session) -> str | None:
    """The own name of the cluster that clients leave, empty where it tells nobody; None where it does not answer."""
    from pulsar_fleet.cluster.admin.client import AdminClient
    from pulsar_fleet.cluster.errors import FleetError, Unavailable

    try:
        async with AdminClient(sides_of(session)[0], retry_seconds=_REACH_SECONDS) as admin:
            return await admin.cluster_name()
    except Unavailable:
        return None
    except FleetError:
        return ""


async def answers(session: Session) -> bool:
    """Whether the cluster that clients leave answers at all, also with a refusal."""
    return await origin_name(session) is not None


def asked(conf: JsonObject) -> ConnectionDocument:
    """The document that the settings ask for; `InvalidRequest` where no client could follow it."""
    from pulsar_fleet.clients.choice import asked_document

    names = ("service_url", "trust_file", "auth_plugin", "auth_parameters")
    return asked_document(*(conf[name] or "" for name in names))


async def decide(
    conf: JsonObject, connection: ClusterConnection, names: tuple[str, str], namespaces: tuple[NamespaceName, ...]
) -> Movement:
    """What moves where; refuses an address at which the target does not answer, and what Java clients cannot follow.

    :param connection: of the target; `names`: own names of the cluster that the clients leave and of the target.
    """
    from pulsar_fleet.clients.choice import address_of, next_document, require_led_to
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.cluster.errors import InvalidRequest
    from pulsar_fleet.migration.preflight.redirect_probe import require_answer
    from pulsar_fleet.replication.failover.client_move import Movement

    (origin, target), documents = names, ConnectionDocuments.open()
    before, history = require_led_to(documents, conf["group"], origin), documents.history(conf["group"])
    last = next((one.document.service_url for one in history if one.cluster == target), "")
    if not (url := conf["service_url"] or last or address_of(connection, before)):
        raise InvalidRequest(f"{target} names no service URL: set 'service_url' to what applications use.")
    wanted = next_document(asked(conf), url, target, before, history, restart_java=conf["restart_java"])
    if not conf["unverified"]:
        await require_answer(connection, target, url)
    return Movement(
        group=conf["group"],
        namespaces=namespaces,
        origin=origin,
        target=target,
        document=wanted,
        before=before.document,
    )


def client_risks(
    conf: JsonObject,
    group: str,
    clients: Sequence[ConnectedClient],
    elsewhere: Mapping[str, Collection[str]],
    unread: str,
) -> list[tuple[str, bool]]:
    """Readers, and clients that use other namespaces too, as far as that is known; and whether it forbids the move."""
    found: list[tuple[str, bool]] = []
    if text := readers_text(clients):
        # A run of an earlier release has no such setting.
        found.append((f"{text}, or set accept_readers.", not conf.get("accept_readers")))
    if elsewhere:
        others = _groups_of(sorted({name for names in elsewhere.values() for name in names}), group)
        named = [str(client) for client in clients if client.address in elsewhere]
        found.append(
            (
                f"{listed(dict.fromkeys(named), _MOST)} also use {listed(others, _MOST)}: a client moves with all its "
                "topics. Add these namespaces, give it a client for each group, or set accept_shared_clients.",
                not conf["accept_shared_clients"],
            )
        )
    if unread:
        found.append(
            (
                f"It is not known whether clients use other namespaces too: {unread.rstrip('.')}. Let this tool "
                "read the brokers' lists of topics, or set accept_shared_clients.",
                not conf["accept_shared_clients"],
            )
        )
    return found


async def transaction_risks(
    conf: JsonObject, origin: AdminClient, namespaces: Sequence[NamespaceName]
) -> list[tuple[str, bool]]:
    """Topics in which transactions were used, or may be, and whether it forbids the move. A call for each; loads it."""
    from pulsar_fleet.migration.preflight.copied_policies import read_transacted
    from pulsar_fleet.procedures.exact_moves import is_exact
    from pulsar_fleet.replication.failover.client_move import topics_of

    used, unread = await read_transacted(origin, await topics_of(origin, namespaces))
    is_refused, found = not conf.get("accept_transactions"), list[tuple[str, bool]]()
    if used:
        found.append(
            (
                f"{listed(sorted(used), _MOST)}: transactions were used there at some time. One that is open when "
                "clients move fails, and may hide what is stored behind it from consumers (observed). Stop these "
                "applications until the clients are moved, and set accept_transactions; start them afterwards.",
                is_refused,
            )
        )
        if is_exact(conf):
            found.append(("Transactions cannot be committed while producers are held: leave out 'exact'.", True))
    if unread:
        found.append(
            (
                "It is not known whether applications use transactions in "
                f"{listed([note.resource for note in unread], _MOST)}: {unread[0].detail.rstrip('.')}. Clear that up, "
                "or set accept_transactions.",
                is_refused,
            )
        )
    return found


def readers_text(clients: Iterable[ConnectedClient]) -> str:
    """What readers among the clients do on another cluster, and what to do about it; empty without one."""
    readers = [f"{client} on {client.topic}" for client in clients if client.keeps_position]
    if not readers:
        return ""
    return (
        f"{listed(readers, _MOST)}: only a reader has its position, as a place on the cluster that it leaves. On the "
        "other one it skips messages, or gets them again (observed). Stop it and start it there with a position by "
        "time, or give it a subscription"
    )


def _groups_of(namespaces: list[str], group: str) -> list[str]:
    """The namespaces, each with the other group that has it."""
    from pulsar_fleet.clients.store import ConnectionDocuments

    documents = ConnectionDocuments.open()
    owners = {name: other for other in documents.groups() if other != group for name in documents.namespaces(other)}
    return [f"{name} (of the group {owners[name]})" if name in owners else name for name in namespaces]


def accepts(conf: JsonObject, positions: CarriedPositions) -> bool:
    """Whether the run goes on although messages may be lost."""
    return bool(conf.get("skip_positions") or conf.get(positions.accepted_by))


def require_carried(conf: JsonObject, carried: CarriedPositions) -> None:
    """Refuse to move clients whose positions are not known; what they would lose was accepted before, or is refused."""
    from pulsar_fleet.cluster.errors import PreconditionFailed

    if (why := carried.problem()) and not accepts(conf, carried):
        remedy = "Correct it, or start a run with 'skip_positions', which moves them."
        if "skip_positions" not in conf:
            remedy = "Correct it, then clear this task; or undo the run."
        raise PreconditionFailed(f"{why}. No client was moved. {remedy}")


def find_movement(run: Run) -> Movement | None:
    """What a run moves; None where it moves no clients, or has not decided."""
    from pulsar_fleet.replication.failover.client_move import Movement

    stored = run.stored(MOVEMENT)
    return Movement.from_json(stored) if stored else None


def required_movement(run: Run) -> Movement:
    """What a run moves, in a step behind the first."""
    movement = find_movement(run)
    assert movement is not None, f"the first task has stored what {run.id} moves"
    return movement


def departure_of(run: Run) -> Departure:
    """Who was connected before the document was published, and who has come since."""
    from pulsar_fleet.replication.failover.client_move import Departure

    stored = run.stored(DEPARTURE)
    return Departure.from_json(stored) if stored else Departure()


def keep_clients(run: Run, clients: tuple[ConnectedClient, ...]) -> None:
    """Store who was connected before the document was published."""
    from pulsar_fleet.replication.failover.client_move import Departure

    run.artefacts.write_json(run.id, DEPARTURE, Departure(clients=clients).to_json())


def published_before(
    run: Run, why: str | None, documents: ConnectionDocuments, movement: Movement, expected: int
) -> Publication | None:
    """What this run has published in an earlier try; again, where the process died before every file was there."""
    published = documents.current(movement.group)
    if published is None or published.run != run.id:
        return None
    return publish(run, why, documents, movement, expected) if documents.problem(movement.group) else published


def publish(
    run: Run, why: str | None, documents: ConnectionDocuments, movement: Movement, expected: int
) -> Publication:
    """Lead the clients.

    :param expected: the newest version when the caller began.
    """
    from pulsar_fleet.ledger.run import this_user

    return documents.publish(
        movement.group,
        movement.document,
        cluster=movement.target,
        by=run.requester or f"{this_user()} on {gethostname()}",
        why=why or run.id,
        expected=expected,
        namespaces=tuple(map(str, movement.namespaces)),
        run=run.id,
    )


async def note_left_behind(session: Session, movement: Movement) -> Sequence[TopicName]:
    """Store where the target's topics end, so that what the cluster that is gone still has can be named afterwards.

    Returns these topics.
    """
    from pulsar_fleet.replication.failover.client_move import topics_of
    from pulsar_fleet.replication.failover.late import LEFT_BEHIND, read_ends

    target, run = session.clusters["target"], session.run
    topics = await topics_of(target, movement.namespaces)
    behind = await read_ends(target, movement.origin, topics)
    run.artefacts.write_json(run.id, LEFT_BEHIND, behind.to_json())
    return topics


def measured_lag(run: Run, moved_by: str, movement: Movement) -> str:
    """What the cluster that clients left had not replicated when that was last read, as a sentence without its end.

    :param moved_by: the run that had led them there.
    """
    from pulsar_fleet.cluster.errors import FleetError
    from pulsar_fleet.fleet.records import last_return
    from pulsar_fleet.replication.doctor.model import State

    unknown = f"How many messages {movement.origin} has alone is not known"
    names = [*map(str, movement.namespaces)]
    try:
        last = last_return(run.ledger, run.artefacts, moved_by, names)
    except (FleetError, OSError, ValueError) as error:
        # The clients are led already: what cannot be read only leaves the report without this sentence.
        return f"{unknown}: {error}"
    if last is None:
        return f"{unknown}: none of the last runs of watch_replication has read both clusters since they were led there"
    (state, at), counts = last, last[0].replicators.counts
    is_least = any(counts.get(one.value) for one in (State.MISSING, State.UNKNOWN))
    number = counted(state.replicators.backlog, "entry")
    text = f"At {at:%Y-%m-%dT%H:%M:%SZ} {movement.origin} had {'at least ' if is_least else ''}{number} alone"
    if (worst := state.replicators.worst) is not State.HEALTHY:
        text = f"{text}, with a replicator or namespace that was {worst.value}"
    return f"{text}; what was published there since may be added to that"


def present_before(session: Session) -> Mapping[TopicName, Collection[str]] | None:
    """Topic → the subscriptions that the cluster which clients leave had when they were led there without the other.

    None where they came with their positions: then every one is carried back.
    """
    from pulsar_fleet.ledger.run import Run
    from pulsar_fleet.replication.failover.late import LEFT_BEHIND, LeftBehind

    if not (taken_back := session.conf.get("run")):
        return None
    stored = Run(taken_back, session.run.ledger, session.run.artefacts).stored(LEFT_BEHIND)
    return LeftBehind.from_json(stored).subscriptions if stored else None


def left_behind_text(run: Run, movement: Movement, moved_by: str = "") -> str:
    """What was left behind and how to find it, as sentences of the report; empty where nothing was.

    :param moved_by: of a return, the run that it takes back.
    """
    from pulsar_fleet.replication.failover.late import LEFT_BEHIND

    if not run.stored(LEFT_BEHIND):
        return ""
    late = command_line("late-messages", run.id)
    measured = f"{measured_lag(run, moved_by, movement)}. " if moved_by else ""
    return (
        f"{measured}When {movement.origin} is back, see which messages it had not replicated, and which came late: "
        f"`{late}`"
    )


def published_text(made: Publication, documents: ConnectionDocuments) -> str:
    """Where the clients are led, for the log."""
    return (
        f"The clients of {made.group} are led to {made.cluster}, {made.document.service_url} (version {made.version} "
        f"in {documents.folder}). Change the default of the applications to that address: a Java client begins there "
        "at every start, others while they cannot read the document."
    )


def led_by_another(run: Run) -> Unmet | None:
    """Why nobody is awaited any more: another run or a person has led the clients of the group since."""
    from pulsar_fleet.clients.store import ConnectionDocuments

    published = ConnectionDocuments.open().current(required_movement(run).group)
    # Theirs are the cursors of another run now.
    if published and published.run != run.id:
        return Unmet(f"Nobody is awaited any more: {published.text()}.")
    return None


def late_text(run: Run) -> str:
    """What to do about clients that have not come."""
    again = "--resume waits again" if run.id.startswith("cli/") else "clear this task to wait again"
    return (
        "They do not follow the document, or cannot read it. Restart them with the new address; until then both "
        f"clusters have what they write, and each delivers to its own consumers. {again[0].upper()}{again[1:]}."
    )


def note_arrival(run: Run, movement: Movement, departure: Departure, arrival: Arrival) -> str | NotYet:
    """Store who has come at a look, and say it."""
    run.artefacts.write_json(run.id, DEPARTURE, departure.to_json())
    line = arrival.line(movement.origin, movement.target)
    return line if arrival.is_done else NotYet(line)


async def check_clients(session: Session, moves: Moves) -> tuple[list[str], list[tuple[str, bool]]]:
    """Of a migration that moves clients: what it would publish, and what stands in the way. Changes nothing.

    :returns: lines for the person who approves; risks, each with whether it forbids the run.
    """
    from pulsar_fleet.cluster.errors import FleetError
    from pulsar_fleet.migration.repoint.both_ways import begun_back
    from pulsar_fleet.procedures.exact_moves import is_exact, require_holds
    from pulsar_fleet.replication.failover.client_move import connected
    from pulsar_fleet.replication.failover.shared_clients import used_elsewhere

    conf, blue, green = session.conf, session.clusters["blue"], session.clusters["green"]
    namespaces = tuple(move.namespace for move in moves.moves)
    movement = await decide(conf, session.connections["green"][0], (moves.blue, moves.green), namespaces)
    clients = await connected(blue, [topic for move in moves.moves for topic in move.partitions])
    try:
        elsewhere, unread = await used_elsewhere(blue, clients, namespaces), ""
    except FleetError as error:
        elsewhere, unread = {}, str(error)
    session.run.artefacts.write_json(session.run.id, MOVEMENT, movement.to_json())
    lines = [
        f"{movement.group}: {movement.before.service_url} → {movement.document.service_url}",
        f"{counted(len(clients), 'client')} on {movement.origin} now",
    ]
    if is_exact(conf):
        await require_holds(blue)
        lines.append(HOLDS.format(origin=movement.origin))
    risks = client_risks(conf, movement.group, clients, elsewhere, unread)
    risks += [(text, True) for move in moves.moves for text in _too_many_unread(move)]
    begun = begun_back(session.run)
    for namespace in namespaces:
        lists = [{*((await admin.namespace(namespace) or {}).get(_CLUSTERS) or ())} for admin in (blue, green)]
        if str(namespace) not in begun and all({moves.blue, moves.green} <= one for one in lists):
            named = (word for name in namespaces for word in ("--namespaces", name))
            how = command_line("move-clients", conf["blue"], conf["green"], "--group", movement.group, *named)
            risks.append((f"{namespace} replicates both ways already: move its clients with {how}", True))
    return lines, risks


def _too_many_unread(move: Move) -> Iterable[str]:
    """The subscriptions whose positions could not be carried: it takes a reading of every unread entry."""
    from pulsar_fleet.replication.failover.read import MOST_ENTRIES

    for topic, clients in move.partitions.items():
        for name, unread in clients.backlog.items():
            if unread > MOST_ENTRIES:
                yield (
                    f"The subscription {name!r} of {topic} has {unread:,} unread entries: the position of one with "
                    f"more than {MOST_ENTRIES:,} is not carried. Let its application read them first, or move the "
                    "namespace with another strategy."
                )


async def lead_clients(session: Session, migration: Migration) -> Done | str:
    """Let green replicate back, carry every position, and publish the document that leads the clients to green.

    Blue goes on: until the move is completed `return_clients` leads them back.
    """
    from pulsar_fleet.clients.choice import require_led_to
    from pulsar_fleet.clients.store import ConnectionDocuments
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.migration.model import Phase
    from pulsar_fleet.migration.prepare.freeze import find_original_settings, freeze
    from pulsar_fleet.migration.prepare.lease import held, release, renew
    from pulsar_fleet.migration.prepare.overrides import restore_publish_rates
    from pulsar_fleet.migration.repoint.both_ways import replicate_back, set_reserved
    from pulsar_fleet.procedures.exact_moves import is_exact, lead_held
    from pulsar_fleet.replication.failover.client_move import carry

    run, sides, moves = session.run, migration.sides, migration.moves
    movement, documents = required_movement(run), ConnectionDocuments.open()
    expected = documents.newest(movement.group)
    carried, held_text, made = None, "", published_before(run, "", documents, movement, expected)

    async def lead(clients: tuple[ConnectedClient, ...]) -> Publication:
        if session.stopping():
            raise PreconditionFailed("Stopped before any client was moved.")
        # Stored first: an abort takes it that somebody is on the other cluster from here on.
        keep_clients(run, clients)
        # Another run may have taken what this one had, while it stood still.
        await renew(sides, run, [str(name) for name in movement.namespaces])
        return publish(run, "", documents, movement, expected)

    if made is None:
        if migration.are_clients_moved:
            # By another run, which has the cursors now.
            return f"The clients of {movement.group} are on {movement.target} already."
        require_led_to(documents, movement.group, movement.origin)
        await migration.require_fresh_copy()
        async with held(sides, run, movement.namespaces):
            await replicate_back(sides, run, moves)
            await set_reserved(sides, run, moves)
            if is_exact(session.conf):
                original = find_original_settings(run)
                assert original is not None, "freeze_blue has stored it"
                # After a failed attempt nothing may be recorded any more, or producers may be held.
                async with sides.open() as (blue, _):
                    for name in original.namespaces:
                        await restore_publish_rates(blue, name, original)
                    await freeze(blue, run, original)
                led = await lead_held(session, sides, movement, lead, original)
                carried, made, held_text = led.carried, led.made, f" {led.text()}"
            else:
                carried, clients = await carry(sides.blue, sides.green, movement.namespaces)
                require_carried(session.conf, carried)
                made = await lead(clients)
    for move in moves.moves:
        run.ledger.enter_phase(run.id, str(move.namespace), Phase.MOVED, {"group": movement.group})
    # Blue goes on, and the lease ends: somebody may have to lead them back while this run waits for the last of them.
    # With what could not be restored it stays: `restore` and `watch_overrides` look for it.
    await migration.restore()
    await release(sides, run)
    said = f"{published_text(made, documents)}{held_text}"
    return Done(said, carried) if carried else said


async def look_moved(session: Session, migration: Migration) -> str | NotYet | Unmet:
    """Whether every client of a migration has come to green; of those who have not the position is carried again."""
    from pulsar_fleet.replication.failover.client_move import look_arrived

    if ended := led_by_another(session.run):
        return ended
    movement, departure = required_movement(session.run), departure_of(session.run)
    arrival = await look_arrived(migration.sides.blue, migration.sides.green, movement.namespaces, departure)
    return note_arrival(session.run, movement, departure, arrival)


async def look_left_blue(run: Migration | Failback) -> tuple[bool, str]:
    """Whether applications that were moved before have all left the old cluster, and who has not.

    Of a subscription that is read there the position is carried, as of one that the new cluster lacks. Where the rest
    is redirected, nobody has to leave before.
    """
    from pulsar_fleet.migration.model import Moves, Phase
    from pulsar_fleet.migration.resumption import Reached
    from pulsar_fleet.replication.failover.client_move import carry_idle

    moves = run.moves
    moved = tuple(move for move in moves.moves if move.strategy.is_moved_before)
    waiting = Reached.of(run.run).before(Moves(moves.blue, moves.green, moved), Phase.CUT_OVER).moves
    redirected = any(move.strategy.redirects for move in moved)
    if redirected:
        # Such a cut-over ends the replication to blue before it looks: from its begin on only that one does.
        begun = [
            move for move in waiting if run.run.ledger.entered(run.run.id, str(move.namespace), Phase.RETURN_ENDED)
        ]
        waiting = tuple(move for move in waiting if move not in begun)
    if not waiting:
        return True, f"nobody returns to {moves.blue} any more"
    await run.keep_lease()
    left = await _look_left(run, [move.namespace for move in waiting], {})
    is_done = not left.problem if redirected else left.is_done
    if is_done:
        await carry_idle(run.sides.blue, run.sides.green, [move.namespace for move in waiting], departure_of(run.run))
    return is_done, left.line(moves.blue)


async def carry_left(
    run: Migration | Failback, namespace: NamespaceName, confirmed: Mapping[TopicName, Position]
) -> list[TransferredCursor]:
    """Carry the positions of subscriptions that are read on the old cluster only, right before it redirects.

    :param confirmed: as of `CarryLeft`.
    :raises PreconditionFailed: messages would be lost.
    """
    from pulsar_fleet.cluster.errors import PreconditionFailed
    from pulsar_fleet.migration.subscriptions.checkpoint import TransferredCursor

    left = await _look_left(run, [namespace], confirmed)
    if left.problem:
        raise PreconditionFailed(f"{left.line(run.moves.blue)}. No client was redirected. Then clear cut_over.")
    return [
        TransferredCursor(
            topic=cursor.topic,
            subscription=cursor.subscription,
            unread=cursor.unread,
            carried=cursor.carried,
            redelivered=cursor.repeated + cursor.again,
        )
        for cursor in left.carried
        if not cursor.used
    ]


async def _look_left(
    run: Migration | Failback, names: list[NamespaceName], confirmed: Mapping[TopicName, Position]
) -> Left:
    from pulsar_fleet.clients.store import led_since, publications, require_led_from
    from pulsar_fleet.migration.prepare.target import store_reserved_subscriptions
    from pulsar_fleet.replication.failover.client_move import look_left

    moves, departure, published = run.moves, departure_of(run.run), publications()
    require_led_from(moves.blue, [*map(str, names)], published)
    since = led_since(moves.green, [*map(str, names)], published)
    left = await look_left(run.sides.blue, run.sides.green, names, departure, led_since=since, confirmed=confirmed)
    # An abort deletes those that nobody uses.
    store_reserved_subscriptions(run.run, left.created)
    run.run.artefacts.write_json(run.run.id, DEPARTURE, departure.to_json())
    return left
