"""The Fleet page in Airflow's navigation: behind its login, escaped, current, and usable without a mouse."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlencode

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.support.chromium import browser

from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.cluster_notes import NoteKind, write_note
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.reconciliation_store import ReconciliationStore, StoredObservation
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.ledger.tables import conflicts
from pulsar_fleet.replication.doctor.changes import store_examination
from pulsar_fleet.replication.doctor.model import Diagnosis, Examination, LinkState, ReplicatorState, Severity, State
from pulsar_fleet.report.document import Outcome, Report, Section
from pulsar_fleet.report.migration_timeline import migration_picture
from pulsar_fleet.report.page import store_report
from pulsar_sandbox.demo.stack import START_SECONDS, AirflowStack

pytestmark = pytest.mark.fleet

RUN = "migrate_namespaces/manual__2026-11-25T12:00:00+00:00"
HOSTILE = "acme/<script>document.title='taken'</script>"
PICTURES = os.environ.get("PULSAR_FLEET_PICTURES", "")
"""The folder for the pictures of the documentation; `make pictures` sets it."""
RECONCILIATION = "reconcile_policies/scheduled__1"
CLUSTERS = ["pulsar_east", "pulsar_west"]
QUERY = urlencode({"run": RUN})
PASSWORDS = {"ann": "for-ann-only", "nobody": "for-nobody-only", "vic": "for-vic-only"}
METRICS_TOKEN = "scraped-by-prometheus"
ROUTES = (
    "/",
    f"/report?{QUERY}",
    f"/evidence?{QUERY}",
    "/audit",
    "/replicators",
    f"/migration?{QUERY}",
    "/matrix",
    "/start?errand=settle&about=1f3c%3Dgreen",
    "/started?run=reconcile_policies%2F1",
    "/openapi.json",
    "/docs",
)
WORDS = (
    "As of",
    "Migrated",
    "How to verify this file",
    "UNCHANGED",
    "Links of clusters",
    "Phases and backlog",
    "✓ same",
    "Settle a conflict",
    "✓ started",
)


TOPIC = "persistent://acme/orders/events"
EXAMINATION = Examination(
    clusters=("blue", "green"),
    namespaces=1,
    counts={"stalled": 1},
    replicators=(ReplicatorState(source="blue", target="green", topic=TOPIC, state=State.STALLED, backlog=412_000),),
    links=(LinkState(source="blue", target="green", counts={"stalled": 1}, backlog=412_000),),
    diagnoses=(
        Diagnosis(
            id="schema-blocked",
            severity=Severity.FAULT,
            resource=TOPIC,
            source="blue",
            target="green",
            evidence="green lacks version 3.",
            consequence="Nothing is replicated.",
            remedy="allow the schema.",
        ),
    ),
)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    """Airflow with its login, an administrator, a viewer and a user without a role, and a ledger with one migration."""
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "passwords.json").write_text(json.dumps(PASSWORDS))
    (folder / "metrics-token").write_text(f"{METRICS_TOKEN}\n")
    settings = {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:admin,nobody:,vic:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "PULSAR_FLEET_METRICS_TOKEN_FILE": str(folder / "metrics-token"),
    }
    fill(folder / "pulsar-fleet")
    stack = AirflowStack.launch(folder, settings=settings)
    try:
        wait_for_login(stack.url)
        wait_for_dag(stack, "reconcile_policies")
        yield stack
    finally:
        stack.stop()


def fill(folder: Path) -> None:
    ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
    run = Run(RUN, ledger, Artefacts.open(str(folder / "artefacts")))
    run.ledger.start_run(RUN, "migrate_namespaces", {"namespaces": [HOSTILE, "acme/orders"]})
    for phase in ("prepared", "cut_over", "drained", "finished"):
        run.ledger.enter_phase(RUN, "acme/orders", phase)
    run.ledger.enter_phase(RUN, HOSTILE, "prepared")
    run.ledger.record_verdict(RUN, "acme/orders", verdict="equal", messages=4118202, summary="", artefact=None)
    table = "| namespace | phase |\n| --- | --- |\n| acme/orders | finished |"
    report = Report(
        outcome=Outcome.ATTENTION,
        headline="Migrated 1 namespace",
        to_do=("restart billing.",),
        body=(table,),
        details=(Section(title="Proofs", text="```\nEQUAL\n```"),),
    )
    store_report(run, report, picture=migration_picture(run.ledger.phases(RUN), {}))
    watch = Run("watch_replication/scheduled__1", ledger, run.artefacts)
    ledger.start_run(watch.id, "watch_replication", {"clusters": ["pulsar_blue", "pulsar_green"], "selection": []})
    store_examination(watch, EXAMINATION)
    ledger.finish_run(watch.id, "succeeded")
    observed = StoredObservation(time.time(), {"fields": {"ttl": ["1f", 0.0, 1.0, []]}, "expected": {}})
    for cluster in ("blue", "green"):
        store = ReconciliationStore(ledger, ("blue", "green", "red"))
        store.save_observations(cluster, {("namespace", "acme/orders"): observed})
    run.ledger.finish_run(RUN, "failed")
    for cluster, other, changes in (("blue", "green", 0), ("green", "blue", 3)):
        read = {"versions": ["4.2.4"], "brokers": 3, "complete": True}
        write_note(run.artefacts, cluster, NoteKind.SNAPSHOT, RUN, read)
        write_note(run.artefacts, cluster, NoteKind.DRIFT, RECONCILIATION, {"changes": changes, "fields": 3})
        proof = {"equal": 2, "namespaces": 2, "messages": 4118202, "with": other}
        write_note(run.artefacts, cluster, NoteKind.PROOF, RUN, proof)
    ledger.start_run(RECONCILIATION, "reconcile_policies", {"clusters": CLUSTERS, "mode": "repair"})
    ledger.finish_run(RECONCILIATION, "succeeded")
    conflict = {"id": "1f3c", "fleet": "blue+green", "run_id": RECONCILIATION, "kind": "namespace", "rule": "name"}
    value = {"name": "acme/audit", "field": "ttl", "winner": "blue", "sides": {"blue": 5, "green": 9}}
    with ledger.engine.begin() as connection:
        connection.execute(conflicts.insert(), [{**conflict, **value, "at": datetime.now(UTC)}])


def wait_for_login(url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(f"{url}/api/v2/monitor/health").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end, "Airflow did not answer"
        time.sleep(0.5)


def wait_for_dag(airflow: AirflowStack, dag_id: str) -> None:
    headers = {"Authorization": f"Bearer {token(airflow, 'ann')}"}
    end = time.monotonic() + START_SECONDS
    while httpx.get(f"{airflow.url}/api/v2/dags/{dag_id}", headers=headers).status_code != httpx.codes.OK:
        assert time.monotonic() < end, f"Airflow does not know {dag_id}"
        time.sleep(0.5)


def token(airflow: AirflowStack, user: str) -> str:
    answer = httpx.post(f"{airflow.url}/auth/token", json={"username": user, "password": PASSWORDS[user]})
    return str(answer.raise_for_status().json()["access_token"])


@contextmanager
def logged_in(airflow: AirflowStack) -> Iterator[Page]:
    """Ann has logged in. Playwright has a loop of its own, in which nothing else can wait."""
    with browser() as running:
        opened = running.new_page(viewport={"width": 1400, "height": 1000})
        opened.goto(airflow.url)
        opened.locator("input[name=username]").fill("ann")
        opened.locator("input[name=password]").fill(PASSWORDS["ann"])
        opened.get_by_role("button", name="Sign in").click()
        yield opened


@pytest.fixture
def page(airflow: AirflowStack) -> Iterator[Page]:
    """Ann has opened Fleet from the navigation."""
    with logged_in(airflow) as opened:
        opened.get_by_text("Fleet", exact=True).first.click()
        yield opened


@pytest.mark.parametrize("route", ROUTES)
def test_no_route_answers_without_a_login_or_a_role(airflow: AirflowStack, route: str) -> None:
    url = f"{airflow.url}/pulsar-fleet{route}"
    assert httpx.get(url).status_code in (401, 404)
    answer = httpx.get(url, headers={"Authorization": f"Bearer {token(airflow, 'nobody')}"})
    assert answer.status_code in (403, 404)
    assert "acme" not in answer.text


def test_metrics_answer_their_own_token_only(airflow: AirflowStack) -> None:
    url = f"{airflow.url}/pulsar-fleet-metrics/metrics"
    strangers = ({}, {"Authorization": f"Bearer {token(airflow, 'ann')}"}, {"Authorization": METRICS_TOKEN})
    assert [httpx.get(url, headers=headers).status_code for headers in strangers] == [401, 401, 401]
    answer = httpx.get(url, headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    assert answer.status_code == 200
    assert 'pulsar_fleet_last_run_failed{procedure="migrate_namespaces"} 1.0' in answer.text
    assert "acme" not in answer.text


def test_every_page_of_a_run_answers_after_the_login(airflow: AirflowStack) -> None:
    headers = {"Authorization": f"Bearer {token(airflow, 'ann')}"}
    for route, words in zip(ROUTES, WORDS, strict=False):
        answer = httpx.get(f"{airflow.url}/pulsar-fleet{route}", headers=headers)
        assert (answer.status_code, words in answer.text) == (200, True), answer.text[:500]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    missing = httpx.get(f"{airflow.url}/pulsar-fleet/report?run=none", headers=headers)
    assert (missing.status_code, "has stored no report yet" in missing.text) == (404, True)


def test_airflow_loads_the_plugin_without_an_error(airflow: AirflowStack) -> None:
    headers = {"Authorization": f"Bearer {token(airflow, 'ann')}"}
    assert httpx.get(f"{airflow.url}/api/v2/plugins/importErrors", headers=headers).json()["import_errors"] == []


def test_the_page_is_in_the_navigation_and_says_first_what_to_do(page: Page) -> None:
    fleet = page.frame_locator("iframe")
    expect(fleet.get_by_role("heading", level=1)).to_have_text("Fleet")
    expect(fleet.get_by_text("Now: 2 things to do")).to_be_visible()
    expect(fleet.get_by_text("The last run of migrate_namespaces failed")).to_be_visible()
    expect(fleet.get_by_role("row", name="acme/orders")).to_contain_text("✓ finished")
    expect(fleet.get_by_role("row", name="acme/orders")).to_contain_text("4,118,202")
    expect(fleet.get_by_role("row", name="green ✓ answered")).to_contain_text("≠ 3 changes to write")
    expect(fleet.get_by_text(HOSTILE).first).to_be_visible()
    assert "taken" not in page.title()


def test_evidence_is_one_click_away_and_the_filter_works_with_the_keyboard(page: Page) -> None:
    fleet = page.frame_locator("iframe")
    fleet.get_by_label("Name contains").press_sequentially("orders")
    fleet.get_by_label("Name contains").press("Enter")
    expect(fleet.get_by_text("1 of 1 namespace")).to_be_visible()
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / "fleet_page.png")
    fleet.get_by_role("link", name="evidence").first.click()
    expect(fleet.get_by_text("How to verify this file")).to_be_visible()


def test_a_link_to_airflow_leaves_the_frame_of_the_page(airflow: AirflowStack, page: Page) -> None:
    page.frame_locator("iframe").get_by_role("link", name="Airflow").first.click()
    page.wait_for_url(f"{airflow.url}/dags/*/runs/*")
    expect(page.locator("iframe")).to_have_count(0)


def test_a_conflict_is_settled_from_the_page(airflow: AirflowStack, page: Page) -> None:
    fleet = page.frame_locator("iframe")
    fleet.get_by_role("link", name="value of green").click()
    expect(fleet.get_by_role("heading", level=1)).to_have_text("Settle a conflict with the value of green")
    expect(fleet.get_by_label("Choose")).to_have_value("1f3c=green")
    expect(fleet.get_by_label("Mode")).to_have_value("repair")
    expect(fleet.get_by_label("Clusters")).to_have_value("\n".join(CLUSTERS))
    expect(fleet.get_by_text("The DAG reconcile_policies is paused")).to_be_visible()
    fleet.get_by_role("button", name="Start reconcile_policies").click()
    fleet.get_by_role("link", name="Follow it in Airflow").click()
    page.wait_for_url(f"{airflow.url}/dags/reconcile_policies/runs/*")
    headers = {"Authorization": f"Bearer {token(airflow, 'ann')}"}
    run = httpx.get(f"{airflow.url}/api/v2/dags/reconcile_policies/dagRuns", headers=headers).json()["dag_runs"][-1]
    assert run["conf"] == {"clusters": CLUSTERS, "selection": [], "mode": "repair", "choose": ["1f3c=green"]}
    assert run["triggering_user_name"] == "ann"
    assert unquote(page.url).partition("/runs/")[2].partition("/")[0] == run["dag_run_id"]


def test_the_repair_of_a_drift_is_prepared(page: Page) -> None:
    fleet = page.frame_locator("iframe")
    fleet.get_by_role("link", name="Repair").click()
    expect(fleet.get_by_role("heading", level=1)).to_have_text("Repair what differs")
    expect(fleet.get_by_label("Mode")).to_have_value("repair")
    expect(fleet.get_by_label("Clusters")).to_have_value("\n".join(CLUSTERS))


def test_a_value_that_the_dag_refuses_is_shown_in_the_form_again(page: Page) -> None:
    fleet = page.frame_locator("iframe")
    fleet.get_by_role("link", name="value of green").click()
    fleet.get_by_label("Choose").fill("green")
    fleet.get_by_role("button", name="Start reconcile_policies").click()
    expect(fleet.get_by_role("alert")).to_contain_text("choose")
    expect(fleet.get_by_label("Choose")).to_have_value("green")


def test_who_may_not_start_a_run_sees_what_is_to_be_done(airflow: AirflowStack) -> None:
    headers = {"Authorization": f"Bearer {token(airflow, 'vic')}", "Origin": airflow.url}
    url = f"{airflow.url}/pulsar-fleet"
    text = httpx.get(f"{url}/", headers=headers).text
    assert "value of green (not permitted)" in text
    assert "/start?" not in text
    assert httpx.get(f"{url}/start?errand=settle&about=1f3c%3Dgreen", headers=headers).status_code == 403
    assert httpx.post(f"{url}/start", data={"dag": "reconcile_policies"}, headers=headers).status_code == 403


@pytest.mark.parametrize("origin", ["", "https://elsewhere.example", "null"])
def test_a_form_of_another_site_starts_nothing(airflow: AirflowStack, origin: str) -> None:
    headers = {"Authorization": f"Bearer {token(airflow, 'ann')}", **({"Origin": origin} if origin else {})}
    answer = httpx.post(f"{airflow.url}/pulsar-fleet/start", data={"dag": "reconcile_policies"}, headers=headers)
    assert (answer.status_code, "not sent by a page" in answer.text) == (403, True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault_of_accessibility(airflow: AirflowStack, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    for route, words in zip(ROUTES, WORDS, strict=False):
        page.goto(f"{airflow.url}/pulsar-fleet{route}")
        expect(page.get_by_text(words).first).to_be_visible()
        for part in page.locator("details").all():
            part.evaluate("part => { part.open = true }")
        assert faults(page) == [], route


def test_the_check_of_accessibility_finds_a_fault() -> None:
    with browser() as running:
        page = running.new_page()
        page.set_content("<!doctype html><html lang='en'><title>x</title><main><h1>x</h1><input></main></html>")
        assert faults(page) == ["critical label"]


def faults(page: Page) -> list[str]:
    """What axe-core finds that keeps somebody from the page, or makes it hard."""
    violations = Axe().run(page).response["violations"]
    return [f"{row['impact']} {row['id']}" for row in violations if row["impact"] in ("serious", "critical")]


def test_ages_are_those_of_the_ledger(page: Page) -> None:
    text = page.frame_locator("iframe").get_by_text("As of").inner_text()
    read = datetime.strptime(text.split("As of ")[1][:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - read).total_seconds()) < 30
