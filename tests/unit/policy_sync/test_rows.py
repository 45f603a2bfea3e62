"""Every test that the table of PIP-136's rows names exists."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
TABLE = re.compile(r"^\| PIP-136 .*?(?=^$)", re.MULTILINE | re.DOTALL)


def test_every_row_names_a_test_that_exists() -> None:
    (table,) = TABLE.findall((REPOSITORY / "docs" / "sync_metadata.md").read_text())
    rows = table.splitlines()[2:]
    assert len(rows) > 15
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row.rsplit("|", 2)[1])
        assert names or "every test" in row, row
        files = re.findall(r"`(?:tests/unit/policy_sync/)?(test_\w+\.py)`", row)
        text = "".join(
            path.read_text() for name in files for path in (REPOSITORY / "tests").glob(f"*/policy_sync/{name}")
        )
        assert [name for name in names if f"def {name}(" not in text] == [], row
