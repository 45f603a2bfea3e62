"""The form of a prepared run keeps every value as it is, and says what is wrong with what a person entered."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.fleet.layout import Links
from pulsar_fleet.fleet.prepared_run import Control, Field, StartForm, start_page, started_page

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
LINKS = Links("/pulsar-fleet", "/airflow")
HOSTILE = '</textarea><script>alert(1)</script>" autofocus x="'
STRINGS = {"type": "array", "items": {"type": "string"}}


def setting(**schema: Any) -> Field:
    return Field(name="x", title="Title", description="What it does.", schema=schema)


@pytest.mark.parametrize(
    ("schema", "control", "value"),
    [
        ({"type": "string"}, Control.TEXT, "pulsar_blue"),
        ({"type": ["null", "string"]}, Control.TEXT, None),
        ({"type": "string", "enum": ["report", "repair"]}, Control.CHOICE, "repair"),
        ({"type": "boolean"}, Control.CHOICE, False),
        ({"type": "integer"}, Control.NUMBER, 7),
        ({"type": ["null", "number"]}, Control.NUMBER, None),
        ({"type": "number"}, Control.NUMBER, 0.5),
        (STRINGS, Control.LINES, ["acme", "re:beta/.*"]),
        (STRINGS, Control.LINES, []),
        (STRINGS, Control.LINES, ["persistent://x/n/a `pulsar-fleet restore blue` ", "persistent://x/n/ b%20c"]),
        ({"type": "array", "items": {"type": "object"}}, Control.JSON, [{"id": "a", "why": "ü"}]),
    ],
)
def test_a_value_comes_back_as_it_was(schema: dict[str, Any], control: Control, value: Json) -> None:
    field = setting(**schema)
    assert field.control is control
    assert field.value(field.text(value)) == value


def test_spaces_around_a_line_that_names_no_topic_are_left_out() -> None:
    assert setting(**STRINGS).value(" acme/orders \r\n\r\nbeta\n") == ["acme/orders", "beta"]


def test_what_is_no_json_is_refused_by_the_name_of_its_field() -> None:
    with pytest.raises(InvalidRequest, match="Title is not valid JSON"):
        setting(type="array", items={"type": "object"}).value("[{]")


def test_everything_in_the_form_stays_text() -> None:
    fields = [(setting(type="string"), HOSTILE), (setting(**STRINGS), HOSTILE)]
    form = StartForm(
        dag_id=HOSTILE, title=HOSTILE, consequence=HOSTILE, shown=fields, others=fields, is_paused=True, error=HOSTILE
    )
    assert start_page(form, LINKS, NOW).count("<script>") == 1
    assert started_page(HOSTILE, LINKS, NOW).count("<script>") == 1


@pytest.mark.parametrize(("has_schedule", "words"), [(True, "its schedule begins too"), (False, " checked>")])
def test_unpausing_a_dag_with_a_schedule_is_a_choice(has_schedule: bool, words: str) -> None:
    form = StartForm(
        dag_id="x", title="", consequence="", shown=[], is_paused=True, may_unpause=True, has_schedule=has_schedule
    )
    assert words in start_page(form, LINKS, NOW)
    assert (" checked>" in start_page(form, LINKS, NOW)) is not has_schedule
