"""Metrics name no namespace, and every alert is about a metric that there is, and about a page that there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML
from tests.support.moved_groups import published_on_green

from pulsar_fleet.clients.store import Followed
from pulsar_fleet.fleet.metrics import metrics_text
from pulsar_fleet.fleet.records import moved_groups, read_fleet, read_oldest, read_returns
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication.doctor.changes import store_examination
from pulsar_fleet.replication.doctor.model import Examination, LinkState, ReturnState

ROOT = Path(__file__).parents[3]
RULES = ROOT / "docker" / "prometheus" / "rules.yml"
RUN = "migrate_namespaces/manual__1"
Samples = dict[tuple[str, ...], float]


def rules() -> list[dict[str, Any]]:
    (group,) = YAML(typ="safe").load(RULES.read_text())["groups"]
    return list(group["rules"])


def samples(ledger: Ledger, moved: dict[str, int] | None = None) -> Samples:
    text = metrics_text(read_fleet(ledger), read_oldest(ledger), moved or {}).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def ledger(new_database: Callable[[], str]) -> Ledger:
    return Ledger.open(new_database())


def test_an_empty_ledger_has_no_alarm(ledger: Ledger) -> None:
    assert samples(ledger) == {("pulsar_fleet_open_conflicts",): 0.0}


def test_a_fleet_is_counted_without_the_names_of_its_namespaces(ledger: Ledger) -> None:
    ledger.start_run(RUN, "migrate_namespaces", {})
    for number in range(30):
        ledger.enter_phase(RUN, f"acme/n{number}", "frozen")
        ledger.enter_phase(RUN, f"acme/n{number}", "cut_over" if number < 20 else "finished")
        ledger.record_verdict(RUN, f"acme/n{number}", verdict="drained", messages=0, summary="", artefact=None)
    ledger.finish_run(RUN, "failed")
    values = samples(ledger)

    assert values["pulsar_fleet_namespaces", "cut_over"] == 20
    assert values["pulsar_fleet_proofs", "drained"] == 30
    assert values["pulsar_fleet_last_run_failed", "migrate_namespaces"] == 1
    oldest = [name[1] for name in values if name[0] == "pulsar_fleet_oldest_phase_timestamp_seconds"]
    assert oldest == ["cut_over", "finished"]
    assert not [name for name in values if "acme" in "".join(name)]
    assert len(values) < 12


def test_moved_groups_are_counted_by_what_the_newest_examination_says(ledger: Ledger, records: Path) -> None:
    published = published_on_green(at=datetime.now(UTC).isoformat())
    groups = [
        Followed(published=published, origin="blue", is_away=True),
        Followed(published=replace(published, run="move_clients/2"), origin="blue", is_away=True),
        Followed(published=replace(published, run="return_clients/1")),
        # Of one of its namespaces nobody knows.
        Followed(
            published=replace(published, run="move_clients/3", namespaces=("acme/orders", "beta/b")),
            origin="blue",
            is_away=True,
        ),
    ]
    ledger.start_run("watch_replication/1", "watch_replication", {"clusters": ["blue", "green"]})
    link, fine = (LinkState(source="green", target="blue", counts={state: 1}) for state in ("stalled", "healthy"))
    examination = Examination(
        clusters=("blue", "green"),
        namespaces=1,
        counts={"stalled": 1},
        returns=(
            ReturnState(group="orders", run="move_clients/1", replicators=link, namespaces=("acme/orders",)),
            ReturnState(group="wide", run="move_clients/3", replicators=fine, namespaces=("acme/orders",)),
        ),
        read_at=time.time(),
    )
    store_examination(Run("watch_replication/1", ledger, Artefacts.open()), examination)
    returns = read_returns(ledger, Artefacts.open(), groups)
    counted = moved_groups(groups, returns)
    assert counted == {"stalled": 1, "unwatched": 1, "unknown": 1}
    assert samples(ledger, counted)["pulsar_fleet_moved_groups", "stalled"] == 1
    # What an hour ago was so may not be so now.
    later = datetime.now(UTC) + timedelta(hours=2)
    assert read_returns(ledger, Artefacts.open(), groups, later) == {}


def test_the_age_of_a_proof_is_that_of_what_is_proven_on_schedule(ledger: Ledger) -> None:
    for run, scope in ((RUN, "acme/moved"), ("verify_replication/scheduled__1", "acme/copied")):
        ledger.record_verdict(run, scope, verdict="equal", messages=1, summary="", artefact=None)
    first = samples(ledger)["pulsar_fleet_oldest_proof_timestamp_seconds",]
    ledger.record_verdict(
        "verify_replication/scheduled__2", "acme/copied", verdict="equal", messages=1, summary="", artefact=None
    )

    assert samples(ledger)["pulsar_fleet_oldest_proof_timestamp_seconds",] > first


def test_every_alert_reads_metrics_that_there_are_and_names_a_page(ledger: Ledger) -> None:
    exported = exported_metrics()
    for rule in rules():
        assert set(re.findall(r"pulsar_fleet_\w+", rule["expr"])) <= exported, rule["alert"]
        for page in re.findall(r"docs/\w+\.md", rule["annotations"]["runbook"]):
            assert (ROOT / page).exists(), page
    declared = re.compile(r'^(?:PROCEDURE = |    NAME: ClassVar\[str\] = |    name=)"(\w+)"', re.MULTILINE)
    files = (ROOT / "plugins" / "pulsar_fleet").rglob("*.py")
    recorded = {name for file in files for name in declared.findall(file.read_text())}
    named = {name for rule in rules() for name in re.findall(r'procedure="(\w+)"', rule["expr"])}
    assert (named - recorded, "watch_overrides" in recorded) == (set(), True)
    table = (ROOT / "docs" / "metrics.md").read_text()
    assert {name for name in exported if f"`{name}`" not in table} == set()
    assert {rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in table} == set()


def test_the_dashboard_shows_every_metric_and_no_panel_hides_another() -> None:
    dashboard = json.loads((ROOT / "docker" / "grafana" / "pulsar_fleet.json").read_text())
    shown = {name for panel in dashboard["panels"] for name in _metrics_in(panel)}
    assert shown == exported_metrics()
    places = [
        (column, row)
        for panel in dashboard["panels"]
        for place in (panel["gridPos"],)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(places) == len({*places})
    assert max(column for column, _ in places) == 23
    assert all(panel["description"].endswith(".") for panel in dashboard["panels"])


def _metrics_in(panel: dict[str, Any]) -> set[str]:
    return {name for target in panel["targets"] for name in re.findall(r"pulsar_fleet_\w+", target["expr"])}


def exported_metrics() -> set[str]:
    source = (ROOT / "plugins" / "pulsar_fleet" / "fleet" / "metrics.py").read_text()
    return {f"pulsar_fleet_{name}" for name in re.findall(r'f"\{_PREFIX\}(\w+)"', source)}


@pytest.mark.long
@pytest.mark.sandbox
def test_every_alert_is_silent_fires_and_resolves() -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing: apt-get install prometheus"
    done = subprocess.run(
        [promtool, "test", "rules", "rules_test.yml"], cwd=RULES.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", (RULES.parent / "rules_test.yml").read_text()))
    assert {rule["alert"] for rule in rules()} == tested
