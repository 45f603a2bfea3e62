"""The generated parts of docs/provider.md: the example DAGs, the public classes and the fields of a connection.

`python -m docs.tools.provider_page` writes them; a test compares them.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from docs.tools.generated_parts import with_parts

PAGE = "docs/provider.md"
EXAMPLES = "tests/system"
CLASSES = (
    "PulsarPublishOperator",
    "PulsarConsumeOperator",
    "PulsarMessageTrigger",
    "PulsarBacklogSensor",
    "PulsarSubscriptionSensor",
    "PulsarReplicationSensor",
    "PulsarTopicTerminatedSensor",
    "NamespacePhaseSensor",
    "PulsarNotifier",
)
_MARKED = re.compile(r"# \[START (\w+)\]\n(.*?)# \[END \1\]", re.DOTALL)


def generated_page(repository: Path) -> str:
    """The page with up-to-date parts."""
    return with_parts((repository / PAGE).read_text(), {"fields": _fields(), **_examples(repository), **_classes()})


def _examples(repository: Path) -> dict[str, str]:
    texts = (path.read_text() for path in sorted((repository / EXAMPLES).rglob("*.py")))
    marked = (match for text in texts for match in _MARKED.finditer(text))
    return {f"example {match[1]}": f"```python\n{match[2].strip()}\n```" for match in marked}


def _fields() -> str:
    from pulsar_fleet.airflow.connection_form import FIELDS

    rows = [f"| `{name}` | {field.label} | {field.description} |" for name, field in FIELDS.items()]
    return "\n".join(["| extra | label in the form | what it is |", "| --- | --- | --- |", *rows])


def _classes() -> dict[str, str]:
    from pulsar_fleet import airflow

    return {f"class {name}": _parameters(getattr(airflow, name)) for name in CLASSES}


def _parameters(kind: type[Any]) -> str:
    own = dict(_documented(kind))
    inherited = {name: text for base in kind.__mro__[1:] for name, text in _documented(base) if name not in own}
    rows = [f"| `{name}` | {text} |" for name, text in {**own, **inherited}.items()]
    return "\n".join(["| parameter | meaning |", "| --- | --- |", *rows])


def _documented(kind: type[Any]) -> list[tuple[str, str]]:
    """Parameter and meaning, by the docstring of a class of this package."""
    if not kind.__module__.startswith("pulsar_fleet."):
        return []
    text = inspect.cleandoc(kind.__doc__ or "")
    parameters = re.findall(r"^:param (\w+): (.*?)(?=^:|\Z)", text, re.DOTALL | re.MULTILINE)
    return [(name, " ".join(meaning.split()).replace("|", "\\|")) for name, meaning in parameters]


if __name__ == "__main__":
    (Path.cwd() / PAGE).write_text(generated_page(Path.cwd()))
