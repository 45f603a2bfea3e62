"""Who is awaited after a move of clients, what may still come from a third cluster, and tries that died half-way."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_fleet.cli.procedure import _named
from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import ConnectedClient, Cursor, Role, TopicStats
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links import partition_stats
from pulsar_fleet.messages.positions import Intervals, Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.migration.preflight import copied_policies
from pulsar_fleet.procedures import client_moves, exact_moves
from pulsar_fleet.procedures.moving_clients import (
    client_risks,
    keep_clients,
    left_behind_text,
    publish,
    published_before,
    transaction_risks,
)
from pulsar_fleet.procedures.procedure import Ended, Session, Unmet
from pulsar_fleet.replication.doctor.changes import store_examination
from pulsar_fleet.replication.doctor.model import Examination, LinkState, ReturnState
from pulsar_fleet.replication.failover import client_move, read
from pulsar_fleet.replication.failover.carry import CarriedCursor, CarriedPositions
from pulsar_fleet.replication.failover.client_move import Departure, Movement, MovePlan
from pulsar_fleet.replication.failover.late import LEFT_BEHIND, LeftBehind
from pulsar_fleet.replication.failover.measure import Counter
from pulsar_fleet.replication.failover.read import _Listed
from pulsar_fleet.replication.failover.topic_copy import ClusterTopic, ListedEntry, Place, TopicCopy

TOPIC = TopicName.parse("persistent://acme/orders/events")
BLUE, GREEN = (ConnectionDocument(service_url=f"pulsar://{name}:6650") for name in ("blue", "green"))
MOVEMENT = Movement(
    group="orders",
    namespaces=(NamespaceName("acme", "orders"),),
    origin="blue",
    target="green",
    document=GREEN,
    before=BLUE,
)


def stats(**consumers: int) -> TopicStats:
    subscriptions: Any = {
        name: {"consumers": [{"consumerName": f"c{number}"} for number in range(count)]}
        for name, count in consumers.items()
    }
    return TopicStats.of(TOPIC, {"subscriptions": subscriptions})


def test_a_subscription_that_has_come_once_is_not_awaited_again() -> None:
    departure = Departure()
    assert client_move._awaited(stats(late=1, quick=1), stats(quick=1), departure) == {"late"}
    # Its consumers restart: the cursor on the other cluster is theirs, whoever is left behind.
    assert client_move._awaited(stats(late=1, quick=1), stats(quick=0), departure) == {"late"}
    assert Departure.from_json(departure.to_json()).arrived == {f"quick of {TOPIC}"}


def client(name: str) -> ConnectedClient:
    return ConnectedClient(
        topic=str(TOPIC),
        role=Role.CONSUMER,
        subscription="billing",
        name=name,
        address="10.0.0.1:5512",
        version="4.2.4",
        since="",
    )


@pytest.mark.parametrize(
    ("counts", "namespaces", "wanted"),
    [
        ({"healthy": 2}, ("acme/orders",), "green had 17 entries alone; what"),
        (
            {"stalled": 1, "healthy": 1},
            ("acme/orders",),
            "green had 17 entries alone, with a replicator or",
        ),
        ({"missing": 1}, ("acme/orders",), "green had at least 17 entries alone, with"),
        ({"healthy": 1}, ("acme/others",), "green had at least 17 entries alone, with"),
    ],
)
def test_a_return_without_a_cluster_says_what_was_last_behind_on_it(
    records: Path, counts: dict[str, int], namespaces: tuple[str, ...], wanted: str
) -> None:
    run, back = Run.open("return_clients/1"), MOVEMENT.back()
    assert left_behind_text(run, back, "move_clients/1") == ""
    behind = LeftBehind(origin="green", target="blue", at=0, ends={})
    run.artefacts.write_json(run.id, LEFT_BEHIND, behind.to_json())
    assert left_behind_text(run, back).startswith("When green is back, see which")
    assert "alone is not known: none of the last runs" in left_behind_text(run, back, "move_clients/1")
    link = LinkState(source="green", target="blue", counts=counts, backlog=17)
    state = ReturnState(group="orders", run="move_clients/1", replicators=link, namespaces=namespaces)
    # The newest examination finds green away, and so has no row of the group.
    for number, returns in enumerate([(state,), ()]):
        watch = Run.open(f"watch_replication/{number}")
        run.ledger.start_run(watch.id, "watch_replication", {"clusters": ["blue", "green"]})
        read_at = 1.8e9 + number
        examined = ("blue", "green")
        read = Examination(clusters=examined, namespaces=1, counts=counts, returns=returns, read_at=read_at)
        store_examination(watch, read)
    said = left_behind_text(run, back, "move_clients/1")
    assert said.startswith("At 2027-01-15T08:00:00Z ")
    assert wanted in said
    # What cannot be read leaves the sentence out, and the rest of the report stays.
    for file in records.rglob("examination.json"):
        file.write_text("{")
    damaged = left_behind_text(run, back, "move_clients/1")
    assert "alone is not known" in damaged
    assert "late-messages" in damaged


def test_readers_of_applications_are_refused_and_ours_are_not() -> None:
    reader = replace(client("r0"), role=Role.READER, subscription="reader-1")
    own = replace(reader, subscription="pulsar-fleet-1")
    assert client_risks({"accept_shared_clients": False}, "orders", [client("c0"), own], {}, "") == []
    # A run of an earlier release that goes on has no setting for it.
    ((text, is_refused),) = client_risks({"accept_shared_clients": False}, "orders", [reader], {}, "")
    assert (text.startswith(f'reader "r0" (10.0.0.1:5512, 4.2.4) on {TOPIC}: only a'), is_refused) == (True, True)
    ((_, is_refused),) = client_risks({"accept_readers": True}, "orders", [reader, own], {}, "")
    assert not is_refused


@pytest.mark.parametrize(
    ("state", "conf", "wanted"),
    [
        ("NoSnapshot", {}, []),
        ("Ready", {}, [("transactions were used there at some time", True)]),
        ("Ready", {"accept_transactions": True}, [("transactions were used there at some time", False)]),
        (
            "Ready",
            {"accept_transactions": True, "exact": True},
            [("transactions were used there at some time", False), ("leave out 'exact'", True)],
        ),
        (Unavailable("it is away."), {}, [("It is not known whether applications use transactions in", True)]),
    ],
)
async def test_transactions_are_refused_as_far_as_they_are_known(
    monkeypatch: pytest.MonkeyPatch, state: str | FleetError, conf: dict[str, Any], wanted: list[tuple[str, bool]]
) -> None:
    async def topics(*_: object) -> list[TopicName]:
        return [TOPIC]

    async def read(*_: object) -> str | FleetError:
        return state

    monkeypatch.setattr(client_move, "topics_of", topics)
    monkeypatch.setattr(copied_policies, "_state", read)
    found = await transaction_risks(conf, None, MOVEMENT.namespaces)  # type: ignore[arg-type]
    assert [(text in said, refused) for (said, refused), (text, _) in zip(found, wanted, strict=True)] == [
        (True, refused) for _, refused in wanted
    ]


def test_who_came_to_neither_cluster_is_awaited_for_a_minute() -> None:
    departure = Departure(clients=(client("c0"), client("c1")), since=time.time())
    arrival = client_move._arrival(departure, (), {TOPIC: stats(billing=1)})
    assert (arrival.is_done, "1 of 2 clients came to green; 1 on neither" in arrival.line("blue", "green")) == (
        False,
        True,
    )
    departure.since = time.time() - 61
    assert client_move._arrival(departure, (), {TOPIC: stats(billing=1)}).is_done
    assert client_move._arrival(departure, None, {TOPIC: stats(billing=1)}).is_done
    assert not client_move._arrival(departure, (client("c1"),), {TOPIC: stats(billing=1)}).is_done


def test_what_a_third_cluster_still_sends_to_the_other_one_is_not_lost() -> None:
    names = ["r0", "f0", "r1", "r2"]
    listed = [
        ListedEntry(number, 1, "red" if name[0] == "r" else "", name.encode()) for number, name in enumerate(names)
    ]
    cursor = SubscriptionCursor(
        mark_delete_index=0,
        unread=Intervals.of([(0, len(names))]),
        individually_acknowledged=Intervals(),
        cursor=Cursor(mark_delete=Position(3, -1)),
    )
    here = ClusterTopic(
        ledgers=Ledgers(((3, len(names)),)), cursors={"s": cursor}, stats=stats(), replicated=len(names)
    )
    there = [replace(listed[0], number=0), replace(listed[1], number=1, origin="blue"), replace(listed[2], number=2)]
    copy = TopicCopy.of(listed, there)
    lost = Counter(here, replace(here, ledgers=Ledgers(((4, 3),)), cursors={}), copy).forecast("s").lost
    assert (lost.absent, lost.unreplicated.messages) == (0, 1)
    # Red sends in order: what came behind it did, so this one will not.
    copy = TopicCopy.of(listed, [replace(listed[3], number=0)])
    lost = Counter(here, replace(here, ledgers=Ledgers(((4, 1),)), cursors={}), copy).forecast("s").lost
    assert (lost.absent, lost.unreplicated.messages) == (3, 0)


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConnectionDocuments:
    monkeypatch.setenv(CLIENTS_VARIABLE, str(tmp_path / "clients"))
    documents = ConnectionDocuments.open()
    documents.publish("orders", BLUE, cluster="blue", by="alice", why="", expected=0)
    return documents


def session_of(run_id: str) -> Session:
    return Session({"why": ""}, Run.open(run_id), {})


def test_a_try_that_died_between_two_files_publishes_again(
    documents: ConnectionDocuments, records: Path, tmp_path: Path
) -> None:
    session, served = session_of("move_clients/1"), tmp_path / "clients" / "orders.json"
    assert published_before(session.run, "", documents, MOVEMENT, 1) is None
    before = served.read_bytes()
    publish(session.run, "", documents, MOVEMENT, 1)
    served.write_bytes(before)
    made = published_before(session.run, "", documents, MOVEMENT, documents.newest("orders"))
    assert made is not None
    assert (made.version, made.cluster, documents.problem("orders")) == (3, "green", "")
    again = published_before(session.run, "", documents, MOVEMENT, documents.newest("orders"))
    assert again == made


def test_only_the_last_move_is_taken_back(documents: ConnectionDocuments, records: Path) -> None:
    first, second = session_of("move_clients/1"), session_of("return_clients/2")
    publish(first.run, "", documents, MOVEMENT, 1)
    client_moves._require_moved_by(documents, MOVEMENT.back(), "move_clients/1")
    # Published again by hand, to the same cluster: it is the same move.
    documents.publish("orders", GREEN, cluster="green", by="bob", why="", expected=2)
    client_moves._require_moved_by(documents, MOVEMENT.back(), "move_clients/1")
    with pytest.raises(
        PreconditionFailed, match=r"move_clients/0 did not move them last: .* return-clients move_clients/1"
    ):
        client_moves._require_moved_by(documents, MOVEMENT.back(), "move_clients/0")
    publish(second.run, "", documents, MOVEMENT.back(), 3)
    with pytest.raises(PreconditionFailed, match=r"They are not led to green: .* led to blue by version 4"):
        client_moves._require_moved_by(documents, MOVEMENT.back(), "move_clients/1")
    by_hand = documents.publish("orders", GREEN, cluster="green", by="bob", why="", expected=4)
    assert (by_hand.run, by_hand.namespaces) == ("", ("acme/orders",))
    assert documents.has_moved("orders", first.run.id)
    assert not documents.has_moved("orders", "move_clients/3")


async def test_a_check_refuses_transactions(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered(*_: object) -> Any:
        return MOVEMENT

    async def free(*_: object) -> None:
        return None

    async def planned(*_: object) -> MovePlan:
        return MovePlan(positions=CarriedPositions(unknown={}), clients=(client("c0"),), elsewhere={})

    async def risks(*_: object) -> list[tuple[str, bool]]:
        return [("Transactions were used.", True)]

    fakes = {"decide": answered, "_names": answered, "_require_free": free, "transaction_risks": risks}
    for name, fake in fakes.items():
        monkeypatch.setattr(client_moves, name, fake)
    monkeypatch.setattr(client_move, "plan_move", planned)
    one: Any = [SimpleNamespace()]
    session = Session(
        {"namespaces": ["acme/orders"], "accept_shared_clients": False, "exact": False},
        Run.open("move_clients/1"),
        {"origin": one, "target": one},
        connections={"origin": one, "target": one},
    )
    checked = await client_moves.check_move(session)
    assert (checked.refusal, checked.warnings) == ("Transactions were used.", 1)


async def test_a_wait_ends_when_the_clients_are_led_elsewhere(documents: ConnectionDocuments, records: Path) -> None:
    session = session_of("move_clients/1")
    session.run.ledger.start_run(session.run.id, "move_clients", {})
    session.run.artefacts.write_json(session.run.id, "movement.json", MOVEMENT.to_json())
    publish(session.run, "", documents, MOVEMENT, 1)
    keep_clients(session.run, (client("c0"), replace(client("r0"), role=Role.READER)))
    ended = client_moves.end(session.run, {}, {})
    assert ended.undo == ("pulsar-fleet return-clients move_clients/1",)
    assert (ended.text.count("only a reader has its position"), '"c0"' in ended.text) == (1, False)
    publish(session_of("return_clients/2").run, "", documents, MOVEMENT.back(), 2)
    said = await client_moves.wait_arrived(session)
    assert isinstance(said, Unmet)
    assert "led to blue by version 3" in said.said
    ended = client_moves.end(session.run, {}, {})
    assert (ended.ended, ended.undo, "led to blue by version 3" in ended.text) == (Ended.DIFFERENT, (), True)


def test_each_cluster_keeps_its_credentials_when_a_run_is_taken_back(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSAR_FLEET_SOURCE_TOKEN_SECRET", "of blue")
    monkeypatch.setenv("PULSAR_FLEET_TARGET_TOKEN_SECRET", "of green")
    ledger = Run.open("cli/move-clients-1").ledger
    ledger.start_run(
        "cli/move-clients-1", "move_clients", {"origin": "http://blue:8080", "target": "http://green:8080"}
    )
    ledger.start_run("cli/return-clients-2", "return_clients", {"run": "cli/move-clients-1"})
    for run, first, second in (("cli/move-clients-1", "green", "blue"), ("cli/return-clients-2", "blue", "green")):
        named = _named(client_moves.RETURN, {"run": run, "origin": None, "target": None})
        (origin,), (target,) = named["origin"], named["target"]
        assert (origin.admin_url, origin.token) == (f"http://{first}:8080", f"of {first}")
        assert (target.admin_url, target.token) == (f"http://{second}:8080", f"of {second}")


def test_entries_keep_their_numbers_when_a_ledger_is_removed() -> None:
    before = Ledgers(((1, 100), (2, 100), (3, 500)))
    now = before.grown_to(Ledgers(((3, 510), (7, 5))))
    assert (len(now), now.at(220), now.at(710)) == (715, Position(3, 20), Position(7, 0))
    assert now.index_after(Position(3, 19)) == before.index_after(Position(3, 19)) == 220


def test_entries_that_were_read_before_have_the_numbers_of_now() -> None:
    before = Ledgers(((1, 10), (2, 5)))
    entries = [ListedEntry(number, 1, "", b"%d" % number) for number in range(8, 15)]
    listed = _Listed(before, 8, 15, entries)
    grown = listed.renumbered(Ledgers(((1, 10), (2, 9))))
    assert grown is not None
    assert (grown.begin, grown.end, [one.number for one in grown.entries]) == (8, 15, list(range(8, 15)))
    # The first ledger was read by all, and removed.
    trimmed = listed.renumbered(Ledgers(((2, 9),)))
    assert trimmed is not None
    assert (trimmed.begin, trimmed.end) == (0, 5)
    assert [(one.number, one.digest) for one in trimmed.entries] == [(n, b"%d" % (n + 10)) for n in range(5)]
    # All that was listed is gone, or the topic is another one.
    assert (listed.renumbered(Ledgers(((3, 9),))), listed.renumbered(Ledgers(()))) == (None, None)
    assert listed.renumbered(Ledgers(((1, 10), (7, 5)))) is None


def test_a_second_time_keeps_what_the_first_has_created_and_set_back() -> None:
    first = CarriedCursor(topic="t", subscription="s", unread=9, again=4, is_new=True)
    last = CarriedPositions(cursors=(CarriedCursor(topic="t", subscription="s", unread=2),), unknown={})
    assert last.after(CarriedPositions(cursors=(first,), unknown={})).cursors == (replace(first, unread=2),)
    assert last.after(None) == last


async def test_a_second_look_reads_only_what_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def listing(_engine: Any, _topic: TopicName, _ledgers: Ledgers, begin: int, end: int) -> list[ListedEntry]:
        asked.append((begin, end))
        return [ListedEntry(number, 1, "", b"%d" % number) for number in range(begin, end)]

    monkeypatch.setattr(read, "list_entries", listing)
    clusters: Any = {place: SimpleNamespace(engine=None) for place in Place}
    reader = read.TopicReader(clusters)

    async def entries(begin: int, end: int, length: int) -> list[tuple[int, int]]:
        asked.clear()
        topic = ClusterTopic(ledgers=Ledgers(((1, length),)), cursors={}, stats=None)
        sides: Any = {Place.FROM: topic}
        found = await reader._entries(Place.FROM, TOPIC, sides, begin, end)
        assert [one.number for one in found] == list(range(begin, end))
        return list(asked)

    assert await entries(10, 20, 20) == [(10, 20)]
    assert await entries(12, 30, 30) == [(20, 30)]
    # Further back, and from what was read before.
    assert await entries(5, 10, 30) == [(5, 10)]
    assert await entries(5, 30, 30) == []
    # Older than what is known, which stays known.
    assert await entries(0, 2, 30) == [(0, 2)]
    assert await entries(8, 31, 31) == [(30, 31)]
    # What lies between was read by nobody.
    assert await entries(40, 50, 50) == [(40, 50)]
    monkeypatch.setattr(read, "_MOST_KEPT", 0)
    assert await entries(45, 52, 52) == [(50, 52)]
    assert await entries(45, 52, 52) == [(45, 52)]


def subscription(backlog: int, *, consumers: int = 1) -> TopicStats:
    document: Any = {
        "subscriptions": {"billing": {"msgBacklog": backlog, "consumers": [{}] * consumers}},
        "replication": {"green": {"connected": True, "replicationBacklog": 0}},
    }
    return TopicStats.of(TOPIC, document)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[TopicStats]:
    """What the brokers say at each look, the last one for good; a look takes a second."""
    seen: list[TopicStats] = []
    clock = count(0.0, 1.0)

    async def read(*_: object) -> dict[TopicName, TopicStats]:
        return {TOPIC: seen.pop(0) if len(seen) > 1 else seen[0]}

    async def sleep(_: float) -> None:
        """No time passes but by looks."""

    monkeypatch.setattr(partition_stats, "required_stats", read)
    monkeypatch.setattr(exact_moves, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return seen


async def at_rest(looks: int) -> list[tuple[str, dict[Any, int]]]:
    """So many looks, or until everything is at rest."""
    seen: list[tuple[str, dict[Any, int]]] = []
    async for look in exact_moves._looks(SimpleNamespace(), [TOPIC], MOVEMENT):  # type: ignore[arg-type]
        seen.append(look)
        if not look[0] or len(seen) == looks:
            break
    return seen


BILLING = (str(TOPIC), "billing")


async def test_held_producers_wait_until_consumers_have_read(looks: list[TopicStats]) -> None:
    looks += [subscription(7), subscription(2), subscription(0)]
    said = [f"consumers still read billing of {TOPIC} ({number} entries)" for number in (7, 2)]
    assert [state for state, _ in await at_rest(5)] == [*said, ""]
    # A subscription that nobody reads keeps its backlog.
    looks[:] = [subscription(7, consumers=0)]
    assert await at_rest(5) == [("", {})]


async def test_what_a_consumer_holds_is_not_waited_for(looks: list[TopicStats]) -> None:
    looks += [subscription(7), subscription(3), subscription(3)]
    assert (await at_rest(5))[-1] == ("", {BILLING: 3})


async def test_a_backlog_that_is_read_is_not_at_rest(looks: list[TopicStats]) -> None:
    looks += [subscription(number) for number in range(100, 50, -1)]
    assert all(state for state, _ in await at_rest(40))


@pytest.mark.parametrize("link", [{"connected": False}, {"connected": True, "replicationBacklog": 3}])
async def test_what_is_not_replicated_is_not_left_behind(looks: list[TopicStats], link: dict[str, Any]) -> None:
    looks.append(TopicStats.of(TOPIC, {"replication": {"green": link}}))
    assert await at_rest(2) == [("messages were not replicated to green", {})] * 2


def test_a_held_move_says_what_is_delivered_again() -> None:
    made: Any = SimpleNamespace()
    carried = CarriedPositions(unknown={})
    quiet = exact_moves.Led(carried, made, 1.84, {}, ())
    assert quiet.text() == "Producers were held for 1.8 s."
    late = exact_moves.Led(carried, made, 16.0, {BILLING: 3}, (client("p1"),))
    assert "had not acknowledged 3 entries of billing of persistent://acme/orders/events" in late.text()
    assert "1 client had not come when producers were released" in late.text()


@pytest.mark.parametrize(
    ("version", "held"), [("3.0.7", False), ("4.0.7", False), ("4.2.0", False), ("4.0.14", True), ("5.0.1", True)]
)
async def test_producers_are_held_where_nothing_comes_twice(version: str, held: bool) -> None:
    async def answer() -> str:
        return version

    admin: Any = SimpleNamespace(version=answer, connection=SimpleNamespace(name="blue"))
    if held:
        await exact_moves.require_holds(admin)
        return
    with pytest.raises(PreconditionFailed, match=f"blue runs Pulsar {version}.*'exact' needs 4.0.10, 4.2.1 or later"):
        await exact_moves.require_holds(admin)


def test_a_move_is_exact_or_skips_positions() -> None:
    conf = {"group": "orders", "exact": True, "skip_positions": True, "namespaces": ["acme/orders"]}
    with pytest.raises(InvalidRequest, match="set one of both"):
        client_moves.validate(conf)
