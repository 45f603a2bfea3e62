"""Generate the tables of docs/known_defects.md from the catalogue.

`python -m docs.tools.defects_table` writes them; a test compares the page.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from docs.tools.generated_parts import with_parts

from pulsar_fleet.cluster.defects.catalogue import DEFECTS
from pulsar_fleet.cluster.defects.model import BrokerDefect, Condition

PAGE = "known_defects.md"


def with_defects(page: str) -> str:
    """The page with up-to-date tables between their markers."""
    return with_parts(page, _tables())


def _tables() -> Mapping[str, str]:
    checked = ["| finding | in | what happens | warned of where | seen by | what to do | known by |"]
    checked += ["| --- | --- | --- | --- | --- | --- | --- |"]
    shown = ["| defect | in | what happens | named by | seen by | what to do | known by |"]
    shown += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for defect in DEFECTS:
        if defect.condition is Condition.SYMPTOM:
            shown.append(_row(defect, ", ".join(f"`{sign}`" for sign in defect.signs)))
        else:
            named = f"; named by {', '.join(f'`{sign}`' for sign in defect.signs)}" if defect.signs else ""
            checked.append(_row(defect, f"{defect.condition}{named}"))
    return {"checked": "\n".join(checked), "shown": "\n".join(shown)}


def _row(defect: BrokerDefect, where: str) -> str:
    spans = ", ".join(f"{span.line} before {span.fixed}" if span.fixed else f"all {span.line}" for span in defect.spans)
    remedy = f"{defect.remedy[:1].upper()}{defect.remedy[1:]}"
    known = f"{defect.evidence}: {', '.join(defect.issues)}"
    return f"| `{defect.id}` | {spans} | {defect.symptom} | {where} | {defect.seen} | {remedy} | {known} |"


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / PAGE
    target.write_text(with_defects(target.read_text()))
