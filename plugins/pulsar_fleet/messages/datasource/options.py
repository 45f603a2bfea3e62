"""The options of `spark.read.format("pulsar")` (pure)."""

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

_OPTIONS = (
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
    "fail_on_data_loss",
    "credentials",
)
_ENTRY_ID = re.compile(r"^\d+:\d+$")


class Output(StrEnum):
    """The kind of rows."""

    ROWS = "rows"
    """A row for each message."""
    DIGESTS = "digests"
    """A row for each range and bucket: counts and sums that add up over ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """Which messages of one cluster are read, and how.

    :param pattern: a regular expression for the whole local names of topics in `namespace`.
    :param start: the first message; None for the earliest stored one.
    :param end: the last message, or a publish time before which messages are read; None for the latest stored one.
    :param fail_on_data_loss: whether a message id that is not stored, or a missing partition, is refused.
    :param credentials: the side whose environment variables hold the credentials.
    """

    admin_url: str
    service_url: str
    topics: tuple[TopicName, ...] = ()
    namespace: NamespaceName | None = None
    pattern: str = ""
    start: Bound | None = None
    end: Bound | None = None
    out: Output = Output.ROWS
    buckets: int = 256
    by_entry: bool = False
    entries_per_task: int = ENTRIES_PER_RANGE
    max_bytes_per_second: int | None = None
    fail_on_data_loss: bool = True
    credentials: Side = Side.SOURCE

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read Spark's options, whose names are case-insensitive. `InvalidRequest` for an invalid option."""
        values = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(values.keys() - set(_OPTIONS) - {"path"}):
            raise InvalidRequest(f"Format 'pulsar' has no option {unknown[0]!r}: it takes {', '.join(_OPTIONS)}.")
        topics, namespace, pattern = _topic_options(values)
        start, end = _bound(values, "start", "earliest"), _bound(values, "end", "latest")
        if _is_before(end, start):
            raise InvalidRequest(
                f"The option end={values['end']!r} is before start={values['start']!r}: exchange them."
            )
        out, by_entry = (
            Output(_one_of(values, "out", tuple(Output))),
            _one_of(values, "engine", ("message", "entry")) == "entry",
        )
        if by_entry and (out is Output.ROWS or isinstance(start, int) or isinstance(end, int)):
            raise InvalidRequest("engine='entry' gives digests only, between message ids.")
        return cls(
            admin_url=_required(values, "admin_url", "http://host:8080"),
            service_url=_required(values, "service_url", "pulsar://host:6650"),
            topics=topics,
            namespace=namespace,
            pattern=pattern,
            start=start,
            end=end,
            out=out,
            buckets=_number(values, "buckets", 256) or 256,
            by_entry=by_entry,
            entries_per_task=_number(values, "entries_per_task", ENTRIES_PER_RANGE) or ENTRIES_PER_RANGE,
            max_bytes_per_second=_number(values, "max_bytes_per_second", None),
            fail_on_data_loss=_one_of(values, "fail_on_data_loss", ("true", "false")) == "true",
            credentials=Side(_one_of(values, "credentials", tuple(Side))),
        )

    @property
    def window(self) -> tuple[int, int] | None:
        """The publish times that are read, as (from, to); None if no bound is a time."""
        if isinstance(self.start, int) or isinstance(self.end, int):
            return (
                self.start if isinstance(self.start, int) else 0,
                self.end if isinstance(self.end, int) else 1 << 62,
            )
        return None


def _topic_options(values: Mapping[str, str]) -> tuple[tuple[TopicName, ...], NamespaceName | None, str]:
    listed, pattern = values.get("topics") or values.get("path") or "", values.get("topics_pattern", "")
    if bool(listed) == bool(pattern):
        raise InvalidRequest(
            "Give either the option topics (persistent://acme/orders/events, several with commas) or the option "
            "topics_pattern (persistent://acme/orders/events-.*)."
        )
    if listed:
        return tuple(TopicName.parse(text.strip()) for text in listed.split(",")), None, ""
    # The namespace is literal: brokers list topics by namespace.
    domain, _, rest = pattern.partition("://")
    parts = rest.split("/", 2)
    if domain != "persistent" or len(parts) != 3:
        raise InvalidRequest(
            f"The option topics_pattern={pattern!r} is not valid: write it as persistent://tenant/namespace/ and a "
            "regular expression for the topic's local name."
        )
    try:
        re.compile(parts[2])
    except re.error as error:
        message = f"The option topics_pattern={pattern!r} is not a valid regular expression: {error}."
        raise InvalidRequest(message) from error
    return (), NamespaceName.parse(f"{parts[0]}/{parts[1]}"), parts[2]


def _bound(values: Mapping[str, str], name: str, open_end: str) -> Bound | None:
    text = values.get(name, open_end)
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
            "such as 2026-11-21T08:00:00+00:00; correct it."
        )
    return round(time.timestamp() * 1000)


def _is_before(end: Bound | None, start: Bound | None) -> bool:
    """Whether `end` is before `start`; False for a message id and a time, which cannot be compared."""
    if isinstance(end, Position):
        return isinstance(start, Position) and end < start
    return isinstance(end, int) and isinstance(start, int) and end < start


def _required(values: Mapping[str, str], name: str, example: str) -> str:
    if not values.get(name):
        raise InvalidRequest(f"The option {name} is missing: write it as {example}.")
    return values[name]


def _one_of(values: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = values.get(name, choices[0])
    if value not in choices:
        raise InvalidRequest(f"The option {name}={value!r} is not valid: it takes {' or '.join(map(str, choices))}.")
    return value


def _number(values: Mapping[str, str], name: str, default: int | None) -> int | None:
    if name not in values:
        return default
    if not values[name].isdigit() or int(values[name]) < 1:
        raise InvalidRequest(f"The option {name}={values[name]!r} is not valid: give an integer of at least 1.")
    return int(values[name])
