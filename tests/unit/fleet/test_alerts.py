"""Every alert fires and resolves in a real Prometheus that scrapes the real route, by facts of the ledger alone."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from ruamel.yaml import YAML

from pulsar_fleet.airflow.web import metrics
from pulsar_fleet.ledger.artefacts import LEDGER_VARIABLE
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.tables import conflicts, observations, phases, resource_versions, runs, verdicts

pytestmark = [pytest.mark.long, pytest.mark.sandbox, pytest.mark.timeout(300)]

RULES = Path(__file__).parents[3] / "docker" / "prometheus" / "rules.yml"
TOKEN = "scraped-by-prometheus"
SECONDS = 90
DOCS = "https://docs.example.org"
RUN = "migrate_namespaces/manual__1"
NOW = datetime.now(UTC)
MOVED: dict[str, int] = {}
"""What examinations say of groups that can return; tests/unit/fleet/test_metrics.py counts them."""
FAILED = ("watch_read_only", "watch_replication", "migrate_namespaces")


def rules() -> list[dict[str, Any]]:
    (group,) = YAML(typ="safe").load(RULES.read_text())["groups"]
    return list(group["rules"])


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """The one that the route reads."""
    monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{tmp_path / 'ledger.db'}")
    return Ledger.open()


@pytest.fixture
def route(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The metrics below their prefix, as Airflow's server mounts them."""
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv(metrics.TOKEN_VARIABLE, str(tmp_path / "token"))
    monkeypatch.setattr(metrics, "moved_groups", lambda *_: MOVED)
    outer, port = FastAPI(), free_port()
    outer.mount(metrics.PREFIX, metrics.app)
    server = uvicorn.Server(uvicorn.Config(outer, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    yield f"127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def prometheus(route: str, tmp_path: Path) -> Iterator[str]:
    """A Prometheus with the scrape configuration of docs/metrics.md and the shipped rules, each `for` one second."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: apt-get install prometheus"
    yaml, port = YAML(typ="safe"), free_port()
    document = yaml.load(RULES.read_text())
    for rule in document["groups"][0]["rules"]:
        rule["for"] = "1s"
    yaml.dump(document, tmp_path / "rules.yml")
    scraped = {
        "job_name": "pulsar-fleet",
        "metrics_path": f"{metrics.PREFIX}/metrics",
        "authorization": {"credentials_file": str(tmp_path / "token")},
        "static_configs": [{"targets": [route]}],
    }
    every = {"scrape_interval": "1s", "evaluation_interval": "1s", "external_labels": {"pulsar_fleet_docs": DOCS}}
    configuration = {"global": every, "scrape_configs": [scraped], "rule_files": ["rules.yml"]}
    yaml.dump(configuration, tmp_path / "prometheus.yml")
    command = [program, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--storage.tsdb.path={tmp_path / 'data'}"], cwd=tmp_path, stdout=log, stderr=log
        )
        try:
            yield f"http://127.0.0.1:{port}/api/v1"
        finally:
            process.terminate()
            process.wait(30)


def test_every_alert_fires_and_resolves_by_what_the_ledger_has(ledger: Ledger, prometheus: str) -> None:
    wait_until(lambda: scraped(prometheus))
    time.sleep(3)
    assert firing(prometheus) == {}
    break_everything(ledger)
    names = {rule["alert"] for rule in rules()}
    wait_until(lambda: set(firing(prometheus)) == names)
    texts = " ".join(firing(prometheus).values())
    for words in ("cut over 3h", "2 namespaces differ", "us-1 does not answer", "oldest proof", "2d 1h"):
        assert words in texts
    assert all((RULES.parents[2] / "docs" / page).exists() for page in pages(prometheus))
    mend_everything(ledger)
    wait_until(lambda: firing(prometheus) == {})


def break_everything(ledger: Ledger) -> None:
    """What happens to a fleet, at times at which nobody would have waited any longer."""
    insert(ledger, phases, phase("acme/a", "cut_over", hours=3), phase("acme/b", "frozen", hours=25))
    insert(ledger, phases, phase("acme/c", "incomplete", hours=1), phase("acme/g", "quiesced", hours=0.1))
    insert(ledger, verdicts, *(verdict("verify_clusters/1", name, "different") for name in ("acme/d", "acme/e")))
    insert(ledger, verdicts, verdict("verify_replication/1", "acme/f", "equal", hours=15 * 24))
    conflict = {"id": "1f", "fleet": "f", "run_id": RUN, "kind": "namespace", "name": "acme/a", "field": "ttl"}
    insert(ledger, conflicts, {**conflict, "rule": "time", "winner": "blue", "sides": {}, "at": NOW})
    insert(ledger, resource_versions, outage({"since": ago(1).isoformat()}))
    scan = {"fleet": "f", "cluster": "blue", "kind": "namespace", "name": "acme/a", "document": {}}
    insert(ledger, observations, {**scan, "observed_at": ago(3).timestamp()})
    insert(ledger, runs, *(run(name, "failed", number=1) for name in FAILED))
    insert(ledger, runs, run("watch_overrides", "succeeded", number=1, hours=49))
    MOVED.update(stalled=1, unwatched=1)


def mend_everything(ledger: Ledger) -> None:
    """What the procedures record when a person has done what the alerts say."""
    for name in ("acme/a", "acme/b", "acme/c", "acme/g"):
        ledger.enter_phase(RUN, name, "finished")
    for name in ("acme/d", "acme/e"):
        ledger.record_verdict("verify_clusters/2", name, verdict="equal", messages=1, summary="", artefact=None)
    ledger.record_verdict("verify_replication/2", "acme/f", verdict="equal", messages=1, summary="", artefact=None)
    with ledger.engine.begin() as connection:
        connection.execute(conflicts.update().values(resolved_at=NOW, chosen="green"))
        connection.execute(resource_versions.update().values(document={}))
        connection.execute(observations.update().values(observed_at=time.time()))
    MOVED.clear()
    for name in (*FAILED, "watch_overrides"):
        ledger.start_run(f"{name}/2", name, {})
        ledger.finish_run(f"{name}/2", "succeeded")


def phase(namespace: str, name: str, *, hours: float) -> dict[str, Any]:
    return {"run_id": RUN, "namespace": namespace, "phase": name, "at": ago(hours)}


def verdict(run_id: str, scope: str, name: str, *, hours: float = 1) -> dict[str, Any]:
    row = {"run_id": run_id, "scope": scope, "verdict": name, "messages": 1, "summary": ""}
    return {**row, "at": ago(hours)}


def outage(document: dict[str, str]) -> dict[str, Any]:
    row = {"topic": "events", "cluster": "*", "kind": "outage", "name": "us-1", "version": 1, "at": NOW}
    return {**row, "document": document}


def run(procedure: str, state: str, *, number: int, hours: float = 1) -> dict[str, Any]:
    row = {"run_id": f"{procedure}/{number}", "procedure": procedure, "conf": {}, "state": state}
    return {**row, "started_at": ago(hours)}


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def insert(ledger: Ledger, table: sa.Table, *rows: dict[str, Any]) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(table.insert(), list(rows))


def scraped(prometheus: str) -> bool:
    """Whether the route has answered Prometheus."""
    try:
        answer = httpx.get(f"{prometheus}/query", params={"query": "up"})
    except httpx.TransportError:
        return False
    # It answers 503 until it has read its storage.
    rows = answer.json()["data"]["result"] if answer.is_success else []
    return [row["value"][1] for row in rows] == ["1"]


def firing(prometheus: str) -> dict[str, str]:
    """Alert → what it says to a person."""
    alerts = httpx.get(f"{prometheus}/alerts").json()["data"]["alerts"]
    return {row["labels"]["alertname"]: row["annotations"]["summary"] for row in alerts if row["state"] == "firing"}


def pages(prometheus: str) -> list[str]:
    """The page that each alert links to."""
    alerts = httpx.get(f"{prometheus}/alerts").json()["data"]["alerts"]
    return [row["annotations"]["runbook_url"].removeprefix(f"{DOCS}/") for row in alerts]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.5)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
