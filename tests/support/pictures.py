"""Take the pictures of docs/images from what `make up` left running: `python -m tests.support.pictures`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Page
from tests.support.chromium import browser

from pulsar_sandbox.demo.stack import AirflowStack

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SETTLE_MS = 4000


def take(folder: Path) -> None:
    """A finished migration, and its form."""
    stack = AirflowStack.attach(folder)
    stack.wait_ready("migrate_namespaces")
    run = stack.last_run("migrate_namespaces")
    with browser() as running:
        page = running.new_page(viewport={"width": 1400, "height": 760})
        _shoot(page, f"{stack.url}/dags/migrate_namespaces/runs/{run}", "migrate_namespaces")
        page.set_viewport_size({"width": 1400, "height": 1250})
        page.goto(f"{stack.url}/dags/migrate_namespaces")
        page.get_by_role("button", name="Trigger").first.click()
        page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=str(IMAGES / "trigger_form.png"))


def _shoot(page: Page, url: str, name: str) -> None:
    page.goto(url)
    page.wait_for_timeout(SETTLE_MS)
    page.screenshot(path=str(IMAGES / f"{name}.png"))


if __name__ == "__main__":
    take(Path(sys.argv[1] if len(sys.argv) > 1 else ".state/demo/airflow"))
