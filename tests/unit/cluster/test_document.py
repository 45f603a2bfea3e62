"""Dataclasses as JSON documents: shapes, versions, errors; and who pays for the import of pydantic."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import pytest

from pulsar_fleet.cluster.document import ArrayDocument, Document, Rounded, Sorted
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import TopicName

TOPIC = TopicName.parse("persistent://acme/orders/events")


class Colour(StrEnum):
    """An enum."""

    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Reading(ArrayDocument):
    """An array."""

    at: float
    colour: Colour | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Document):
    """An object."""

    SCHEMA_VERSION = 4
    OTHER_VERSION = "make the report again"
    PROPERTIES = ("count",)

    readings: Mapping[TopicName, tuple[Reading, ...]]
    seconds: Annotated[float, Rounded(1)] = 0.25
    names: Annotated[frozenset[str], Sorted()] = field(default_factory=frozenset)

    @property
    def count(self) -> int:
        """Number of topics."""
        return len(self.readings)


REPORT = Report(readings={TOPIC: (Reading(1.5, Colour.BLUE), Reading(2.0))}, names=frozenset({"b", "a"}))
DOCUMENT = {
    "schema_version": 4,
    "count": 1,
    "readings": {str(TOPIC): [[1.5, "blue"], [2.0, None]]},
    "seconds": 0.2,
    "names": ["a", "b"],
}


def test_names_enums_tuples_sets_and_nested_arrays_are_plain_json() -> None:
    assert REPORT.to_json() == DOCUMENT


def test_a_value_is_read_back_and_its_properties_are_derived_again() -> None:
    report = Report.from_bytes(REPORT.to_bytes())
    assert report == Report(
        readings={TOPIC: (Reading(1.5, Colour.BLUE), Reading(2.0))}, seconds=0.2, names=REPORT.names
    )
    assert Report.from_json({**DOCUMENT, "count": 7}).count == 1


def test_a_document_of_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRequest, match="This report has schema version 3, this release reads 4"):
        Report.from_json({**DOCUMENT, "schema_version": 3})


@pytest.mark.parametrize(
    ("readings", "place"),
    [
        ({str(TOPIC): [["soon", "blue"]]}, "readings.persistent://acme/orders/events.0.at: "),
        ({str(TOPIC): [[1.0, "red"]]}, "readings.persistent://acme/orders/events.0.colour: "),
        (None, "readings: "),
    ],
)
def test_an_invalid_document_is_refused_with_the_place(readings: object, place: str) -> None:
    with pytest.raises(InvalidRequest, match=f"not a valid report: {place}"):
        Report.from_json({**DOCUMENT, "readings": readings})


def test_executors_read_messages_without_pydantic() -> None:
    code = (
        "import sys; import pulsar_fleet.messages.datasource.source; "
        "import pulsar_fleet.verification.messages.spark_backend; "
        "from pulsar_fleet.messages.ranges import Range; from pulsar_fleet.cluster.names import Position; "
        "reading = Range(0, 0, 't', Position(1, 2), Position(1, 3), 2, False); "
        "assert Range.from_json(reading.to_json()) == reading; "
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
