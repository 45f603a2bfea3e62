"""The page of replicators has each link of the newest examinations, with the age of its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsar_fleet.fleet.layout import Links
from pulsar_fleet.fleet.records import REPLICATION_WATCH, read_watched
from pulsar_fleet.fleet.replicators import PAGE_SIZE, ReplicatorsView, replicators_page
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.doctor.changes import store_examination
from pulsar_fleet.replication.doctor.model import Diagnosis, Examination, LinkState, ReplicatorState, Severity, State
from pulsar_fleet.report.page import PAGE

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
LINKS = Links("/pulsar-fleet")
HOSTILE = "acme/<script>alert(1)</script>"
HEALTHY = LinkState(source="green", target="blue", counts={"healthy": 7}, catch_up_seconds=0.0)
STALLED = ReplicatorState(
    source="blue",
    target="green",
    topic="persistent://acme/orders/events",
    state=State.STALLED,
    causes=("schema-blocked",),
    backlog=412_000,
    delay_seconds=1320,
)
EXAMINATION = Examination(
    clusters=("blue", "green"),
    namespaces=1,
    counts={"stalled": 1, "healthy": 7},
    replicators=(STALLED,),
    links=(
        LinkState(source="blue", target="green", counts={"stalled": 1}, backlog=412_000, delay_seconds=1320),
        HEALTHY,
    ),
    read_at=(NOW - timedelta(minutes=5)).timestamp(),
    diagnoses=(
        Diagnosis(
            id="schema-blocked",
            severity=Severity.FAULT,
            resource=STALLED.topic,
            source="blue",
            target="green",
            evidence="green lacks version 3.",
            consequence="Nothing is replicated.",
            remedy="allow the schema.",
        ),
    ),
)


@pytest.fixture
def ledger(new_database: Callable[[], str], records: Path) -> Ledger:
    return Ledger.open(new_database())


def examine(ledger: Ledger, run_id: str, examination: Examination | None, *clusters: str) -> None:
    ledger.start_run(f"{REPLICATION_WATCH}/{run_id}", REPLICATION_WATCH, {"clusters": list(clusters), "selection": []})
    if examination:
        store_examination(Run(f"{REPLICATION_WATCH}/{run_id}", ledger, Artefacts.open()), examination)


def page(ledger: Ledger, number: int = 1) -> str:
    artefacts = Artefacts.open()
    watched = read_watched(ledger, artefacts)
    reports = artefacts.runs_with(PAGE, [fleet.run_id for fleet in watched])
    return replicators_page(watched, NOW, LINKS, ReplicatorsView(number=number), reports)


def row(text: str, name: str) -> str:
    return text.partition(f'<th scope="row">{name}</th>')[2].partition("</tr>")[0]


def test_a_fleet_that_nobody_watches_says_so(ledger: Ledger) -> None:
    assert "No run of <code>watch_replication</code> has examined a cluster yet." in page(ledger)


def test_each_link_has_lag_time_to_catch_up_diagnosis_and_age(ledger: Ledger) -> None:
    examine(ledger, "1", EXAMINATION, "pulsar_blue", "pulsar_green")
    text = page(ledger)
    stalled, healthy = row(text, "blue → green"), row(text, "green → blue")
    for words in ("■ stalled", "412,000", "22 min", "does not catch up", "schema-blocked", "5 min 0 s ago"):
        assert words in stalled
    for words in ("✓ healthy", "7 healthy", "caught up", "none"):
        assert words in healthy
    assert "2 clusters, 2 links, 1 with a replicator that does not work." in text
    assert "allow the schema." in text


def test_the_newest_examination_of_each_fleet_counts(ledger: Ledger) -> None:
    examine(ledger, "1", EXAMINATION, "pulsar_blue", "pulsar_green")
    caught_up = replace(EXAMINATION, links=(HEALTHY,), replicators=(), diagnoses=())
    examine(ledger, "2", caught_up, "pulsar_green", "pulsar_blue")
    other = replace(HEALTHY, source="us", target="eu")
    examine(ledger, "3", replace(caught_up, clusters=("eu", "us"), links=(other,)), "eu", "us")
    examine(ledger, "4", None, "pulsar_blue", "pulsar_green")
    text = page(ledger)
    assert "412,000" not in text
    assert row(text, "green → blue")
    assert row(text, "us → eu")
    assert "4 clusters, 2 links." in text


def test_an_examination_of_an_earlier_release_is_as_old_as_its_run(ledger: Ledger) -> None:
    examine(ledger, "1", replace(EXAMINATION, links=(), read_at=0.0), "pulsar_blue", "pulsar_green")
    (watched,) = read_watched(ledger, Artefacts.open())
    assert abs((datetime.now(UTC) - watched.read_at).total_seconds()) < 60
    assert row(page(ledger), f"blue → green {STALLED.topic}")


def test_thousands_of_replicators_are_paged_and_every_name_stays_text(ledger: Ledger) -> None:
    rows = tuple(replace(STALLED, topic=f"{HOSTILE}-{number:04}") for number in range(2 * PAGE_SIZE + 1))
    examine(ledger, "1", replace(EXAMINATION, replicators=rows), "pulsar_blue", "pulsar_green")
    text = page(ledger, number=3)
    assert "1 of 201 replicators that are not healthy" in text
    assert "-0200" in text
    assert "-0100" not in text
    assert text.count("<script>") == 1
