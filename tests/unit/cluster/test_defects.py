"""Known defects by version: below, at and above the fixed patch, and lines of which nothing is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.tools.catalogue_tables import PAGE, with_defects

from pulsar_fleet.cluster.defects.catalogue import DEFECTS, LINES, defects_of, defects_text
from pulsar_fleet.cluster.defects.model import BrokerDefect, Condition, Evidence, Span, fixed_in, open_in
from pulsar_fleet.cluster.versions import FACTS

BY_ID = {defect.id: defect for defect in DEFECTS}
BY_ISSUE = {issue: defect for defect in DEFECTS for issue in defect.issues}


def test_the_page_lists_every_row() -> None:
    page = (Path(__file__).parents[3] / "docs" / PAGE).read_text()
    assert with_defects(page) == page, "run: make docs"
    assert all(page.count(f"| `{defect.id}` |") == 1 for defect in DEFECTS)


@pytest.mark.parametrize(
    ("id_", "version", "has"),
    [
        ("shadow-deletes-source", "4.0.13", True),
        ("shadow-deletes-source", "4.0.14", False),
        ("shadow-deletes-source", "4.0.15-SNAPSHOT", False),
        ("shadow-deletes-source", "4.2.4", True),
        ("shadow-deletes-source", "4.2.5", False),
        ("shadow-deletes-source", "5.0.0-M2", True),
        ("shadow-deletes-source", "5.0.0", False),
        ("shadow-deletes-source", "5.1.0", False),
        ("batch-acknowledgments-forgotten", "5.0.0-M1", True),
        ("batch-acknowledgments-forgotten", "5.0.0-M2", False),
        ("shadow-replicator-leaks", "4.2.4", False),
        ("shadow-replicator-leaks", "5.0.0-M1", True),
        ("replicator-asks-without-end", "4.0.14", True),
        ("replicator-asks-without-end", "4.2.4", True),
        ("replicator-asks-without-end", "4.2.5", False),
        ("replicator-stops-for-a-topic", "4.2.9", True),
        ("system-topic-partitions-differ", "4.2.0", False),
        ("shadow-deletes-source", "4.1.9", False),
        ("shadow-deletes-source", "", False),
    ],
)
def test_a_defect_is_in_the_patches_of_its_spans(id_: str, version: str, has: bool) -> None:
    assert BY_ID[id_].has(version) is has


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.id)
def test_a_defect_ends_with_the_patch_that_fixes_it(defect: BrokerDefect) -> None:
    for span in defect.spans:
        assert span.line in LINES
        if span.fixed:
            below = f"{span.line}.{int(span.fixed.split('.')[2]) - 1}" if "-M" not in span.fixed else "5.0.0-M1"
            before = "5.0.0-M1" if span.fixed == "5.0.0" else below
            assert (defect.has(before), defect.has(span.fixed)) == (True, False)
        else:
            assert defect.has(f"{span.line}.99")


@pytest.mark.parametrize("version", ["3.0.7", "4.1.9", "5.1.0", "6.0.0", ""])
def test_nothing_is_said_of_a_line_that_was_not_read(version: str) -> None:
    assert defects_of(version) is None
    assert defects_text("topic-fenced", [version]) == ""


def test_the_defects_of_a_version_are_those_that_it_has() -> None:
    by_version = {version: defects_of(version) or () for version in ("4.0.7", "4.2.4", "4.2.5")}
    assert [defect for defect in DEFECTS if defect.has("4.2.4")] == [*by_version["4.2.4"]]
    assert len(by_version["4.0.7"]) > len(by_version["4.2.4"]) > len(by_version["4.2.5"]) > 0


def test_each_row_is_complete_and_has_an_id_of_its_own() -> None:
    assert len(BY_ID) == len(DEFECTS) >= 25
    for defect in DEFECTS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", defect.id)
        assert defect.issues
        assert defect.spans
        assert all(re.fullmatch(r"apache/pulsar#\d+", issue) for issue in defect.issues)
        assert all(text.endswith(".") for text in (defect.symptom, defect.seen, defect.remedy))
        assert not defect.remedy[0].isupper()


def test_facts_and_defects_name_the_same_patches_of_a_change() -> None:
    for fact in FACTS:
        for issue in re.findall(r"apache/pulsar#\d+", fact.source):
            if issue in BY_ISSUE:
                fixed = {span.fixed for span in BY_ISSUE[issue].spans}
                assert fixed <= set(fact.since), (issue, fixed, fact.since)


def test_a_sign_is_explained_by_what_the_brokers_have() -> None:
    assert defects_text("topic-fenced", ["4.2.4", "4.2.5"]) == (
        "Brokers of 4.2.4 are known for this: apache/pulsar#26678 (fixed in 4.0.14, 4.2.5, 5.0.0)."
    )
    assert defects_text("topic-fenced", ["4.2.5"]) == ""
    assert defects_text("client-missing", ["4.0.7"]) == ""
    assert "apache/pulsar#25097 (not fixed)" in defects_text("stalled-unexplained", ["4.2.4"])
    assert "#26002" in defects_text("stalled-unexplained", ["4.0.11"])
    assert "#26002" not in defects_text("stalled-unexplained", ["4.0.12"])


def test_the_text_of_a_fix_names_lines_without_one() -> None:
    row = BrokerDefect(
        id="a-b",
        symptom="It fails.",
        spans=(Span("4.0"), *fixed_in("4.2.5")),
        condition=Condition.SYMPTOM,
        seen="It fails.",
        remedy="wait.",
        issues=("apache/pulsar#1",),
    )
    assert row.fix == "fixed in 4.2.5, not fixed in 4.0"
    assert (row.evidence, Span("4.0").has("4.0.1"), open_in("4.2")) == (Evidence.UPSTREAM, True, (Span("4.2"),))
