"""The evidence as one HTML page that needs nothing else and contains the document itself (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.text import counted, duration
from pulsar_fleet.evidence.document import Evidence
from pulsar_fleet.report.document import Report
from pulsar_fleet.report.page import html_part, html_text, style

_OPEN, _CLOSE = b'<script type="application/json" id="evidence">', b"</script>"
_SYMBOLS = {"succeeded": "✓", "failed": "✗", "undone": "↩", "running": "…"}
# Tableau's colour-blind-safe ten, without the grey of what has no phase.
_COLOURS = ("#5778a4", "#e49444", "#6a9f58", "#d1615d", "#85b6b2", "#e7ca60", "#a87c9f", "#f1a2a9", "#967662")
_LEFT, _RIGHT = 300, 1000
_SMALLEST = 2.0


def file_name(run_id: str, ending: str) -> str:
    """`evidence-migrate_namespaces_manual__1.html`."""
    safe = "".join(letter if letter.isalnum() or letter in "._=@-" else "_" for letter in run_id)
    return f"evidence-{safe}.{ending}"


def evidence_page(evidence: Evidence) -> str:
    """The page of one run; equal evidence has an equal page."""
    runs = [_object(record) for record in evidence.of("run")]
    own = [run for run in runs if run["run_id"] == evidence.run_id][-1]
    state = str(own["state"])
    phases = _objects(evidence, "phase")
    times = sorted(str(row["at"]) for kind in ("phase", "change", "verdict") for row in _objects(evidence, kind))
    began = str(own["started_at"])
    ended = max([began, *times])
    names = list(dict.fromkeys(str(row["phase"]) for row in phases))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    page: str = _template().render(
        evidence=evidence,
        procedure=own["procedure"],
        state=state,
        requested_by=own.get("requested_by"),
        symbol=_SYMBOLS.get(state, "…"),
        began=_short(began),
        ended=_short(ended),
        duration=duration(_seconds(began, ended)),
        counts=_counts(evidence),
        timeline=_timeline(phases, began, ended, colours),
        colours=list(colours.items()),
        request=json.dumps(own["conf"], indent=2, sort_keys=True),
        # The answers of an earlier release are not inside a fact.
        approvals=[row.get("content", row) for row in _objects(evidence, "approval")],
        verdicts=_objects(evidence, "verdict"),
        changes=_objects(evidence, "change"),
        phases=phases,
        reports=[{"run_id": report["run_id"], "html": _report(report)} for report in _objects(evidence, "report")],
        report_style=style(),
        artefacts=_objects(evidence, "artefact"),
        file=file_name(evidence.run_id, "html"),
        # `</script>` in a value would end the element; in JSON the backslash changes nothing.
        document=Markup(evidence.to_bytes().decode().replace("</", "<\\/").replace("<!--", "<\\u0021--")),  # noqa: S704
    )
    return page


def evidence_in(page: bytes) -> bytes:
    """The document in a page.

    :raises InvalidRequest: the page has none.
    """
    _, opened, rest = page.rpartition(_OPEN)
    document, closed, _ = rest.partition(_CLOSE)
    if not opened or not closed:
        raise InvalidRequest("This page is not an evidence file: it has no records.")
    return document


def _report(record: JsonObject) -> Markup:
    """The report of a run; the first evidence files have its Markdown."""
    if "report" in record:
        return html_part(Report.from_json(record["report"]), level=3)
    return html_text(record["text"])


@cache
def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("pulsar_fleet.evidence"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("evidence.html")


def _object(record: object) -> JsonObject:
    assert isinstance(record, dict)
    return record


def _objects(evidence: Evidence, kind: str) -> list[JsonObject]:
    return [_object(record) for record in evidence.of(kind)]


def _counts(evidence: Evidence) -> str:
    changes, verdicts = _objects(evidence, "change"), _objects(evidence, "verdict")
    applied = sum(row["outcome"] == "applied" for row in changes)
    namespaces = {str(row["namespace"]) for row in _objects(evidence, "phase")}
    compared = counted(sum(int(row["messages"]) for row in verdicts), "message")
    parts = [
        f"{counted(len(namespaces), 'namespace')} with phases" if namespaces else "",
        f"{counted(len(changes), 'change')} recorded, {applied:,} applied",
        f"{counted(len(verdicts), 'verdict')}, {compared} compared" if verdicts else "no verification",
    ]
    return "; ".join(part for part in parts if part) + "."


def _timeline(
    phases: Sequence[JsonObject], began: str, ended: str, colours: Mapping[str, str]
) -> list[dict[str, object]]:
    """A row for each namespace: where each phase begins and how wide it is drawn."""
    first, last = datetime.fromisoformat(began), datetime.fromisoformat(ended)
    scale = (_RIGHT - _LEFT) / max((last - first).total_seconds(), 1.0)
    by_namespace: dict[str, list[JsonObject]] = {}
    for row in phases:
        by_namespace.setdefault(str(row["namespace"]), []).append(row)
    timeline: list[dict[str, object]] = []
    for index, (namespace, rows) in enumerate(by_namespace.items()):
        starts = [datetime.fromisoformat(str(row["at"])) for row in rows]
        parts = [
            {
                "phase": row["phase"],
                "x": round(_LEFT + (start - first).total_seconds() * scale, 1),
                "width": round(max((end - start).total_seconds() * scale, _SMALLEST), 1),
                "seconds": duration((end - start).total_seconds()),
                "colour": colours[str(row["phase"])],
            }
            for row, start, end in zip(rows, starts, [*starts[1:], last], strict=True)
        ]
        timeline.append({"namespace": namespace, "index": index, "parts": parts})
    return timeline


def _short(time: str) -> str:
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M:%S} UTC"


def _seconds(began: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
