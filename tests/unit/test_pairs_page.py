"""The page of what runs on what, as it was run."""

from __future__ import annotations

import json
from pathlib import Path

from docs.tools.pairs_table import PAGE, with_pairs
from tests.contract.pairs.procedures import PROCEDURES
from tests.contract.pairs.states import OUTCOMES, STATES


def test_the_page_has_every_pair_as_it_was_run() -> None:
    outcomes = json.loads(OUTCOMES.read_text())
    assert outcomes.keys() == {f"{state} / {procedure}" for state in STATES for procedure in PROCEDURES}
    assert {one["outcome"] for one in outcomes.values()} == {"goes", "goes in part", "refuses"}
    page = (Path(__file__).parents[2] / "docs" / PAGE).read_text()
    assert with_pairs(page) == page, "run: make docs"
