"""The table of a DAG's settings in its page under docs/, generated from the Params.

`python -m docs.tools.settings_tables` writes the tables; a test compares them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from docs.tools.catalogue_tables import with_causes, with_gates
from docs.tools.generated_parts import with_parts


def conf_table(dag: Any) -> str:
    """A Markdown table: name, type, default and meaning of each setting."""
    rows = []
    for name in dag.params:
        param = dag.params.get_param(name)
        default = "required" if is_required(param) else f"`{json.dumps(param.value)}`"
        rows.append(f"| `{name}` | {_kind(param.schema)} | {default} | {param.description} |")
    return "\n".join(["| setting | type | default | meaning |", "| --- | --- | --- | --- |", *rows])


def is_required(param: Any) -> bool:
    """Whether the value of the form is not a valid one."""
    if param.value == []:
        return bool(param.schema.get("minItems"))
    return param.value is None and "null" not in param.schema["type"]


def write_tables(repository: Path) -> None:
    """Write the tables of every page."""
    from airflow.dag_processing.dagbag import DagBag

    dags = repository / "dags"
    for dag_id, dag in DagBag(dag_folder=str(dags), bundle_path=dags, bundle_name="docs").dags.items():
        page = repository / "docs" / f"{dag_id}.md"
        page.write_text(with_parts(page.read_text(), {"settings": conf_table(dag)}))
    for page in sorted((repository / "docs").glob("*.md")):
        page.write_text(with_causes(with_gates(page.read_text())))


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    types: Any = schema.get("type")
    optional = isinstance(types, list)
    kind = str(next(name for name in types if name != "null") if optional else types)
    if kind in ("integer", "number"):
        text = _number(schema, kind)
    else:
        text = f"array of {schema['items']['type']}s" if kind == "array" else kind
    return f"optional {text}" if optional else text


def _number(schema: dict[str, Any], kind: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {low} to {high}"
    if "exclusiveMinimum" in schema and "exclusiveMaximum" in schema:
        return f"{kind} between {schema['exclusiveMinimum']} and {schema['exclusiveMaximum']}, exclusive"
    return f"{kind}, at least {low}" if low is not None else kind


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd())
