"""Applications in a process of their own, in Java, Python or Go, and what they saw while their topics were moved.

Each topic has one producer, which numbers its messages; whoever reads it is a group: the consumers of a subscription, a
reader, or a consumer by pattern.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from pulsar_fleet.cluster.names import TopicName

# As in the programs: so many messages of a key one after the other, so many keys.
RUN, KEYS = 8, 10
CHUNKED, TRANSACTED = "chunked", "transacted"
_START_SECONDS = 90
_READ_ON_SECONDS = 6.0
_RATE_SECONDS = 5
_STUCK_MICROSECONDS = 3_000_000
_CONSUMERS = {"Exclusive": 1, "Failover": 2, "Shared": 2, "Key_Shared": 2}


@dataclass(frozen=True, slots=True)
class Flow:
    """A topic, its producer, and who reads it.

    :param type: of the subscription `work`; empty where there is none.
    :param reader: a reader reads it too.
    :param pattern: the subscription of a consumer that finds it by a pattern; empty for none.
    :param client: flows in a row of the same name share a client object; empty: it has one for itself.
    :param kind: of its messages: `plain`, `chunked` or `transacted`; the latter two with Java only.
    """

    topic: TopicName
    rate: int
    type: str = ""
    partitions: int = 0
    reader: bool = False
    pattern: str = ""
    client: str = ""
    kind: str = "plain"

    @property
    def subscriptions(self) -> dict[str, int]:
        """Subscription → number of its consumers."""
        consumers = {"work": _CONSUMERS[self.type]} if self.type else {}
        return consumers | ({self.pattern: 1} if self.pattern else {})

    @property
    def stored(self) -> tuple[TopicName, ...]:
        """What holds the messages."""
        return tuple(self.topic.partitions(self.partitions)) if self.partitions else (self.topic,)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a producer saw: number → when it was acknowledged, in microseconds; and the numbers that failed."""

    acked: dict[int, int] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Events:
    """What was seen: of each flow by its place, its producer, and group → what it received, in order.

    :param arrived: when each of `received` came, microseconds since 1970.
    :param stopped: when the producers were told to stop, microseconds since 1970.
    """

    answers: dict[int, Answer]
    received: dict[tuple[int, str], list[int]]
    arrived: dict[tuple[int, str], list[int]]
    stopped: int

    def rate(self, before: int) -> float:
        """Messages a second that were acknowledged in all, in the seconds up to a time."""
        since = before - _RATE_SECONDS * 1_000_000
        return (
            sum(since <= at < before for answer in self.answers.values() for at in answer.acked.values())
            / _RATE_SECONDS
        )


class Applications:
    """A running process of applications; obtain one by `running`."""

    def __init__(self, process: subprocess.Popen[str], flows: Sequence[Flow], file: Path) -> None:
        self.flows = flows
        self._process, self._file = process, file
        self._stopped = 0

    def stop(self) -> None:
        """Stop the producers; consumers go on."""
        self._stopped = time.time_ns() // 1000
        self._say("stop")

    def end(self) -> Events:
        """End it and read what was seen."""
        self._say("end")
        self._process.wait(60)
        answers: dict[int, Answer] = defaultdict(Answer)
        received: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        for line in self._file.read_text().splitlines():
            kind, *words = line.split(" ")
            if kind == "A":
                answers[int(words[0])].acked[int(words[1])] = int(words[2])
            elif kind == "E":
                answers[int(words[0])].failed.append(int(words[1]))
            else:
                group = words[0].split("/")[0]
                received[int(words[1]), group].append((int(words[3]), int(words[2])))
        # Two consumers of a subscription write down what they get apart from each other.
        in_order = {key: [number for _, number in sorted(arrivals)] for key, arrivals in received.items()}
        arrived = {key: sorted(at for at, _ in arrivals) for key, arrivals in received.items()}
        return Events(answers, in_order, arrived, self._stopped)

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()


@contextmanager
def running(
    command: Sequence[str], url: str, flows: Sequence[Flow], file: Path, document: str = ""
) -> Iterator[Applications]:
    """Start the applications; they are connected when this returns, and do not outlive it.

    The producer of each topic shares a client object with its consumers, and with flows of the same client; readers and
    pattern consumers have their own.

    :param document: the URL of a connection document that they follow; empty: they stay with the `url`.
    """
    log = file.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, url, str(file), *([document] if document else [])],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        assert process.stdin is not None
        process.stdin.write("".join(f"{line}\n" for line in [*_lines(flows), ""]))
        process.stdin.flush()
        end = time.monotonic() + _START_SECONDS
        while not file.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{command[0]} did not connect: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield Applications(process, flows, file)
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def running_each(
    stack: ExitStack,
    commands: Mapping[str, Sequence[str]],
    url: str,
    flows: Mapping[str, Sequence[Flow]],
    folder: Path,
    document: str = "",
) -> dict[str, Applications]:
    """The applications of several clients, by their names, as `running`; their events lie beside the folder."""
    started: dict[str, Applications] = {}
    for client, command in commands.items():
        file = folder.with_name(f"{folder.name}-{client}.events".replace(" ", "-"))
        started[client] = stack.enter_context(running(command, url, flows[client], file, document))
    return started


def _lines(flows: Sequence[Flow]) -> Iterator[str]:
    patterns: dict[str, list[Flow]] = defaultdict(list)
    client = ""
    for index, flow in enumerate(flows):
        if not flow.client or flow.client != client:
            yield "client transactions" if flow.kind == TRANSACTED else "client"
        client = flow.client
        for number in range(flow.subscriptions.get("work", 0)):
            yield f"consumer work/{number} {flow.topic} work {flow.type}"
        if flow.pattern:
            patterns[flow.pattern].append(flow)
        yield f"producer {index} {flow.topic} {flow.rate} {flow.type or '-'} {flow.kind}"
        if flow.reader:
            yield "client"
            yield f"reader reader {flow.topic}"
    for pattern, matching in patterns.items():
        yield "client"
        yield f"pattern {pattern} persistent://{matching[0].topic.namespace}/{pattern}-.* {pattern}"


def writers(answer: Answer, partitions: int) -> list[list[int]]:
    """Times of acknowledgment, in order, for each partition that the producer writes to."""
    times: dict[int, list[int]] = defaultdict(list)
    for number, time_ in answer.acked.items():
        times[partition_of(number, partitions)].append(time_)
    return [sorted(times[partition]) for partition in range(partitions or 1)]


def partition_of(number: int, partitions: int) -> int:
    """Where the Java client sends a message: the hash of its key's text."""
    return (31 * ord("k") + ord("0") + number // RUN % KEYS) % partitions if partitions else 0


def is_stuck(times: Sequence[int], stopped: int) -> bool:
    """No message was acknowledged in the last 3 s before the stop."""
    return not times or times[-1] < stopped - _STUCK_MICROSECONDS


def silence(times: Sequence[int], began: int, ended: float = math.inf) -> float:
    """The longest time without an acknowledgment that ended after `began`, and began before `ended`, in seconds."""
    return (
        max((after - before for before, after in pairwise(times) if after > began and before < ended), default=0) / 1e6
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """What a group got: acknowledged messages that it did not get, messages that it got again, keys out of order."""

    missing: int
    twice: int
    order_breaks: int


def reading(answer: Answer, received: Sequence[int]) -> Reading:
    """Compare what a group got with what was acknowledged; a repetition is no break of the order."""
    numbers: set[int] = set()
    latest: dict[int, int] = {}
    twice = breaks = 0
    for number in received:
        if number in numbers:
            twice += 1
            continue
        numbers.add(number)
        key = number // RUN % KEYS
        breaks += number < latest.get(key, -1)
        latest[key] = max(number, latest.get(key, -1))
    return Reading(len(answer.acked.keys() - numbers), twice, breaks)
