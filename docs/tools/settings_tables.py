"""The table of a DAG's settings in its page under docs/, made from the Params so that it cannot rot.

`python -m docs.tools.settings_tables` writes the tables; a test compares them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from docs.tools.gates_table import with_gates

BEGIN = "<!-- settings: made by make docs -->"
END = "<!-- end of settings -->"


def conf_table(dag: Any) -> str:
    """A Markdown table: name, what it takes, default, what it means."""
    rows = []
    for name in dag.params:
        param = dag.params.get_param(name)
        rows.append(f"| `{name}` | {_kind(param.schema)} | `{json.dumps(param.value)}` | {param.description} |")
    return "\n".join(["| setting | takes | default | meaning |", "| --- | --- | --- | --- |", *rows])


def with_table(page: str, table: str) -> str:
    """The page with the table between its two marks; a page without them is returned as it is."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}" if begin and end else page


def write_tables(repository: Path) -> None:
    """Bring every page up to date."""
    from airflow.dag_processing.dagbag import DagBag

    dags = repository / "dags"
    for dag_id, dag in DagBag(dag_folder=str(dags), bundle_path=dags, bundle_name="docs").dags.items():
        page = repository / "docs" / f"{dag_id}.md"
        page.write_text(with_gates(with_table(page.read_text(), conf_table(dag))))


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    types: Any = schema.get("type")
    optional = isinstance(types, list)
    kind = next(each for each in types if each != "null") if optional else types
    if kind in ("integer", "number"):
        found = _number(schema, "whole number" if kind == "integer" else "number")
    else:
        found = {"array": "list of texts", "boolean": "yes or no"}.get(str(kind), "text")
    return f"{found} or nothing" if optional else found


def _number(schema: dict[str, Any], kind: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{low} to {high}"
    if "exclusiveMinimum" in schema and "exclusiveMaximum" in schema:
        return f"{kind} between {schema['exclusiveMinimum']} and {schema['exclusiveMaximum']}"
    return f"{kind} from {low} on" if low is not None else kind


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
