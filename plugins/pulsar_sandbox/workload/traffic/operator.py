"""The operator of the traffic: starts, watches and stops the applications, each in a process of its own.

Started with `python -m pulsar_sandbox.workload.traffic.operator`, stopped by SIGTERM: producers stop and wait for their
last answers, consumers go on until they have everything or nothing more comes, then the tally is written.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox.workload.live import CONSUMED, EVENTS, RESTART_SECONDS, SubscriptionType, live_topics
from pulsar_sandbox.workload.schemas import SchemaKind
from pulsar_sandbox.workload.traffic.application import ConsumerApplication, ProducerApplication, Topic
from pulsar_sandbox.workload.traffic.application_process import (
    ApplicationProcess,
    ReadingProcess,
    Received,
    WritingProcess,
)
from pulsar_sandbox.workload.traffic.journal import Counters, now, read_tally
from pulsar_sandbox.workload.traffic.supervisor import Supervisor
from pulsar_sandbox.workload.traffic.traffic import CONNECTION_VARIABLE

TALLY = "tally.json"
KEYS = tuple(f"c-{index}" for index in range(10))
_TICK_SECONDS = 0.25
_CONNECT_SECONDS = 45.0
_FLUSH_SECONDS = 15.0
_RECEIVE_SECONDS = 2.0
_LATE_SECONDS = 0.5
_RESTARTED_SECONDS = 8.0
"""In which a consumer that was restarted has received something."""
_DRAIN_SECONDS = 60.0
_QUIET_PRODUCER_MICROSECONDS = 2_000_000
_CONSUMERS_OF_EVENTS = {SubscriptionType.SHARED: 2, SubscriptionType.FAILOVER: 2, SubscriptionType.KEY_SHARED: 2}


class TrafficRun:
    """All applications of one run.

    :param rate: messages per second on each of the two topics.
    :param restart_seconds: seconds after which an application that is stuck is restarted.
    """

    def __init__(
        self,
        *,
        connection: ClusterConnection,
        namespace: NamespaceName,
        folder: Path,
        rate: float,
        restart_seconds: float,
    ) -> None:
        self._folder = folder
        self._running = True
        # Numbers start at 0 in each run, so the producers' names tell the runs apart.
        run = uuid4().hex[:6]
        events, audit = live_topics(namespace)
        written = (
            (Topic(name=str(events)), ("checkout-1", "checkout-2")),
            (Topic(name=str(audit), schema=SchemaKind.JSON, schema_versions=2), ("auditor-1",)),
        )
        self._producers = [
            WritingProcess(
                partial(
                    ProducerApplication,
                    connection,
                    topic,
                    f"{name}-{run}",
                    folder=folder,
                    keys=KEYS,
                    rate=rate / len(names),
                ),
                topic,
                f"{name}-{run}",
                folder=folder,
                seconds=_FLUSH_SECONDS,
            )
            for topic, names in written
            for name in names
        ]
        producers = [producer.name for producer in self._producers]
        self._readers = {
            (str(topic), subscription): _readers(connection, topic, subscription, producers, folder)
            for topic in (events, audit)
            for subscription in CONSUMED
        }
        self._consumers = [consumer for _, consumers in self._readers.values() for consumer in consumers]
        self._settled_seconds = restart_seconds + _RESTARTED_SECONDS
        self._supervisor = Supervisor(self._producers, self._readers, restart_seconds)

    @property
    def _applications(self) -> list[ApplicationProcess]:
        return [*self._consumers, *self._producers]

    def start(self) -> None:
        """Connect all, consumers first."""
        try:
            _start(self._consumers)
            _start(self._producers)
        except PreconditionFailed:
            for process in multiprocessing.active_children():
                process.kill()
            raise
        self.tick()

    def tick(self) -> None:
        """Read what the applications have written down, restart what is stuck, and publish the counters."""
        for application in self._applications:
            application.tick()
        self._supervisor.restart_stuck(writing=self._running)
        self._counters().write(self._folder)

    def stop(self) -> None:
        """Stop the producers, let the consumers catch up, close everything and write the tally."""
        self._running = False
        _finish(self._producers)
        self._drain()
        _finish(self._consumers)
        self._counters().write(self._folder)
        text = json.dumps(read_tally(self._folder).to_json(), indent=1)
        (self._folder / TALLY).write_text(text)

    def _drain(self) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end:
            self.tick()
            limit = _LATE_SECONDS if self._caught_up() else self._settled_seconds
            last = max(application.last_delivery for application in self._consumers)
            if now() - last > limit * 1_000_000:
                return
            time.sleep(_TICK_SECONDS)

    def _caught_up(self) -> bool:
        published: Counter[str] = Counter()
        for producer in self._producers:
            published[producer.topic.name] += producer.published
        return all(len(received) >= published[topic] for (topic, _), (received, _) in self._readers.items())

    def _counters(self) -> Counters:
        at = now()
        waiting = {producer.name: at - producer.last_ack for producer in self._producers}
        publish_pause = max(waiting.values()) // 1000 if self._running else 0
        received = dict.fromkeys(CONSUMED, 0)
        for (_, subscription), (arrived, _) in self._readers.items():
            received[subscription] += len(arrived)
        return Counters(
            at=at // 1000,
            running=self._running,
            published=sum(producer.published for producer in self._producers),
            failed=sum(producer.failures for producer in self._producers),
            in_flight=sum(producer.in_flight for producer in self._producers),
            received=received,
            stalled_producers=tuple(
                name for name, time_ in sorted(waiting.items()) if time_ > _QUIET_PRODUCER_MICROSECONDS
            ),
            publish_pause=publish_pause,
            longest_publish_pause=max(publish_pause, *(producer.longest_publish_pause for producer in self._producers)),
        )


def _readers(
    connection: ClusterConnection, topic: TopicName, subscription: str, producers: Sequence[str], folder: Path
) -> tuple[Received, list[ReadingProcess]]:
    """The consumers of one subscription, and what they have received."""
    received, kind = Received(producers), CONSUMED[subscription]
    count = _CONSUMERS_OF_EVENTS.get(kind, 1) if topic.local == EVENTS else 1
    place = Topic(name=str(topic))
    names = [f"{subscription}-{topic.local}-{index + 1}" for index in range(count)]
    return received, [
        ReadingProcess(
            partial(ConsumerApplication, connection, place, name, folder=folder, subscription=subscription, type=kind),
            place,
            name,
            folder=folder,
            seconds=_RECEIVE_SECONDS,
            received=received,
        )
        for name in names
    ]


def _start(applications: Sequence[ApplicationProcess]) -> None:
    for application in applications:
        application.start()
    for application in applications:
        application.wait_connected(_CONNECT_SECONDS)


def _finish(applications: Sequence[ApplicationProcess]) -> None:
    for application in applications:
        application.stop()
    for application in applications:
        application.finish()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Numbered traffic on the live namespace of an estate.")
    parser.add_argument("--namespace", required=True, help="tenant/namespace")
    parser.add_argument("--journal", required=True, type=Path, help="an empty or new folder for the journals")
    parser.add_argument("--rate", type=float, default=50.0, help="messages per second and topic")
    parser.add_argument(
        "--restart-seconds", type=float, default=RESTART_SECONDS, help="seconds before a stuck one is restarted"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s - %(message)s")
    stop = threading.Event()
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stop.set())
    options.journal.mkdir(parents=True, exist_ok=True)
    run = TrafficRun(
        connection=pickle.loads(base64.b64decode(os.environ[CONNECTION_VARIABLE])),  # noqa: S301 - by our own parent
        namespace=NamespaceName.parse(options.namespace),
        folder=options.journal,
        rate=options.rate,
        restart_seconds=options.restart_seconds,
    )
    run.start()
    while not stop.wait(_TICK_SECONDS):
        run.tick()
    run.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
