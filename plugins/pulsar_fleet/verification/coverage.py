"""How much of the topics is compared: all, a time window, a sample, or the part since the last proof (pure)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject

PIECE_ENTRIES = 100
"""Consecutive entries that a sample reads."""


class Mode(StrEnum):
    """Which part of each topic is compared."""

    FULL = "full"
    WINDOW = "window"
    """Messages published between two times; only in copies that geo-replication made, which keep the publish time."""
    SAMPLE = "sample"
    """Random pieces; only in copies that geo-replication made, because only their entries correspond."""
    INCREMENTAL = "incremental"
    """Messages since the last proof in the ledger; the result is a proof of both parts."""


class Compaction(StrEnum):
    """When the latest value of each key is compared, as readers of a compacted topic get it."""

    AUTO = "auto"
    """Beside the log, if either cluster has compacted the topic: its log may lack values that its readers get."""
    ALWAYS = "always"
    """In place of the log."""
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample that detects differences in one of `one_in` messages with `probability`, if they are spread randomly.

    :param seed: chooses the pieces; the same seed chooses the same ones.
    """

    one_in: int = 10_000
    probability: float = 0.99
    seed: int = 1

    def entries(self, stored: int) -> int:
        """The number of a topic's `stored` entries to read: 1 - (1 - share read) ^ differing >= probability."""
        differing = max(1.0, stored / self.one_in)
        unread: float = (1 - self.probability) ** (1 / differing)
        return min(stored, math.ceil(stored * (1 - unread)))

    def choose(self, topic: str, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        """Pieces of the entries from `begin` up to `end`, ascending; () if all entries must be read.

        The pieces have equal distances from a random start, so that every entry is equally likely to be read, and
        differing entries in a row longer than that distance are always detected.
        """
        stored = end - begin
        pieces = math.ceil(self.entries(stored) / PIECE_ENTRIES)
        if pieces * PIECE_ENTRIES >= stored:
            return ()
        start = int(hashlib.sha256(f"{self.seed} {topic}".encode()).hexdigest(), 16) % stored
        starts = sorted((start + stored * number // pieces) % stored for number in range(pieces))
        wrapped = [(0, starts[-1] + PIECE_ENTRIES - stored)] if starts[-1] + PIECE_ENTRIES > stored else []
        spans = [*wrapped, *((first, min(stored, first + PIECE_ENTRIES)) for first in starts)]
        return tuple((begin + first, begin + last) for first, last in spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(Document):
    """Which part of each topic is compared.

    :param window: publish times in milliseconds since 1970, as (from, to), the end not included.
    """

    mode: Mode = Mode.FULL
    window: tuple[int, int] | None = None
    sample: Sample | None = None
    compaction: Compaction = Compaction.AUTO

    def __post_init__(self) -> None:
        if (self.mode is Mode.WINDOW) != (self.window is not None):
            raise InvalidRequest("Mode 'window' needs both times, window_from and window_to; no other mode takes them.")
        if (self.mode is Mode.SAMPLE) != (self.sample is not None):
            raise InvalidRequest("Mode 'sample' needs a sample, and no other mode takes one.")

    @classmethod
    def between(cls, begin: str | None, end: str | None, compaction: Compaction = Compaction.AUTO) -> Self:
        """A window between two ISO 8601 times; `InvalidRequest` if a time is invalid or the window is empty."""
        window = (_milliseconds("from", begin), _milliseconds("to", end))
        if window[0] >= window[1]:
            raise InvalidRequest(f"The window from {begin!r} to {end!r} is empty; its end must be after its beginning.")
        return cls(mode=Mode.WINDOW, window=window, compaction=compaction)

    @property
    def restriction(self) -> str:
        """The restriction of a verdict `equal`, as text; empty without one."""
        if self.window:
            begin, end = (datetime.fromtimestamp(time / 1000, UTC).isoformat() for time in self.window)
            return f"for messages published from {begin} to {end}"
        if self.sample:
            return (
                f"in the sample: it detects differences in 1 of {self.sample.one_in:,} messages of a topic with "
                f"probability {self.sample.probability:g}"
            )
        return ""


def coverage_of(params: JsonObject) -> Coverage:
    """The coverage of a DAG's params; `InvalidRequest` for an invalid window, or for times without mode `window`."""
    mode, compaction = Mode(params["mode"]), Compaction(params["compacted"])
    begin, end = params["window_from"], params["window_to"]
    if mode is Mode.WINDOW:
        return Coverage.between(begin, end, compaction)
    if begin or end:
        raise InvalidRequest(
            f"Mode {mode.value!r} does not take window_from and window_to: remove them, or use mode 'window'."
        )
    if mode is not Mode.SAMPLE:
        return Coverage(mode=mode, compaction=compaction)
    sample = Sample(**{name: params[f"sample_{name}"] for name in ("one_in", "probability", "seed")})
    return Coverage(mode=mode, sample=sample, compaction=compaction)


def _milliseconds(name: str, text: str | None) -> int:
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError as error:
        raise InvalidRequest(
            f"The window's {name!r} is {text!r}, which is not a valid time; write it as 2026-11-21T08:00:00+00:00."
        ) from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
