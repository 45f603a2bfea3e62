"""Every report has one shape: outcome, what to do, picture, tables; details are folded, and nothing is obeyed."""

from __future__ import annotations

import re

import pytest

from pulsar_fleet.report.document import NOTHING_TO_DO, Outcome, Report, Section
from pulsar_fleet.report.failure import failed_report
from pulsar_fleet.report.page import html_page

HOSTILE = "<script>alert(1)</script>"
PICTURE = b'<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg viewBox="0 0 1 1"></svg>'
REPORT = Report(
    outcome=Outcome.ATTENTION,
    headline="Migrated 1 namespace",
    to_do=("restart billing.", "restore blue."),
    body=("| namespace | phase |\n| --- | --- |\n| acme/orders | finished |",),
    details=(Section(title="Proofs", text="* EQUAL acme/orders"),),
)


def test_the_page_begins_with_outcome_and_what_to_do() -> None:
    page = html_page(REPORT, picture=PICTURE)
    order = ("Needs attention", "<h1", "restart billing", "<figure", "acme/orders</td>", "<details><summary>Proofs")
    positions = [page.index(text) for text in order]
    assert positions == sorted(positions)
    assert page.index('<header class="banner attention">') < positions[0]
    assert "<?xml" not in page


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_is_a_symbol_and_a_word(outcome: Outcome) -> None:
    symbol, _, word = outcome.text.partition(" ")
    assert (symbol.isascii(), word.isalpha() or " " in word) == (False, True)
    assert len({other.text[0] for other in Outcome}) == len(Outcome)


def test_the_text_says_the_same_in_the_same_order() -> None:
    assert REPORT.markdown() == (
        "# Migrated 1 namespace\n\n**⚠ Needs attention.** To do:\n\n* restart billing.\n* restore blue.\n\n"
        "| namespace | phase |\n| --- | --- |\n| acme/orders | finished |\n\n## Proofs\n\n* EQUAL acme/orders\n"
    )


def test_a_run_that_leaves_nothing_says_so() -> None:
    report = Report(outcome=Outcome.SUCCEEDED, headline="Equal")
    assert NOTHING_TO_DO in report.markdown()
    assert NOTHING_TO_DO in html_page(report)


def test_a_failure_says_the_reason_and_what_to_do() -> None:
    text = failed_report({"cut_over": "green answered 503"}, "Nothing has been changed.").markdown()
    assert text.startswith("# Failed in cut_over: green answered 503\n\n**✗ Failed.** To do: remove the reason; then")


def test_no_text_of_a_report_is_obeyed() -> None:
    section = Section(title=HOSTILE, text=f"[x](javascript:alert(1)) {HOSTILE}")
    report = Report(outcome=Outcome.FAILED, headline=HOSTILE, to_do=(HOSTILE,), body=(HOSTILE,), details=(section,))
    page = html_page(report)
    assert "<script" not in page
    assert 'href="javascript' not in page
    assert page.count("&lt;script&gt;") == 6


def test_paper_has_every_part_in_black() -> None:
    style = html_page(REPORT).partition("<style>")[2].partition("</style>")[0]
    assert "size: A4" in style
    assert re.search(r"details::details-content \{ content-visibility: visible", style.partition("@media print")[2])


def test_a_report_is_read_as_the_value_that_it_was_written_from() -> None:
    assert Report.from_json(REPORT.to_json()) == REPORT
