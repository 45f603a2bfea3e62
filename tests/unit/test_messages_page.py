"""The page of all messages, as the code has them."""

from __future__ import annotations

from pathlib import Path

from docs.tools.messages import PAGE, messages, with_messages

REPOSITORY = Path(__file__).parents[2]


def test_the_page_has_every_message_of_the_code() -> None:
    page = (REPOSITORY / "docs" / PAGE).read_text()
    assert with_messages(page, REPOSITORY / "plugins" / "pulsar_fleet") == page, "run: make docs"


def test_values_are_left_open_and_a_text_that_is_only_a_value_is_none(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    lines = (
        'raise NotFound(f"{name} has no topic {topic!r}: " "correct it.")',
        "raise Conflict(text)",
        'raise ValueError("a b c d")',
    )
    (tmp_path / "cli" / "x.py").write_text("\n".join(lines))
    assert list(messages(tmp_path)) == [("cli", "NotFound", "… has no topic …: correct it.")]
