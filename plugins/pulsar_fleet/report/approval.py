"""Who answered for a run, in a sentence (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.json import JsonObject


def approval_text(approval: JsonObject | None) -> str:
    """`Wave 2: Approve by anna, 2026-11-21 …`; empty where nobody was asked.

    :param approval: what was approved (`about`), the `answer`, and `by` whom and `at` what time.
    """
    if approval is None:
        return ""
    when = f", {approval['at']}" if approval["at"] else ""
    return f"{approval['about'].capitalize()}: {approval['answer']} by {approval['by']}{when}."
