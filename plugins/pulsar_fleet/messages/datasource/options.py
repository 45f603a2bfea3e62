"""What `spark.read.format("pulsar")` is asked for (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.credentials import Side
from pulsar_fleet.messages.ranges import ENTRIES_PER_RANGE

Bound = Position | int
"""A message id, or a publish time in milliseconds since 1970."""

_KNOWN = (
    "admin_url",
    "service_url",
    "topics",
    "topics_pattern",
    "start",
    "end",
    "out",
    "buckets",
    "engine",
    "entries_per_task",
    "max_bytes_per_second",
    "credentials",
)
_ENTRY_ID = re.compile(r"^\d+:\d+$")


class Out(StrEnum):
    """What comes out."""

    ROWS = "rows"
    """A row for each message."""
    DIGESTS = "digests"
    """A row for each range and bucket: counts and sums that add up over ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """Which messages of one cluster are read, and how.

    :param pattern: full names of the wanted topics, as a regular expression for the whole local name in `within`.
    :param start: the first message, or None for the earliest that is stored.
    :param end: the last message, or with a time the first that is left out; None for what is stored now.
    :param credentials: whose environment variables hold the credentials.
    """

    admin_url: str
    service_url: str
    topics: tuple[TopicName, ...] = ()
    within: NamespaceName | None = None
    pattern: str = ""
    start: Bound | None = None
    end: Bound | None = None
    out: Out = Out.ROWS
    buckets: int = 256
    by_entry: bool = False
    entries_per_task: int = ENTRIES_PER_RANGE
    max_bytes_per_second: int | None = None
    credentials: Side = Side.SOURCE

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read Spark's options, whose names have no case. `InvalidRequest` with one sentence for what cannot be
        meant.
        """
        given = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(given.keys() - set(_KNOWN) - {"path"}):
            raise InvalidRequest(f"Option {unknown[0]!r} is unknown to format 'pulsar': it takes {', '.join(_KNOWN)}.")
        topics, within, pattern = _wanted(given)
        start, end = _bound(given, "start", "earliest"), _bound(given, "end", "latest")
        if _is_before(end, start):
            raise InvalidRequest(
                f"The option end={given['end']!r} lies before start={given['start']!r}: exchange them."
            )
        out, by_entry = Out(_one_of(given, "out", tuple(Out))), _one_of(given, "engine", ("client", "entry")) == "entry"
        if by_entry and (out is Out.ROWS or isinstance(start, int) or isinstance(end, int)):
            raise InvalidRequest("engine='entry' reads whole entries, so it gives digests alone, between message ids.")
        return cls(
            admin_url=_required(given, "admin_url", "http://host:8080"),
            service_url=_required(given, "service_url", "pulsar://host:6650"),
            topics=topics,
            within=within,
            pattern=pattern,
            start=start,
            end=end,
            out=out,
            buckets=_number(given, "buckets", 256) or 256,
            by_entry=by_entry,
            entries_per_task=_number(given, "entries_per_task", ENTRIES_PER_RANGE) or ENTRIES_PER_RANGE,
            max_bytes_per_second=_number(given, "max_bytes_per_second", None),
            credentials=Side(_one_of(given, "credentials", tuple(Side))),
        )

    @property
    def window(self) -> tuple[int, int] | None:
        """Publish times that count, as (from, to); None where no bound is a time."""
        if isinstance(self.start, int) or isinstance(self.end, int):
            return (
                self.start if isinstance(self.start, int) else 0,
                self.end if isinstance(self.end, int) else 1 << 62,
            )
        return None


def _wanted(given: Mapping[str, str]) -> tuple[tuple[TopicName, ...], NamespaceName | None, str]:
    listed, pattern = given.get("topics") or given.get("path") or "", given.get("topics_pattern", "")
    if bool(listed) == bool(pattern):
        raise InvalidRequest(
            "Name what to read by one option of topics (persistent://acme/orders/events, several with commas) and "
            "topics_pattern (persistent://acme/orders/events-.*)."
        )
    if listed:
        return tuple(TopicName.parse(text.strip()) for text in listed.split(",")), None, ""
    # The namespace is literal: brokers list topics by namespace.
    domain, _, rest = pattern.partition("://")
    parts = rest.split("/", 2)
    if domain != "persistent" or len(parts) != 3:
        raise InvalidRequest(
            f"The option topics_pattern={pattern!r} is not usable: write it as persistent://tenant/namespace/ and a "
            "regular expression for the topic's own name."
        )
    try:
        re.compile(parts[2])
    except re.error as error:
        raise InvalidRequest(f"The option topics_pattern={pattern!r} is no regular expression: {error}.") from error
    return (), NamespaceName.parse(f"{parts[0]}/{parts[1]}"), parts[2]


def _bound(given: Mapping[str, str], name: str, open_end: str) -> Bound | None:
    text = given.get(name, open_end)
    if text == open_end:
        return None
    if _ENTRY_ID.match(text):
        return Position.parse(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidRequest(
            f"The option {name}={text!r} is neither {open_end!r}, a message id such as 123:4, nor a time with its zone "
            "such as 2026-11-21T08:00:00+00:00."
        )
    return round(time.timestamp() * 1000)


def _is_before(end: Bound | None, start: Bound | None) -> bool:
    """Whether it is; an id and a time cannot be compared."""
    if isinstance(end, Position):
        return isinstance(start, Position) and end < start
    return isinstance(end, int) and isinstance(start, int) and end < start


def _required(given: Mapping[str, str], name: str, example: str) -> str:
    if not given.get(name):
        raise InvalidRequest(f"Option {name} is missing: give it as {example}.")
    return given[name]


def _one_of(given: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    found = given.get(name, known[0])
    if found not in known:
        raise InvalidRequest(f"The option {name}={found!r} is unknown: it takes {' or '.join(map(str, known))}.")
    return found


def _number(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    if name not in given:
        return default
    if not given[name].isdigit() or int(given[name]) < 1:
        raise InvalidRequest(f"The option {name}={given[name]!r} is not usable: give a whole number from 1 on.")
    return int(given[name])
