"""Generate the table of docs/what_runs_on_what.md from what the pairs of states and procedures showed.

`python -m docs.tools.pairs_table` writes it; a test compares the page. `make test-long AREA=pairs` runs every pair.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.tools.generated_parts import with_parts
from tests.contract.pairs.procedures import PROCEDURES
from tests.contract.pairs.states import OUTCOMES, STATES
from tests.contract.pairs.world import World

from pulsar_fleet.cluster.names import NamespaceName

PAGE = "what_runs_on_what.md"
_NEED = frozenset({"abort", "forward acknowledgments"})
"""What needs a run, or readers: where there is none, the row of the first state has the sentence for all."""
_EXAMPLE = World({}, NamespaceName("acme", "orders"), run="cli/migrate-20261128T041706-4bef")


def with_pairs(page: str) -> str:
    """The page with up-to-date tables between their markers."""
    outcomes = json.loads(OUTCOMES.read_text())
    return with_parts(page, {"pairs": "\n".join(_rows(outcomes)), "procedures": "\n".join(_commands())})


def _rows(outcomes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| the namespace is | goes | refuses, because |"
    yield "| --- | --- | --- |"
    for state, make in STATES.items():
        found = {name: outcomes[f"{state} / {name}"] for name in PROCEDURES}
        goes = ", ".join(
            name if one["outcome"] == "goes" else f"{name} in part"
            for name, one in found.items()
            if one["outcome"].startswith("goes")
        )
        reasons: dict[str, list[str]] = {}
        for name, one in found.items():
            usual = name in _NEED and state != "fresh" and one["because"] == outcomes[f"fresh / {name}"]["because"]
            if not one["outcome"].startswith("goes") and not usual:
                reasons.setdefault(", ".join(map(_reason, one["because"])), []).append(name)
        refuses = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
        yield f"| **{state}**: {(make.__doc__ or '').strip()} | {goes} | {refuses} |"


def _reason(text: str) -> str:
    return text if " " in text else f"`{text}`"


def _commands() -> Iterator[str]:
    yield "| name | command |"
    yield "| --- | --- |"
    for name, procedure in PROCEDURES.items():
        yield f"| {name} | `pulsar-fleet {' '.join(map(str, procedure.words(_EXAMPLE)))}` |"


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs") / PAGE
    target.write_text(with_pairs(target.read_text()))
