"""The system's Chromium, driven by Playwright; no browser is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC = Path("/Applications/Chromium.app/Contents/MacOS/Chromium")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def executable() -> str:
    """Where Chromium is; its absence ends the program with the command that installs it."""
    chrome = next((path for name in NAMES if (path := shutil.which(name))), None) or (
        str(MAC) if MAC.exists() else None
    )
    if chrome is None:
        raise SystemExit("Chromium is missing. Debian: apt-get install chromium; macOS: brew install --cask chromium")
    return chrome


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable(), args=list(QUIET))
        try:
            yield running
        finally:
            running.close()
