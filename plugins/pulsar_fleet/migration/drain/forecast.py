"""When a drain will have ended, how sure that is, and afterwards how wrong it was (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Self

from pulsar_fleet.cluster.json import JsonObject

WINDOW_SECONDS = 300.0
"""Older samples say nothing about the rate of now."""
KEPT = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """What was left at a time: seconds since 1970, entries."""

    at: float
    left: int

    def to_json(self) -> list[float]:
        """As a JSON array."""
        return [round(self.at, 3), self.left]

    @classmethod
    def from_json(cls, found: Sequence[float]) -> Self:
        """Read what `to_json` wrote."""
        return cls(float(found[0]), int(found[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The end as it looked at one time.

    :param rate: entries per second by which the backlog shrinks, net of what is added.
    :param seconds: from `at` until nothing is left.
    :param margin: seconds by which it may be earlier or later, two standard errors of the rate.
    """

    at: float
    rate: float
    seconds: float
    margin: float

    @property
    def end(self) -> float:
        """Seconds since 1970."""
        return self.at + self.seconds

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {key: round(value, 3) for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{key: float(value) for key, value in found.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastError:
    """How far forecasts were from the real end, in seconds; positive: it took longer than said.

    :param first: of the first forecast; `last`: of the last; `middle`: of the one made nearest to half-time.
    :param within: share of the forecasts whose margin held the real end, 0–1.
    """

    first: float
    middle: float
    last: float
    within: float

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return {key: round(value, 3) for key, value in asdict(self).items()}


def forecast(samples: Sequence[Sample]) -> Forecast | None:
    """The end by the slope of the recent samples; None while fewer than three, or while nothing shrinks."""
    if len(samples) < 3:
        return None
    now = samples[-1]
    recent = [sample for sample in samples if now.at - sample.at <= WINDOW_SECONDS]
    slope, error = _slope(recent)
    if slope >= 0 or not now.left:
        return None
    seconds = now.left / -slope
    slowest = max(-slope - 2 * error, -slope / 10)
    return Forecast(at=now.at, rate=-slope, seconds=seconds, margin=now.left / slowest - seconds)


def forecast_error(forecasts: Sequence[Forecast], ended: float) -> ForecastError | None:
    """Compare what was forecast with the real end (seconds since 1970); None when nothing was forecast."""
    if not forecasts:
        return None
    half_time = (forecasts[0].at + ended) / 2
    middle = min(forecasts, key=lambda one: abs(one.at - half_time))
    held = sum(abs(ended - one.end) <= one.margin for one in forecasts)
    return ForecastError(
        first=ended - forecasts[0].end,
        middle=ended - middle.end,
        last=ended - forecasts[-1].end,
        within=held / len(forecasts),
    )


def keep(samples: Sequence[Sample], new: Sample) -> tuple[Sample, ...]:
    """The samples with one more; of too many every second old one goes, the first and the newest ones stay."""
    kept = (*samples, new)
    if len(kept) <= KEPT:
        return kept
    half = len(kept) // 2
    return (kept[0], *kept[2:half:2], *kept[half:])


def _slope(samples: Sequence[Sample]) -> tuple[float, float]:
    """Least squares: entries per second, and the standard error of it."""
    count = len(samples)
    if count < 3:
        return 0.0, 0.0
    # Counted from the first sample: squares of seconds since 1970 would leave no digits for the rate.
    times = [sample.at - samples[0].at for sample in samples]
    middle, level = sum(times) / count, sum(sample.left for sample in samples) / count
    spread = sum((time - middle) ** 2 for time in times)
    if not spread:
        return 0.0, 0.0
    slope = sum((t - middle) * (s.left - level) for t, s in zip(times, samples, strict=True)) / spread
    off = sum((s.left - level - slope * (t - middle)) ** 2 for t, s in zip(times, samples, strict=True))
    return slope, sqrt(off / (count - 2) / spread)
