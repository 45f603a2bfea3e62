"""What the pages of the fleet share: links between them, the frame of a page, the numbers of its parts, ages (pure)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pulsar_fleet.cluster.text import duration

FLEET = "Fleet"
REPLICATORS = "Replicators"
MATRIX = "Namespaces × clusters"
REFRESH_SECONDS = 15
_COMMAND_LINE = "cli/"
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Links:
    """Where the pages of the fleet and of a run are.

    :param base: the path under which the pages are served.
    :param airflow: the path of Airflow itself.
    """

    base: str
    airflow: str = ""

    def pages(self) -> tuple[tuple[str, str], ...]:
        """Name and link of each page of the fleet."""
        return (
            (FLEET, self.fleet()),
            (MATRIX, f"{self.base}/matrix"),
            (REPLICATORS, f"{self.base}/replicators"),
        )

    def fleet(self) -> str:
        """The Fleet page."""
        return f"{self.base}/"

    def report(self, run_id: str) -> str:
        """The report of a run."""
        return f"{self.base}/report?{urlencode({'run': run_id})}"

    def migration(self, run_id: str) -> str:
        """The page of a migration or failback."""
        return f"{self.base}/migration?{urlencode({'run': run_id})}"

    def evidence(self, run_id: str) -> str:
        """The evidence of a run."""
        return f"{self.base}/evidence?{urlencode({'run': run_id})}"

    def audit(self) -> str:
        """The check of the audit chain."""
        return f"{self.base}/audit"

    def prepared(self, errand: str, subject: str) -> str:
        """The form of a run that is prepared for an errand about something."""
        return f"{self.base}/start?{urlencode({'errand': errand, 'about': subject})}"

    def start(self) -> str:
        """Where the form of a prepared run is sent."""
        return f"{self.base}/start"

    def dag(self, dag_id: str) -> str:
        """A DAG in Airflow."""
        return f"{self.airflow}/dags/{quote(dag_id, safe='')}"

    def run(self, run_id: str) -> str:
        """The run in Airflow; empty for a run of the command line."""
        dag_id, _, dag_run = run_id.partition("/")
        if run_id.startswith(_COMMAND_LINE) or not dag_run:
            return ""
        return f"{self.airflow}/dags/{quote(dag_id, safe='')}/runs/{quote(dag_run, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What every page says about itself.

    :param here: its name, one of `Links.pages` or another.
    :param query: the settings of the page, for links to the same page.
    :param live: whether the browser reads it again; never by itself, because that moves what somebody reads.
    :param is_form: whether something is entered in it, so that it is never read again.
    """

    here: str
    links: Links
    read_at: datetime
    query: Mapping[str, str | int]
    live: bool = False
    is_form: bool = False

    def link(self, **changed: str | int) -> str:
        """The same page with other settings."""
        return "?" + urlencode({**self.query, "live": int(self.live), **changed})


def render(template: str, frame: Frame, summary: str, **values: object) -> str:
    """A page as HTML; everything is escaped."""
    page: str = _template(template).render(
        frame=frame,
        links=frame.links,
        read_at=f"{frame.read_at:%Y-%m-%d %H:%M:%S} UTC",
        refresh=REFRESH_SECONDS,
        script=Markup(frame_script()),  # noqa: S704 a file of this package
        summary=summary,
        **values,
    )
    return page


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one page of many, and the numbers of this page and the last one."""

    rows: tuple[Any, ...]
    matching: int
    number: int
    last: int

    def numbers(self, frame: Frame) -> Iterator[tuple[int, str]]:
        """The first and last pages and those beside the shown one, with links."""
        near = {1, 2, self.last - 1, self.last, *range(self.number - 2, self.number + 3)}
        for page in sorted(near):
            if 1 <= page <= self.last:
                yield page, "" if page == self.number else frame.link(page=page)


def part_of(rows: Sequence[Row], number: int, size: int) -> Part:
    """The rows of one page; a number that does not exist is the nearest one.

    :param number: from 1.
    """
    last = max(1, -(-len(rows) // size))
    shown = min(max(number, 1), last)
    return Part(rows=tuple(rows[(shown - 1) * size : shown * size]), matching=len(rows), number=shown, last=last)


def age(time: datetime | None, now: datetime) -> str:
    """How long ago; empty without a time."""
    return duration(max(0.0, (now - time).total_seconds())) if time else ""


@cache
def frame_script() -> str:
    """The only script of the pages, which opens links to Airflow outside of Airflow's frame."""
    return (files("pulsar_fleet.fleet") / "templates" / "leave_frame.js").read_text()


@cache
def frame_script_source() -> str:
    """The source by which a content security policy allows that script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(frame_script().encode()).digest()).decode()}'"


@cache
def _template(name: str) -> Any:
    loader = PackageLoader("pulsar_fleet.fleet")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(name)


REPLICATOR_STATES = {
    "healthy": ("✓", "good"),
    "behind": ("▲", "open"),
    "stalled": ("■", "bad"),
    "disconnected": ("✗", "bad"),
    "missing": ("○", "bad"),
    "unknown": ("?", "open"),
}
PHASES = {
    **dict.fromkeys(("finished", "verified", "cleaned"), ("✓", "good")),
    "moved": ("⇄", "good"),
    "incomplete": ("✗", "bad"),
    "aborted": ("↩", "open"),
}
RUN_STATES = {"succeeded": ("✓", "good"), "failed": ("✗", "bad"), "undone": ("↩", "open"), "running": ("…", "open")}
VERDICTS = {"equal": ("✓", "good"), "inconclusive": ("?", "open")}
