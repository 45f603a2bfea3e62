"""Check that names and texts use the words of docs/glossary.md; `make lint` runs it.

The lists are in pyproject.toml, table `tool.pulsar-fleet-words`.

`python -m docs.tools.words` prints each place with an old word, the share of vague names of the code and of the tests,
each test whose name is too long and each sentence of a page that is, and fails on any of them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

CODE = ("plugins/*.py", "dags/*.py", "spark_jobs/*.py")
TESTS = ("tests/*.py",)
PAGES = ("docs/*.md", "*.md", "docker/*.md")
TEXTS = (*CODE, *TESTS, "docs/*.md", "README.md", "CONTRIBUTING.md")
GLOSSARY = "docs/glossary.md"
EXEMPT = (GLOSSARY, "plugins/pulsar_fleet/ledger/migrations/", "tests/unit/ledger/test_migrations.py")
"""Files that must name old words."""

_LISTS = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["pulsar-fleet-words"]
VAGUE = frozenset(_LISTS["vague"])
"""Names that do not say what a variable holds."""
VAGUE_SHARE = 0.01
TEST_NAME_LENGTH = 70
SENTENCE_WORDS = 35
"""More in a sentence of a page, and a reader at night reads it twice."""
OLD_NAMES = frozenset(_LISTS["old-names"])
"""Words that no identifier contains; the glossary has the word to use."""
OLD_PHRASES = tuple(_LISTS["old-phrases"])
"""Regular expressions that match nothing in a text."""
_OLD_PHRASE = re.compile(rf"\b(?:{'|'.join(OLD_PHRASES)})\b", re.IGNORECASE)


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository that match, those that must name old words apart."""
    listing = subprocess.run(["git", "ls-files", *patterns], capture_output=True, text=True, check=True).stdout
    paths = [Path(line) for line in listing.splitlines() if not line.startswith(EXEMPT)]
    return [path for path in paths if path.exists()]  # A file whose removal is not committed yet is listed too.


def identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a module defines: variables, parameters, functions, classes, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name


def old_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each identifier with an old word in it."""
    for line, name in identifiers(tree):
        words = re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower())
        if OLD_NAMES.intersection(words):
            yield line, name


def old_phrases(text: str) -> Iterator[tuple[int, str]]:
    """Line and words of each old phrase."""
    for number, line in enumerate(text.splitlines(), start=1):
        for match in _OLD_PHRASE.finditer(line):
            yield number, match[0]


def long_test_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each test whose name is longer than `TEST_NAME_LENGTH`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("test_") and len(node.name) > TEST_NAME_LENGTH:
            yield node.lineno, node.name


def long_sentences(page: str) -> Iterator[tuple[int, str]]:
    """Words and begin of each sentence with more than `SENTENCE_WORDS`; tables, code and generated parts apart."""
    written = re.sub(
        r"<!-- [^>]*made by make docs -->.*?<!-- end of [^>]* -->|```.*?```", "\n\n", page, flags=re.DOTALL
    )
    blocks = [""]
    for line in written.splitlines():
        apart = not line.strip() or line.lstrip().startswith(("|", "#", "<!--", "!["))
        if apart or re.match(r"\s*([*-]|\d+\.)\s", line):
            blocks.append("")
        if not apart:
            blocks[-1] += f" {line.strip()}"
    for block in blocks:
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`*\[])", re.sub(r"\]\([^)]*\)", "]", block)):
            if len(words := sentence.split()) > SENTENCE_WORDS:
                yield len(words), " ".join(words[:8])


def vague_share(trees: list[ast.Module]) -> tuple[int, int]:
    """How many variables and parameters have a vague name, and how many there are."""
    names = [
        node.arg if isinstance(node, ast.arg) else node.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    ]
    counted = [name for name in names if name not in ("self", "cls", "_")]
    return sum(name.strip("_") in VAGUE for name in counted), len(counted)


def main() -> int:
    """Print what breaks the glossary; the number of places, at most 1."""
    code = {path: ast.parse(path.read_text()) for path in tracked(*CODE)}
    tests = {path: ast.parse(path.read_text()) for path in tracked(*TESTS)}
    trees = {**code, **tests}
    places = [f"{path}:{line}: name {name!r}" for path, tree in trees.items() for line, name in old_names(tree)]
    places += [
        f"{path}:{line}: text {words!r}" for path in tracked(*TEXTS) for line, words in old_phrases(path.read_text())
    ]
    places += [
        f"{path}:{line}: {name} has {len(name)} characters, at most {TEST_NAME_LENGTH}"
        for path, tree in tests.items()
        for line, name in long_test_names(tree)
    ]
    places += [
        f"{path}: a sentence of {words} words, at most {SENTENCE_WORDS}: {begin} …"
        for path in tracked(*PAGES)
        for words, begin in long_sentences(path.read_text())
    ]
    for part, parsed in (("the code", code), ("the tests", tests)):
        vague, names = vague_share(list(parsed.values()))
        if vague >= VAGUE_SHARE * names:
            listed = ", ".join(sorted(VAGUE))
            places.append(f"{vague} of {names} variables and parameters of {part} have a vague name ({listed}).")
    for place in places:
        print(place)
    if places:
        print(f"{len(places)} places do not use the words of {GLOSSARY}, or are too long.")
    return min(len(places), 1)


if __name__ == "__main__":
    sys.exit(main())
