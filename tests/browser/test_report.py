"""A report in a real browser: details are folded on the screen and printed, and nothing is cut off."""

from __future__ import annotations

from playwright.sync_api import expect
from tests.support.chromium import browser

from pulsar_fleet.report.document import Outcome, Report, Section
from pulsar_fleet.report.page import html_page

REPORT = Report(
    outcome=Outcome.ATTENTION,
    headline="Migrated 1 namespace",
    to_do=("restart billing.",),
    body=("| namespace | phase |\n| --- | --- |\n| acme/orders | finished |",),
    details=(Section(title="Proofs", text="4,118,202 messages are equal"),),
)


def test_folded_parts_open_by_keyboard_and_are_printed() -> None:
    with browser() as running:
        page = running.new_page()
        page.set_content(html_page(REPORT))
        proof = page.get_by_text("4,118,202 messages")
        shown = "element => element.checkVisibility()"
        assert not proof.evaluate(shown)
        page.emulate_media(media="print")
        assert proof.evaluate(shown)
        page.emulate_media(media="screen")
        page.get_by_text("Proofs").press("Enter")
        assert proof.evaluate(shown)
        expect(page.get_by_role("heading", level=1)).to_have_text("Migrated 1 namespace")
