"""Store a report as Markdown and as one self-contained HTML page."""

from __future__ import annotations

from markdown_it import MarkdownIt

from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.ledger.run import Run

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430; }}
h1 {{ font-size: 1.4rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
table {{ border-collapse: collapse; width: 100%; }} th, td {{ border-bottom: 1px solid #d6dbe3; padding: .3rem .6rem; }}
figure {{ margin: 2rem 0; }} svg {{ max-width: 100%; height: auto; }}
th {{ text-align: left; }} code {{ font-size: .9em; overflow-wrap: anywhere; }}
</style></head><body>
{body}</body></html>
"""


def store_report(run: Run, markdown: str, *, picture: bytes | None = None) -> None:
    """Write `report.md` and `report.html` into the run's artefacts; a second call replaces both.

    :param picture: an SVG of this package, for the end of the page.
    """
    run.artefacts.write(run.id, "report.md", markdown.encode())
    run.artefacts.write(run.id, "report.html", html_page(markdown, picture=picture).encode())


def html_page(markdown: str, *, picture: bytes | None = None) -> str:
    """One HTML page; HTML in the text is escaped, because the names of resources are not trusted."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    title = markdown.lstrip("# ").partition("\n")[0]
    drawn = f"<figure>{picture.decode().partition('?>')[2]}</figure>\n" if picture else ""
    return _PAGE.format(title=parser.renderInline(title), body=parser.render(markdown) + drawn)


def approval_text(approval: JsonObject | None) -> str:
    """`Wave 2: Approve by anna, 2026-11-21 …`; empty without an approval.

    :param approval: subject (`about`), `answer`, author (`by`) and time (`at`).
    """
    if approval is None:
        return ""
    when = f", {approval['at']}" if approval["at"] else ""
    return f"{approval['about'].capitalize()}: {approval['answer']} by {approval['by']}{when}."
