"""The form of a prepared run: its settings filled in, to be looked at, changed and started (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.fleet.layout import Frame, Links, render

PREFIX = "conf."
"""Of the names of the form's fields that are settings."""


class Control(StrEnum):
    """How a setting is entered."""

    CHOICE = "choice"
    LINES = "lines"
    """Several texts, one a line."""
    JSON = "json"
    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting of a DAG's form.

    :param schema: its JSON schema, as Airflow has it.
    """

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types that its value may have."""
        types = self.schema.get("type") or "string"
        return (types,) if isinstance(types, str) else tuple(types)

    @property
    def control(self) -> Control:
        """How it is entered."""
        if self.schema.get("enum") or "boolean" in self.kinds:
            return Control.CHOICE
        if "array" in self.kinds:
            items = self.schema.get("items") or {}
            return Control.LINES if items.get("type") == "string" else Control.JSON
        if "object" in self.kinds:
            return Control.JSON
        return Control.NUMBER if {"integer", "number"} & {*self.kinds} else Control.TEXT

    @property
    def options(self) -> tuple[str, ...]:
        """The values of a choice, as texts."""
        return tuple(_plain(value) for value in self.schema.get("enum") or (True, False))

    def text(self, value: Json) -> str:
        """A value as the form shows it."""
        if value is None:
            return ""
        if self.control is Control.LINES and isinstance(value, list):
            return "\n".join(map(str, value))
        if self.control is Control.JSON:
            return json.dumps(value, indent=2, ensure_ascii=False)
        return _plain(value)

    def value(self, text: str) -> Json:
        """What a person entered; `InvalidRequest` for what JSON does not allow, where it is needed."""
        entered = text.strip()
        if self.control is Control.LINES:
            lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
            # The name of a topic may begin or end with a space.
            return [line if "://" in line else line.strip() for line in lines]
        if self.control is Control.TEXT:
            return entered or (None if "null" in self.kinds else "")
        if self.control is Control.CHOICE and "boolean" not in self.kinds:
            return entered
        try:
            value: Json = json.loads(entered) if entered else None
        except ValueError as error:
            raise InvalidRequest(f"{self.title} is not valid JSON: {error}.") from error
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForm:
    """What the form shows.

    :param shown: the settings that a person looks at first, with their texts; `others` are folded.
    :param is_paused: whether the runs of the DAG wait until it is unpaused.
    :param may_unpause: whether the visitor may do that.
    :param has_schedule: whether unpausing also begins its schedule.
    :param error: why the form was not accepted; empty at first.
    """

    dag_id: str
    title: str
    consequence: str
    shown: Sequence[tuple[Field, str]]
    others: Sequence[tuple[Field, str]] = ()
    is_paused: bool = False
    may_unpause: bool = False
    has_schedule: bool = False
    error: str = ""


def start_page(form: StartForm, links: Links, now: datetime) -> str:
    """The page as HTML."""
    frame = Frame(here=form.title, links=links, read_at=now, query={}, is_form=True)
    return render("start.html", frame, "Nothing has been started.", form=form, prefix=PREFIX, rows=_rows)


def started_page(run_id: str, links: Links, now: datetime) -> str:
    """What follows when the run was started."""
    frame = Frame(here="Started", links=links, read_at=now, query={}, is_form=True)
    return render("started.html", frame, "", run_id=run_id, run=links.run(run_id))


def _rows(text: str) -> int:
    """The height of a text field, in lines."""
    return min(16, max(2, text.count("\n") + 2))


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
