"""How much of the topics is compared: all, a window of time, a sample, or what came since the last proof (pure)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject

PIECE = 100
"""Entries that a sample reads in one go."""


class Mode(StrEnum):
    """Which part of each topic is compared."""

    FULL = "full"
    WINDOW = "window"
    """What was published between two times; only in copies that geo-replication made, which keep that time."""
    SAMPLE = "sample"
    """Pieces chosen by chance; only in such copies too, because only there entries correspond."""
    INCREMENTAL = "incremental"
    """What came since the last proof in the ledger; the result is a proof of both."""


class Compaction(StrEnum):
    """When only the latest value of each key is compared, as readers of a compacted topic see it."""

    AUTO = "auto"
    """Where either side has compacted the topic: its log may have lost what the other one's still holds."""
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A sample that finds a difference in one of `one_in` messages with `probability`, if it lies anywhere by chance.

    :param seed: chooses the pieces; the same seed chooses the same ones.
    """

    one_in: int = 10_000
    probability: float = 0.99
    seed: int = 1

    def entries(self, held: int) -> int:
        """How many of the entries that a topic holds are read: 1 - (1 - share read) ^ differing >= probability."""
        differing = max(1.0, held / self.one_in)
        unread: float = (1 - self.probability) ** (1 / differing)
        return min(held, math.ceil(held * (1 - unread)))

    def choose(self, topic: str, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        """Pieces of the entries from `begin` up to `end`, ascending; () when all of them have to be read.

        One piece in equal distances from a random start, so that every entry is as likely to be read as any other, and
        a run of differing entries longer than a distance is found in any case.
        """
        held = end - begin
        pieces = math.ceil(self.entries(held) / PIECE)
        if pieces * PIECE >= held:
            return ()
        start = int(hashlib.sha256(f"{self.seed} {topic}".encode()).hexdigest(), 16) % held
        starts = sorted((start + held * number // pieces) % held for number in range(pieces))
        wrapped = [(0, starts[-1] + PIECE - held)] if starts[-1] + PIECE > held else []
        spans = [*wrapped, *((each, min(held, each + PIECE)) for each in starts)]
        return tuple((begin + first, begin + behind) for first, behind in spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What of each topic is compared.

    :param window: publish times in milliseconds since 1970, as (from, to), the end not included.
    """

    mode: Mode = Mode.FULL
    window: tuple[int, int] | None = None
    sample: Sample | None = None
    compaction: Compaction = Compaction.AUTO

    def __post_init__(self) -> None:
        if (self.mode is Mode.WINDOW) != (self.window is not None):
            raise InvalidRequest("Mode 'window' needs both of its times, and no other mode takes them.")
        if (self.mode is Mode.SAMPLE) != (self.sample is not None):
            raise InvalidRequest("Mode 'sample' needs a sample, and no other mode takes one.")

    @classmethod
    def between(cls, begin: str | None, end: str | None, compaction: Compaction = Compaction.AUTO) -> Self:
        """A window between two ISO 8601 times; `InvalidRequest` where that is none."""
        window = (_milliseconds("from", begin), _milliseconds("to", end))
        if window[0] >= window[1]:
            raise InvalidRequest(
                f"The window from {begin!r} to {end!r} is empty; its end must lie behind its beginning."
            )
        return cls(mode=Mode.WINDOW, window=window, compaction=compaction)

    @property
    def restriction(self) -> str:
        """What an equality is restricted to, for a person; empty where it is not."""
        if self.window:
            begin, end = (datetime.fromtimestamp(each / 1000, UTC).isoformat() for each in self.window)
            return f"of what was published from {begin} to {end}"
        if self.sample:
            return (
                f"in the sample: finds a difference in 1 of {self.sample.one_in:,} messages of a topic with "
                f"probability {self.sample.probability:g}"
            )
        return ""

    def to_json(self) -> JsonObject:
        """As a JSON object; part of a request, which carries the version."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        begin, end = found["window"] or (0, 0)
        return cls(
            mode=Mode(found["mode"]),
            window=(begin, end) if found["window"] else None,
            sample=Sample(**found["sample"]) if found["sample"] else None,
            compaction=Compaction(found["compaction"]),
        )


def coverage_of(params: JsonObject) -> Coverage:
    """The coverage that a DAG's params ask for; a window that is none, or times without its mode, are
    `InvalidRequest`.
    """
    mode, compaction = Mode(params["mode"]), Compaction(params["compacted"])
    begin, end = params["window_from"], params["window_to"]
    if mode is Mode.WINDOW:
        return Coverage.between(begin, end, compaction)
    if begin or end:
        raise InvalidRequest(
            f"window_from and window_to are for mode 'window', not for {mode.value!r}; leave them out."
        )
    if mode is not Mode.SAMPLE:
        return Coverage(mode=mode, compaction=compaction)
    asked = {name: params[f"sample_{name}"] for name in ("one_in", "probability", "seed")}
    return Coverage(mode=mode, sample=Sample(**asked), compaction=compaction)


def _milliseconds(name: str, text: str | None) -> int:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError as error:
        raise InvalidRequest(
            f"The window's {name!r} is {text!r}, which is no time; write it as 2026-11-21T08:00:00+00:00."
        ) from error
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
