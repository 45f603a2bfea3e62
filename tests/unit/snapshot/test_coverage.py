"""What a cluster holds: every row has an answer, and each finding that it names exists."""

from __future__ import annotations

from tests.support.remedy_inventory import INVENTORY

from pulsar_fleet.snapshot.coverage import CONTENTS, Treatment, not_copied


def test_each_content_has_one_row() -> None:
    names = [content.name for content in CONTENTS]
    assert len(names) == len(set(names))


def test_what_does_not_apply_says_why() -> None:
    assert all(content.how for content in CONTENTS if content.treatment is Treatment.NOT_APPLICABLE)


def test_a_finding_that_names_a_content_exists() -> None:
    known = {finding for group in INVENTORY for finding in group.says}
    assert {finding for content in CONTENTS for finding in content.findings} <= known


def test_the_sentence_names_what_is_not_copied_and_nothing_else() -> None:
    assert not_copied().startswith("messages, positions of subscriptions, ")
    assert "tenants" not in not_copied()
    assert "racks" not in not_copied()
