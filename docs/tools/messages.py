"""Generate docs/messages.md: every message with which a command or a task stops, read from the code that raises it.

`python -m docs.tools.messages` writes it; a test compares the page.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.tools.generated_parts import with_parts

from pulsar_fleet.cli.terminal import PAGES
from pulsar_fleet.cluster.errors import FleetError

PAGE = "messages.md"


def _errors(kind: type[FleetError]) -> Iterator[type[FleetError]]:
    yield kind
    for special in kind.__subclasses__():
        yield from _errors(special)


KINDS: Mapping[str, type[FleetError]] = {kind.__name__: kind for kind in _errors(FleetError) if "CODE" in vars(kind)}
"""Errors by the name of their class; see `cluster/errors.py`."""
_LEAST_WORDS = 3


def messages(package: Path) -> Iterator[tuple[str, str, str]]:
    """Room, class and text of each error that the code makes of a text; `…` is a value."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
                text = _text(node.args[0])
                if len([word for word in text.split() if any(map(str.isalpha, word))]) >= _LEAST_WORDS:
                    yield path.relative_to(package).parts[0].removesuffix(".py"), node.func.id, text


def with_messages(page: str, package: Path) -> str:
    """The page with its tables up to date."""
    found: dict[str, set[tuple[str, str]]] = {}
    for room, kind, text in messages(package):
        found.setdefault(room, set()).add((text, kind))
    if unknown := found.keys() - PAGES:
        raise ValueError(f"Name a page for the messages of {', '.join(sorted(unknown))}.")
    parts = (_section(room, found[room]) for room in PAGES if room in found)
    return with_parts(page, {"messages": "\n\n".join(parts)})


def _section(room: str, found: set[tuple[str, str]]) -> str:
    title, page = PAGES[room]
    rows = [
        f"| {text.replace('|', chr(92) + '|')} | `{KINDS[kind].CODE}` | {KINDS[kind].ACTS} |"
        for text, kind in sorted(found)
    ]
    head = [f"## {title}", "", f"More: [{page}]({page})", "", "| message | code | who acts |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows])


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("\n", " ")
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
    return "…"


if __name__ == "__main__":
    repository = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    written = repository / "docs" / PAGE
    written.write_text(with_messages(written.read_text(), repository / "plugins" / "pulsar_fleet"))
