"""Whatever happens to an Airflow and beside it while a namespace moves, every setting of both clusters comes back.

Each round is a migration with several disturbances at random moments: processes killed with SIGKILL, runs marked as
failed, tasks cleared, another run and an onboarding beside it. A deck deals their kinds evenly; a disturbance that did
not hit a run that was going on is dealt again.

PULSAR_FLEET_AIRFLOW_POINTS: how many disturbances, one of each kind unless set: half a minute each.
PULSAR_FLEET_AIRFLOW_SEED: the seed of the deck.
PULSAR_FLEET_AIRFLOW_FIRST: the number of the first round that is played, to repeat one with the same points and seed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.airflow_faults import OVER, QUICK, FaultyAirflow, wait_until
from tests.support.disturbances import GIVEN_UP, Hits, Point, deal, shuffled_cards
from tests.support.disturbed_run import Bench, DisturbedRun
from tests.support.exporter import neutral
from tests.support.given_up_run import bring_back, restore
from tests.support.live_application import LiveApplication, make_linked_topic
from tests.support.migration import INACTIVE, LATE, RATE, TOPIC_RATE, publish
from tests.support.settings_export import records_of_runs
from tests.support.write_recorder import recording

from pulsar_fleet.clients.document import ConnectionDocument
from pulsar_fleet.clients.store import CLIENTS_VARIABLE, ConnectionDocuments
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox.workload.live import NumberedMessage

pytestmark = [pytest.mark.fleet, pytest.mark.migration]

log = logging.getLogger(__name__)
POINTS = int(os.environ.get("PULSAR_FLEET_AIRFLOW_POINTS", "6"))
SEED = os.environ.get("PULSAR_FLEET_AIRFLOW_SEED", "0")
FIRST = int(os.environ.get("PULSAR_FLEET_AIRFLOW_FIRST", "0"))
EVENTS = "events"


@pytest.fixture(scope="module")
def bench(airflow_with: Callable[..., Any], blue: ClusterConnection, green: ClusterConnection) -> Iterator[Bench]:
    with started(airflow_with, blue, green) as bench:
        yield bench


@contextmanager
def started(
    airflow_with: Callable[..., Any], blue: ClusterConnection, green: ClusterConnection, **settings: str
) -> Iterator[Bench]:
    logging.getLogger("httpx").setLevel(logging.WARNING)
    settings = QUICK | {"PULSAR_FLEET_WATCH": '{"schedule": null}'} | settings
    with (
        recording(blue.admin_url, blue.admin_url) as (by_airflow, by_others),
        airflow_with(settings, blue=by_airflow.url) as stack,
    ):
        faulty = FaultyAirflow(stack)
        try:
            yield Bench(faulty, blue, green, by_airflow, by_others)
        finally:
            faulty.close()


def make(side: ClusterConnection, name: NamespaceName) -> None:
    """A small namespace with policies of its own, and a backlog without consumers."""

    async def create() -> None:
        async with AdminClient(side) as admin:
            await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [side.name]})
            await admin.put_namespace(name, {"replication_clusters": [side.name]})
            events, late = TopicName(name, EVENTS), TopicName(name, LATE)
            await admin.create_partitioned_topic(events, 2)
            await admin.create_topic(late)
            await admin.create_subscription(late, LATE)
            for part in events.partitions(2):
                await admin.create_subscription(part, "billing")
            await admin.post(f"/namespaces/{name.path}/publishRate", RATE)
            await admin.post(f"/{events.path}/publishRate", TOPIC_RATE)
            await admin.post(f"/{late.path}/inactiveTopicPolicies", INACTIVE)

    asyncio.run(create())
    publish(side, TopicName(name, LATE), [NumberedMessage(LATE, "key", number, 1) for number in range(20)])


@pytest.mark.long
@pytest.mark.timeout(600 + 120 * POINTS)
def test_every_setting_comes_back(
    bench: Bench, new_namespace: Callable[[], NamespaceName], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(SEED)
    rounds = deal(shuffled_cards(POINTS, dice), dice)
    needed, most = sum(map(len, rounds[FIRST:])), 2 * len(rounds) + 2
    hits, number = Hits(), FIRST
    try:
        while number < len(rounds):
            (folder := tmp_path / str(number)).mkdir()
            name, round_dice = new_namespace(), random.Random(f"round {number} of {SEED}")
            make(bench.blue, name)
            log.info("round %s: %s", number, ", ".join(map(str, rounds[number])))
            play_round(DisturbedRun(bench, name, folder, round_dice), rounds[number], hits)
            number += 1
            if number == len(rounds) < most:
                rounds += deal(hits.take_missed(), dice)
    finally:
        with capsys.disabled():
            sys.stdout.write(f"\n{hits.table()}\nrounds: {number - FIRST}\n")
    assert len(hits.hits) >= needed, f"{needed - len(hits.hits)} disturbances hit no run in {most} rounds"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_clients_follow_their_document_although_airflow_dies(
    airflow_with: Callable[..., Any],
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CLIENTS_VARIABLE, str(tmp_path))
    documents = ConnectionDocuments.open()
    document = ConnectionDocument(service_url=str(blue.service_url))
    documents.publish("orders", document, cluster="blue", by="a test", why="", expected=0)
    topic = asyncio.run(make_linked(blue, green, new_namespace()))
    both = {"origin": "pulsar_blue", "target": "pulsar_green"}
    move = {**both, "group": "orders", "namespaces": [str(topic.namespace)], "auto_approve": True}
    with (
        started(airflow_with, blue, green, **{CLIENTS_VARIABLE: str(tmp_path)}) as bench,
        LiveApplication(tmp_path / "orders.json", topic).running() as live,
    ):
        run = dies_in(bench.airflow, live, "move_clients", move, "carry_positions")
        assert documents.newest("orders") == 2
        run = dies_in(bench.airflow, live, "return_clients", {"run": f"move_clients/{run}"}, "return_clients")
        assert documents.newest("orders") == 3
        dies_in(bench.airflow, live, "move_clients", move, "wait_arrived")
        asyncio.run(live.publish_more(50))
    published = documents.published("orders")
    assert (live.lost, published and published.cluster, documents.newest("orders")) == (set(), "green", 4)


def dies_in(airflow: FaultyAirflow, live: LiveApplication, dag: str, conf: JsonObject, task: str) -> str:
    """Kill a run in this task, and the scheduler; the application goes on without both. Then the run ends by itself."""
    asyncio.run(live.publish_more(50))
    airflow.dag = dag
    run = airflow.stack.trigger(dag, conf)
    over = ("success", "deferred")
    hit = wait_until(lambda: airflow.kill_task(run, task) or airflow.states(run)[task] in over, 120, task)
    assert airflow.kill_scheduler()
    log.info("%s: %s was killed: %s", dag, task, hit)
    asyncio.run(live.publish_more(100))
    airflow.start_scheduler()
    wait_until(lambda: airflow.run_state(run) in OVER, 240, f"{dag} ends")
    assert airflow.run_state(run) == "success", airflow.states(run)
    airflow.end_orphans()
    return run


async def make_linked(blue: ClusterConnection, green: ClusterConnection, namespace: NamespaceName) -> TopicName:
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        return await make_linked_topic(on_blue, on_green, namespace)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hung_job_ends_at_its_limit_although_the_scheduler_is_killed(
    airflow_with: Callable[..., Any],
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    tmp_path: Path,
) -> None:
    hangs, pids, program = tmp_path / "hangs", tmp_path / "pids", tmp_path / "bin" / "spark-submit"
    hangs.touch()
    program.parent.mkdir()
    wait = f"sleep 600 &\necho $$ $! >> {pids}\nwait"
    program.write_text(f'#!/bin/sh\n[ -e {hangs} ] || exec {shutil.which("spark-submit")} "$@"\n{wait}\n')
    program.chmod(0o755)
    make(blue, name := new_namespace())
    spark, path = json.dumps({"conn_type": "spark", "host": "local[1]"}), f"{program.parent}:{os.environ['PATH']}"
    limits = {"PULSAR_FLEET_CAPACITY": '{"minutes": {"spark": 1}}', "AIRFLOW_CONN_SPARK_DEFAULT": spark, "PATH": path}
    with started(airflow_with, blue, green, **limits) as bench:
        run = DisturbedRun(bench, name, tmp_path, random.Random(0))
        before = run.settings()
        try:
            run.start(spark_above_entries=1)
            wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"), 180, "the job hangs")
            assert bench.airflow.kill_scheduler()
            bench.airflow.start_scheduler()
            assert run.end() == "failed"
            states = bench.airflow.states(run.run)
            assert (states["verify_copy"], states["cut_over"], states["restore_blue"]) == (
                "failed",
                "upstream_failed",
                "success",
            )
            hung = [int(pid) for pid in pids.read_text().split()]
            assert [pid for pid in hung if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"] == []
            # The replication that the run began goes on; what it overrides is restored.
            restored = run.settings()["blue"]
            assert restored["brokers"] == before["blue"]["brokers"]
            rate = "publishMaxMessageRate"
            assert restored["namespace"][rate] == before["blue"]["namespace"][rate]
            hangs.unlink()
            run.finish()
            restore(run)
        except BaseException:
            run.give_up()
            restore(run)
            raise
        require_original(before, run.settings())
        assert str(name) not in records_of_runs(blue.require_service_url()).get("leases", {})


def play_round(run: DisturbedRun, points: list[Point], hits: Hits) -> None:
    """One migration with its disturbances; then every setting is as before."""
    before, ending = run.settings(), points[-1].card.ending
    try:
        run.start()
        for point in points:
            log.info("%s", point)
            place = run.play(point)
            hits.note(point.card, place)
            log.info("%s: %s", point, f"hit {place}" if place else "missed")
        if given_up := bool(place) and ending in GIVEN_UP:
            bring_back(run, ending)
        # With the flag its clients are on green: then the run is continued to its end, whatever was restored before.
        if not given_up or run.is_flagged():
            run.finish()
            restore(run)
    except BaseException:
        run.give_up()
        restore(run)
        raise
    run.airflow.end_orphans()
    require_original(before, run.settings())
    for side in run.bench.sides:
        records = records_of_runs(side.require_service_url())
        assert str(run.name) not in records.get("leases", {})
        assert not records.get("brokers")


def require_original(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Blue's settings are as before apart from the flag; green's are its own as before, or those of blue."""
    original, blue, green = before["blue"], after["blue"], neutral(after["green"], "green")
    flagged = blue["namespace"].pop("migrated")
    original["namespace"].pop("migrated")
    assert {**blue, "namespace": cleaned(blue["namespace"])} == {
        **original,
        "namespace": cleaned(original["namespace"]),
    }
    assert green.pop("brokers") == before["green"]["brokers"]
    expected = neutral(original, "blue")
    expected.pop("brokers")
    if "namespace" in green:
        green["namespace"].pop("migrated")
        green["namespace"] = cleaned(green["namespace"])
    expected["namespace"] = cleaned(expected["namespace"])
    if flagged:
        assert green == expected
    assert {key: value for key, value in green.items() if expected.get(key) != value} == {}


def cleaned(policies: dict[str, Any]) -> dict[str, Any]:
    """Without empty properties, which mean the same as none."""
    return {key: value for key, value in policies.items() if value not in (None, {}, [])}
