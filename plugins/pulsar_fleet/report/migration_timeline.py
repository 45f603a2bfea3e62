"""A migration as an SVG: the phases of each namespace, and the backlog on blue over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING

from pulsar_fleet.ledger.rows import RecordedPhase, utc
from pulsar_fleet.migration.model import Phase

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 20
"""Largest number of namespaces in the picture; those with the longest drain first."""

Samples = Mapping[str, Sequence[tuple[float, int]]]
"""By namespace: seconds since 1970, and the entries not yet consumed on blue."""

_COLOURS = dict(
    zip(
        Phase,
        (
            *("#8d7fb5", "#c9d3e0", "#a9bdd6", "#7ea0c8", "#5b86ba", "#e0a13b"),
            *("#d1603d", "#b3382c", "#5f9e6e", "#3f7d58", "#37694d", "#2d5d43", "#8a8a8a"),
        ),
        strict=True,
    )
)


def migration_picture(phases: Sequence[RecordedPhase], samples: Samples) -> bytes | None:
    """The picture; None if no namespace has entered two phases. The same records give the same bytes."""
    spans = _spans(phases)
    if not spans:
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    drawn = sorted(spans, key=lambda name: (-_length(spans[name]), name))[:MOST]
    with mpl.rc_context({"svg.hashsalt": "pulsar-fleet", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(10, 2.6 + 0.28 * len(drawn)), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[len(drawn) + 1.5, 6])
        _draw_phases(above, {name: spans[name] for name in drawn})
        _draw_backlogs(below, {name: samples[name] for name in drawn if samples.get(name)})
        content = BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


_Span = tuple[Phase, datetime, datetime]


def _spans(phases: Sequence[RecordedPhase]) -> dict[str, list[_Span]]:
    """By namespace, each phase from its start to the start of the next; the last phase is left out."""
    entered: dict[str, list[tuple[Phase, datetime]]] = {}
    values = {phase.value for phase in Phase}
    for entry in phases:
        if entry.phase in values:
            entered.setdefault(entry.namespace, []).append((Phase(entry.phase), utc(entry.at)))
    spans = {
        name: [(phase, at, ends) for (phase, at), (_, ends) in pairwise(entries)] for name, entries in entered.items()
    }
    return {name: entries for name, entries in spans.items() if entries}


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


def _draw_backlogs(axes: Axes, samples: Samples) -> None:
    for name, series in samples.items():
        axes.step([at / _DAY for at, _ in series], [entries for _, entries in series], label=name)
    axes.set_ylabel("entries left to drain")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    if samples:
        axes.legend(frameon=False, fontsize=8)
