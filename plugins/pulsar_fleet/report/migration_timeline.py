"""A migration as an SVG: the phases of each namespace, and the backlog on blue over time with its forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from io import BytesIO
from itertools import pairwise
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING

from pulsar_fleet.ledger.rows import RecordedPhase, utc
from pulsar_fleet.migration.drain.forecast import Forecast
from pulsar_fleet.migration.model import Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

MOST = 20
"""Largest number of namespaces in the picture; those with the longest drain first."""

_DRAWING = Lock()
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#56b4e9", "#e69f00")
"""Okabe and Ito: everybody tells them apart."""

Samples = Mapping[str, Sequence[tuple[float, int]]]
"""By namespace: seconds since 1970, and the entries not yet consumed on blue."""

_COLOURS = dict(
    zip(
        Phase,
        (
            *("#8d7fb5", "#c9d3e0", "#a9bdd6", "#7ea0c8", "#5b86ba", "#e0a13b", "#dc8240"),
            *("#56a8a0", "#d1603d", "#b3382c", "#5f9e6e", "#3f7d58", "#37694d", "#2d5d43", "#8a8a8a"),
        ),
        strict=True,
    )
)


def no_picture_text() -> str:
    """The sentence in place of a picture where matplotlib is not installed; else empty."""
    if find_spec("matplotlib"):
        return ""
    return "There is no picture of phases and backlog: it needs `pip install 'pulsar-fleet[reports]'`."


def migration_picture(
    phases: Sequence[RecordedPhase],
    samples: Samples,
    forecasts: Mapping[str, Forecast] = MappingProxyType({}),
    now: datetime | None = None,
) -> bytes | None:
    """The picture; None if no namespace has entered two phases, or matplotlib is not installed.

    The same records give the same bytes.

    :param forecasts: of the namespaces that still drain.
    :param now: while the run goes on: the newest phases last until then.
    """
    spans = _spans(phases, now)
    if not spans or no_picture_text():
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = sorted(spans, key=lambda name: (-_length(spans[name]), name))[:MOST]
    # Settings of matplotlib belong to the process, and a server draws in several threads.
    with _DRAWING, mpl.rc_context({"svg.hashsalt": "pulsar-fleet", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(10, 2.6 + 0.28 * len(drawn)), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[len(drawn) + 1.5, 6])
        _draw_phases(above, {name: spans[name] for name in drawn})
        _draw_backlogs(below, {name: samples[name] for name in drawn if samples.get(name)}, forecasts)
        content = BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


_Span = tuple[Phase, datetime, datetime]


def _spans(phases: Sequence[RecordedPhase], now: datetime | None) -> dict[str, list[_Span]]:
    """By namespace, each phase from its start to the start of the next; the last phase until now, else left out."""
    entered: dict[str, list[tuple[Phase, datetime]]] = {}
    values = {phase.value for phase in Phase}
    for entry in phases:
        if entry.phase in values:
            entered.setdefault(entry.namespace, []).append((Phase(entry.phase), utc(entry.at)))
    spans = {
        name: [(phase, at, ends) for (phase, at), (_, ends) in pairwise([*entries, *_open(entries, now)])]
        for name, entries in entered.items()
    }
    return {name: entries for name, entries in spans.items() if entries}


def _open(entries: Sequence[tuple[Phase, datetime]], now: datetime | None) -> list[tuple[Phase, datetime]]:
    """The end of the newest phase, if the namespace does not stay in it."""
    phase, at = entries[-1]
    return [] if now is None or phase in _LAST else [(phase, max(now, at))]


_LAST = frozenset({Phase.MOVED, Phase.FINISHED, Phase.ABORTED})


def _length(spans: Sequence[_Span]) -> timedelta:
    return spans[-1][2] - spans[0][1]


_DAY = 86_400.0


def _day(at: datetime) -> float:
    """Days since 1970, the unit of matplotlib."""
    return at.timestamp() / _DAY


def _draw_phases(axes: Axes, spans: Mapping[str, Sequence[_Span]]) -> None:
    shown: set[Phase] = set()
    for row, phases in enumerate(spans.values()):
        for phase, begins, ends in phases:
            begin, end = _day(begins), _day(ends)
            label = phase.value if phase not in shown else None
            shown.add(phase)
            axes.barh(row, end - begin, left=begin, height=0.7, color=_COLOURS[phase], label=label)
    axes.set_yticks(range(len(spans)), list(spans))
    axes.invert_yaxis()
    axes.xaxis_date()  # numbers are days since 1970
    axes.set_title("Phase of each namespace until its next phase (UTC)", loc="left")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.05), ncols=9, frameon=False, fontsize=8)


def _draw_backlogs(axes: Axes, samples: Samples, forecasts: Mapping[str, Forecast]) -> None:
    axes.set_prop_cycle(color=_LINES)
    for name, series in samples.items():
        (line,) = axes.step([at / _DAY for at, _ in series], [entries for _, entries in series], label=name)
        if expected := forecasts.get(name):
            _draw_forecast(axes, series[-1], expected, line)
    axes.set_ylabel("entries left to drain")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    if samples:
        axes.legend(frameon=False, fontsize=8)


def _draw_forecast(axes: Axes, last: tuple[float, int], expected: Forecast, line: Line2D) -> None:
    """Dashed from the last sample to the end, with the margin of the end."""
    (at, entries), colour = last, line.get_color()
    end, margin = expected.end / _DAY, expected.margin / _DAY
    axes.plot([at / _DAY, end], [entries, 0], linestyle="--", color=colour)
    axes.errorbar([end], [0], xerr=[[min(margin, max(end - at / _DAY, 0))], [margin]], color=colour, capsize=3)
