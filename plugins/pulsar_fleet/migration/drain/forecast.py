"""When a drain will end, with a margin, and afterwards the error of the forecasts (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated

from pulsar_fleet.cluster.document import ArrayDocument, Document, Rounded
from pulsar_fleet.cluster.json import Json

WINDOW_SECONDS = 300.0
"""Older samples do not show the current rate."""
MAX_SAMPLES = 200

_Rounded = Annotated[float, Rounded(3)]


@dataclass(frozen=True, slots=True)
class Sample(ArrayDocument):
    """The remaining entries at a time, seconds since 1970."""

    at: float
    entries: int

    def document_of(self) -> Json:
        """The array."""
        return [round(self.at, 3), self.entries]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast(Document):
    """The expected end, forecast at one time.

    :param rate: entries per second by which the backlog shrinks, net of new entries.
    :param seconds: from `at` until the backlog is empty.
    :param margin: seconds by which the end may be earlier or later, two standard errors of the rate.
    """

    at: _Rounded
    rate: _Rounded
    seconds: _Rounded
    margin: _Rounded

    @property
    def end(self) -> float:
        """Seconds since 1970."""
        return self.at + self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastError(Document):
    """The difference of forecasts from the real end, in seconds; positive: the drain took longer than forecast.

    :param first: of the first forecast; `last`: of the last; `middle`: of the one made nearest to half-time.
    :param within: share of the forecasts whose margin contained the real end, 0–1.
    """

    first: _Rounded
    middle: _Rounded
    last: _Rounded
    within: _Rounded


def forecast(samples: Sequence[Sample]) -> Forecast | None:
    """The end by the slope of the recent samples; None with fewer than three, or while the backlog does not shrink."""
    if len(samples) < 3:
        return None
    now = samples[-1]
    recent = [sample for sample in samples if now.at - sample.at <= WINDOW_SECONDS]
    slope, error = _slope(recent)
    if slope >= 0 or not now.entries:
        return None
    seconds = now.entries / -slope
    slowest = max(-slope - 2 * error, -slope / 10)
    return Forecast(at=now.at, rate=-slope, seconds=seconds, margin=now.entries / slowest - seconds)


def forecast_error(forecasts: Sequence[Forecast], ended: float) -> ForecastError | None:
    """Compare the forecasts with the real end (seconds since 1970); None without a forecast."""
    if not forecasts:
        return None
    half_time = (forecasts[0].at + ended) / 2
    middle = min(forecasts, key=lambda forecast: abs(forecast.at - half_time))
    within = sum(abs(ended - forecast.end) <= forecast.margin for forecast in forecasts)
    return ForecastError(
        first=ended - forecasts[0].end,
        middle=ended - middle.end,
        last=ended - forecasts[-1].end,
        within=within / len(forecasts),
    )


def keep(samples: Sequence[Sample], new: Sample) -> tuple[Sample, ...]:
    """The samples with a new one; of too many every second old one is dropped, the first and the newest are kept."""
    kept = (*samples, new)
    if len(kept) <= MAX_SAMPLES:
        return kept
    half = len(kept) // 2
    return (kept[0], *kept[2:half:2], *kept[half:])


def _slope(samples: Sequence[Sample]) -> tuple[float, float]:
    """Least squares: entries per second, and its standard error."""
    count = len(samples)
    if count < 3:
        return 0.0, 0.0
    # Counted from the first sample: squares of seconds since 1970 would leave no digits for the rate.
    times = [sample.at - samples[0].at for sample in samples]
    middle, level = sum(times) / count, sum(sample.entries for sample in samples) / count
    spread = sum((time - middle) ** 2 for time in times)
    if not spread:
        return 0.0, 0.0
    slope = sum((t - middle) * (s.entries - level) for t, s in zip(times, samples, strict=True)) / spread
    residual = sum((s.entries - level - slope * (t - middle)) ** 2 for t, s in zip(times, samples, strict=True))
    return slope, sqrt(residual / (count - 2) / spread)
