"""The symbol and the class of colour of each state; a word always says the same (pure)."""

from __future__ import annotations

PHASES = {
    **dict.fromkeys(("finished", "verified", "cleaned"), ("✓", "good")),
    "incomplete": ("✗", "bad"),
    "aborted": ("↩", "open"),
}
RUN_STATES = {"succeeded": ("✓", "good"), "failed": ("✗", "bad"), "undone": ("↩", "open"), "running": ("…", "open")}
VERDICTS = {"equal": ("✓", "good"), "inconclusive": ("?", "open")}
