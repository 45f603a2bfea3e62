"""Numbers, durations and names as people read them; and no text of the package counts in another way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_fleet.cluster.text import byte_size, counted, duration, listed

PACKAGE = Path(__file__).parents[3] / "plugins" / "pulsar_fleet"
CHECKED = ("cli", "report", "airflow", "planning/render.py", "migration/drain/monitor.py", "migration/waves")
NOUNS = frozenset(
    [
        "batches",
        "blockers",
        "brokers",
        "calls",
        "changes",
        "clients",
        "clusters",
        "conflicts",
        "consumers",
        "differences",
        "entries",
        "events",
        "files",
        "findings",
        "messages",
        "namespaces",
        "partitions",
        "policies",
        "polls",
        "producers",
        "resources",
        "roles",
        "runs",
        "subscriptions",
        "tenants",
        "topics",
        "warnings",
        "waves",
    ]
)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "change", "0 changes"),
        (1, "resource", "1 resource"),
        (2, "entry", "2 entries"),
        (1200, "policy", "1,200 policies"),
        (3, "batch", "3 batches"),
        (1, "unread entry", "1 unread entry"),
    ],
)
def test_a_number_has_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (20, "20 s"),
        (140, "2 min 20 s"),
        (2280, "38 min"),
        (9000, "2.5 h"),
        (86_400, "24.0 h"),
        (180_000, "2 days 2 h"),
        (426_846, "4 days 23 h"),
    ],
)
def test_a_duration_is_one_that_people_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_few_names_are_listed_in_full() -> None:
    assert (listed([]), listed("ab"), listed("abc"), listed("abcd")) == (
        "none",
        "a, b",
        "a, b, c",
        "a, b, c and 1 more",
    )


def test_thousands_of_names_are_a_short_text() -> None:
    assert listed(f"acme/n{number}" for number in range(10_000)) == "acme/n0, acme/n1, acme/n2 and 9,997 more"


def modules() -> Iterator[Path]:
    for name in CHECKED:
        path = PACKAGE / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        yield from (file for file in files if file != PACKAGE / "report" / "reconciliation.py")


@pytest.mark.parametrize("module", list(modules()), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_text_counts_a_noun_without_the_shared_function(module: Path) -> None:
    """A number before a plural is wrong for 1: "1 resources"."""
    wrong = []
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.JoinedStr):
            for part, after in zip(node.values, node.values[1:], strict=False):
                words = str(after.value).split() if isinstance(after, ast.Constant) else []
                follows = bool(words) and str(after.value).startswith(" ") and words[0].rstrip(",.;:") in NOUNS
                if isinstance(part, ast.FormattedValue) and follows:
                    wrong.append(f"line {node.lineno}: {ast.unparse(part)} {words[0]}")
    assert wrong == []


@pytest.mark.parametrize("module", list(modules()), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_text_prints_a_measured_time_as_a_number_of_seconds(module: Path) -> None:
    """`:.0f} s` is "about 426846 s" one day; steps of a terminal run keep their column of seconds."""
    wrong = [
        f"line {number}: {line.strip()}"
        for number, line in enumerate(module.read_text().splitlines(), 1)
        if ":.0f} s" in line or ":,.0f} s" in line
    ]
    assert [line for line in wrong if "POLL_SECONDS" not in line] == []


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (64 << 20, "64 MiB"),
        (int(3.2 * 2**30), "3.2 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_sizes_have_two_digits_and_a_unit(count: int, text: str) -> None:
    assert byte_size(count) == text
