"""What an operator reads names a cluster by its own name: a role says the wrong cluster in a failback."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "plugins" / "pulsar_fleet"
# Forms, options and conf keys speak of blue and green: a person fills them in before the clusters are known.
FORMS = ("settings/", "cli/commands/", "cli/options.py")
ROLE = re.compile(r"(?<![\w{.'`\[/-])(blue|green)(?![\w}.`\]/-])", re.IGNORECASE)


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    for parent in ast.walk(tree):
        if isinstance(parent, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in parent.body:
                if isinstance(node, ast.Expr):
                    yield node.value


def texts_with_roles(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string of several words that says blue or green."""
    tree = ast.parse(source)
    docstrings = set(map(id, _docstrings(tree)))
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(text, str) and " " in text and ROLE.search(text):
            yield node.lineno, text


def test_no_text_names_a_cluster_by_its_role() -> None:
    found = [
        f"{module}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (module := path.relative_to(PACKAGE).as_posix()).startswith(FORMS)
        for line, text in texts_with_roles(path.read_text())
    ]

    assert not found, "\n".join(found)


def test_a_role_in_a_text_is_found() -> None:
    assert list(texts_with_roles('x = f"{name} stays on blue"')) == [(1, " stays on blue")]
    assert not list(texts_with_roles('x = f"{name} stays on {blue}"\ny = "blue"\nz = "a {green} b"'))
