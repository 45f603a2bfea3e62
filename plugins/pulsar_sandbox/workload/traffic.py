"""The traffic process: named producers and consumers of the live namespace, in a process of their own.

Started with `python -m pulsar_sandbox.workload.traffic`, stopped by SIGTERM: producers stop and wait for their
last answers, consumers go on until they have everything or nothing more comes, then the tally is written.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_sandbox.workload.application import Application, Topic
from pulsar_sandbox.workload.consumer import ConsumerApplication, Received
from pulsar_sandbox.workload.journal import Counters, now, read_tally
from pulsar_sandbox.workload.live import CONSUMED, RESTART_SECONDS, SubscriptionType, live_topics
from pulsar_sandbox.workload.producer import ProducerApplication
from pulsar_sandbox.workload.schemas import SchemaKind
from pulsar_sandbox.workload.supervision import Supervisor

TALLY = "tally.json"
KEYS = tuple(f"c-{index}" for index in range(10))
_TICK_SECONDS = 0.25
_FLUSH_SECONDS = 15.0
_LATE_SECONDS = 0.5
_RESTARTED_SECONDS = 8.0
"""In which a consumer that was restarted has received something."""
_DRAIN_SECONDS = 60.0
_QUIET_PRODUCER_MICROSECONDS = 2_000_000
_CONSUMERS_OF_EVENTS = {SubscriptionType.SHARED: 2, SubscriptionType.FAILOVER: 2, SubscriptionType.KEY_SHARED: 2}


class TrafficRun:
    """All applications of one run.

    :param rate: messages per second on each of the two topics.
    :param patience: seconds after which an application that is stuck is restarted.
    """

    def __init__(
        self, *, service_url: str, namespace: NamespaceName, folder: Path, rate: float, patience: float
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
            ProducerApplication(service_url, topic, f"{name}-{run}", folder=folder, keys=KEYS, rate=rate / len(names))
            for topic, names in written
            for name in names
        ]
        names = [producer.name for producer in self._producers]
        self._received = {
            (str(topic), subscription): Received(names) for topic in (events, audit) for subscription in CONSUMED
        }
        self._quiesce_seconds = patience + _RESTARTED_SECONDS
        self._consumers = [
            ConsumerApplication(
                service_url,
                Topic(name=topic),
                name,
                folder=folder,
                subscription=subscription,
                type=CONSUMED[subscription],
                received=received,
            )
            for (topic, subscription), received in self._received.items()
            for name in _consumer_names(topic, subscription, events=topic == str(events))
        ]
        self._supervisor = Supervisor(
            self._producers,
            {
                (topic, subscription): (
                    received,
                    [one for one in self._consumers if (one.topic.name, one.subscription) == (topic, subscription)],
                )
                for (topic, subscription), received in self._received.items()
            },
            patience,
        )

    @property
    def _applications(self) -> list[Application]:
        return [*self._consumers, *self._producers]

    def start(self) -> None:
        """Connect all, consumers first."""
        with ThreadPoolExecutor(len(self._consumers)) as pool:
            list(pool.map(Application.start, self._consumers))
            list(pool.map(Application.start, self._producers))
        self.tick()

    def tick(self) -> None:
        """Make everything so far safe and publish the counters."""
        for application in self._applications:
            application.journal.flush()
        self._supervisor.look(writing=self._running)
        self._counters().write(self._folder)

    def stop(self) -> None:
        """Stop the producers, let the consumers catch up, close everything and write the tally."""
        self._running = False
        for producer in self._producers:
            producer.stop()
        self._each(self._producers, _FLUSH_SECONDS)
        self._drain()
        for consumer in self._consumers:
            consumer.stop()
        self._each(self._consumers, 2.0)
        self.tick()
        text = json.dumps(read_tally(self._folder).to_json(), indent=1)
        (self._folder / TALLY).write_text(text)

    def _each(self, applications: Sequence[Application], seconds: float) -> None:
        with ThreadPoolExecutor(len(applications)) as pool:
            list(pool.map(lambda application: application.finish(seconds), applications))

    def _drain(self) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end:
            self.tick()
            quiet = _LATE_SECONDS if self._caught_up() else self._quiesce_seconds
            last = max(application.last_delivery for application in self._consumers)
            if now() - last > quiet * 1_000_000:
                return
            time.sleep(_TICK_SECONDS)

    def _caught_up(self) -> bool:
        published = {
            topic: sum(each.published for each in self._producers if each.topic.name == topic)
            for topic in {each.topic.name for each in self._producers}
        }
        return all(len(received) >= published[topic] for (topic, _), received in self._received.items())

    def _counters(self) -> Counters:
        at = now()
        waiting = {each.name: at - each.last_ack for each in self._producers}
        silence = max(waiting.values()) // 1000 if self._running else 0
        received = dict.fromkeys(CONSUMED, 0)
        for (_, subscription), arrived in self._received.items():
            received[subscription] += len(arrived)
        return Counters(
            at=at // 1000,
            running=self._running,
            published=sum(each.published for each in self._producers),
            failed=sum(each.failures for each in self._producers),
            in_flight=sum(each.in_flight for each in self._producers),
            received=received,
            quiet_producers=tuple(
                name for name, time_ in sorted(waiting.items()) if time_ > _QUIET_PRODUCER_MICROSECONDS
            ),
            silence=silence,
            longest_silence=max(silence, *(each.longest_silence for each in self._producers)),
        )


def _consumer_names(topic: str, subscription: str, *, events: bool) -> list[str]:
    count = _CONSUMERS_OF_EVENTS.get(CONSUMED[subscription], 1) if events else 1
    return [f"{subscription}-{topic.rpartition('/')[2]}-{index + 1}" for index in range(count)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Numbered traffic on the live namespace of an estate.")
    parser.add_argument("--service-url", required=True, help="where the applications connect first")
    parser.add_argument("--namespace", required=True, help="tenant/namespace")
    parser.add_argument("--journal", required=True, type=Path, help="an empty or new folder for the journals")
    parser.add_argument("--rate", type=float, default=50.0, help="messages per second and topic")
    parser.add_argument(
        "--patience", type=float, default=RESTART_SECONDS, help="seconds before a stuck one is restarted"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s - %(message)s")
    stop = threading.Event()
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stop.set())
    options.journal.mkdir(parents=True, exist_ok=True)
    run = TrafficRun(
        service_url=options.service_url,
        namespace=NamespaceName.parse(options.namespace),
        folder=options.journal,
        rate=options.rate,
        patience=options.patience,
    )
    run.start()
    while not stop.wait(_TICK_SECONDS):
        run.tick()
    run.stop()
    return 0


if __name__ == "__main__":
    code = main()
    # A client library that hangs would keep the interpreter from ending.
    sys.stdout.flush()
    os._exit(code)
