"""What an operator sees before a run: the runbook and its form."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.fleet

DAG = Path(__file__).parents[2] / "dags" / "migrate_namespaces.py"
TITLES = ["Blue", "Green", "Namespaces", "Strategy", "Time for copying and draining, minutes", "Dry run"]


def open_form(page: Page) -> Locator:
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    expect(form.get_by_text("Run Parameters")).to_be_visible()
    return form


@pytest.mark.parametrize("title", TITLES)
def test_every_field_of_the_form_has_its_title(page: Page, title: str) -> None:
    expect(open_form(page)).to_contain_text(title)


@pytest.mark.parametrize(
    "description",
    [
        "Connection of the cluster that the namespaces leave.",
        "What to move: tenant/namespace, a tenant, re: and a pattern of the whole",
        "Evaluate every gate and show the waves; change nothing.",
    ],
)
def test_a_field_says_what_it_is_for(page: Page, description: str) -> None:
    expect(open_form(page)).to_contain_text(description)


def test_a_name_that_is_no_namespace_is_refused_with_a_message(page: Page) -> None:
    form = open_form(page)
    form.locator("[name=element_blue]").fill("pulsar_blue")
    form.locator("[name=element_green]").fill("pulsar_green")
    form.locator("textarea").first.fill("not a namespace")
    form.get_by_role("button", name="Trigger", exact=True).last.click()
    expect(page.get_by_text("does not match").first).to_be_visible(timeout=15_000)


def test_the_runbook_is_told_beside_the_form(page: Page) -> None:
    headline = (ast.get_docstring(ast.parse(DAG.read_text())) or "").splitlines()[0].lstrip("# ")
    page.get_by_role("button", name="Dag Docs").click()
    expect(page.get_by_text(headline).first).to_be_visible()


def test_the_page_lists_the_steps_of_the_runbook(page: Page) -> None:
    for step in (
        "check_gates",
        "approve_wave",
        "prepare_green",
        "cut_over",
        "wait_drained",
        "restore_blue",
        "write_report",
    ):
        expect(page.get_by_text(step, exact=True).first).to_be_visible()
