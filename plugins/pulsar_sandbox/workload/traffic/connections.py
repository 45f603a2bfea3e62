"""When an application had no connection to a partition, from the log that its client library writes.

The library reconnects without a word to the application, so its log is the only evidence of that.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pulsar_sandbox.workload.traffic.records import Interruption

_LINE = re.compile(
    r"^(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) .*\| \[(?P<partition>[a-z-]+://[^,\]]+), [^\]]*\] "
    r"(?P<what>Created (?:consumer|producer) on broker|Schedule reconnection)"
)
"""As pulsar-client 3.13 writes it: `[partition, subscription or producer, id] Created consumer on broker […]`."""


def client_log(folder: Path, name: str) -> Path:
    """Where the client library of that application writes; a process that follows another continues the file."""
    return folder / f"{name}.client.log"


def read_interruptions(log: Path, replaced: Mapping[int, bool]) -> tuple[Interruption, ...]:
    """The times without a connection, the one before the first connection included; none without a log.

    :param replaced: when the client object was replaced (microseconds), and whether its process was too.
    """
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    events: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for match in filter(None, map(_LINE.match, text.splitlines())):
        events[match["partition"]].append((_microseconds(match["at"]), match["what"]))
    return tuple(
        interruption for partition in sorted(events) for interruption in _of(partition, events[partition], replaced)
    )


def _of(partition: str, logged: list[tuple[int, str]], replaced: Mapping[int, bool]) -> list[Interruption]:
    losses = [(at, restarted) for at, restarted in replaced.items()]
    losses += [(at, False) for at, what in logged if what.startswith("Schedule")]
    connected = sorted(at for at, what in logged if what.startswith("Created"))
    interruptions, after = [], -1
    for at in connected:
        causes = sorted(loss for loss in losses if after < loss[0] <= at)
        began = causes[0][0] if causes else None
        interruptions.append(Interruption(partition, began, at, any(restarted for _, restarted in causes)))
        after = at
    if open_causes := sorted(loss for loss in losses if loss[0] > after):
        restarted = any(restarted for _, restarted in open_causes)
        interruptions.append(Interruption(partition, open_causes[0][0], None, restarted))
    return interruptions


def _microseconds(text: str) -> int:
    # The library writes local time.
    return round(datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f").timestamp() * 1_000_000)
