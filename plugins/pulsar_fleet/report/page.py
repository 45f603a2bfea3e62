"""Store a report as a document, as Markdown and as one self-contained HTML page."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.artefacts import json_bytes
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.document import Report

DOCUMENT = "report.json"
TEXT = "report.md"
PAGE = "report.html"
REPORTS = "reports"
"""The kind of the fact with their digests."""


def store_report(run: Run, report: Report, *, picture: bytes | None = None) -> None:
    """Write `report.json`, `report.md` and `report.html` into the run's artefacts; a second call replaces them.

    The ledger has their digests, so that nobody can change one unnoticed.

    :param picture: an SVG of this package, shown below the banner.
    """
    contents = {
        DOCUMENT: json_bytes(report.to_json()),
        TEXT: report.markdown().encode(),
        PAGE: html_page(report, picture=picture).encode(),
    }
    # First: a process that dies in between leaves an earlier report, which is known, not one that nobody has stored.
    run.ledger.record_fact(run.id, REPORTS, {name: sha256(content).hexdigest() for name, content in contents.items()})
    for name, content in contents.items():
        run.artefacts.write(run.id, name, content)


def html_page(report: Report, *, picture: bytes | None = None) -> str:
    """One HTML page that needs nothing else."""
    page: str = _template("report.html").render(title=report.headline, part=html_part(report, level=1, picture=picture))
    return page


def html_part(report: Report, *, level: int, picture: bytes | None = None) -> Markup:
    """The report as a part of a page that has `style`; HTML in its texts is escaped, as names are not trusted.

    :param level: of its heading, 1 to 6.
    """
    part = _template("part.html").render(
        report=report,
        level=level,
        headline=Markup(_markdown().renderInline(report.headline)),  # noqa: S704
        to_do=html_text(report.to_do_text),
        picture=svg_element(picture) if picture else "",
        body=[html_text(text) for text in report.body],
        details=[(section.title, html_text(section.text)) for section in report.details],
    )
    return Markup(part)  # noqa: S704


def svg_element(picture: bytes) -> Markup:
    """An SVG of this package as a part of HTML, which has no declaration of XML."""
    return Markup("<svg" + picture.decode().partition("<svg")[2])  # noqa: S704


def style() -> Markup:
    """The style of `html_part`, for the page that it is a part of."""
    return Markup(_template("report.css").render())  # noqa: S704


def approval_text(approval: JsonObject | None) -> str:
    """`Wave 2: Approve by anna, 2026-11-21 …`; empty without an approval.

    :param approval: subject (`about`), `answer`, author (`by`) and time (`at`).
    """
    if approval is None:
        return ""
    when = f", {approval['at']}" if approval["at"] else ""
    return f"{approval['about'].capitalize()}: {approval['answer']} by {approval['by']}{when}."


def html_text(text: str) -> Markup:
    """Markdown as HTML; HTML in it is escaped."""
    return Markup(_markdown().render(text))  # noqa: S704


@cache
def _template(name: str) -> Any:
    loader = PackageLoader("pulsar_fleet.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(name)


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")
