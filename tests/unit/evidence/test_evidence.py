"""Evidence of a run is complete, its page escapes what it shows, and every change of it or of the ledger is found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.evidence.collect import collect
from pulsar_fleet.evidence.document import Evidence, Record
from pulsar_fleet.evidence.page import evidence_page
from pulsar_fleet.evidence.verify import audit_ledger, verify_file
from pulsar_fleet.ledger.approval import forget_approval, read_approval, store_approval
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.audit import append, check_chain
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.rows import Intent, NewChange
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.ledger.tables import audit, phases
from pulsar_fleet.report.document import Outcome, Report, Section
from pulsar_fleet.report.page import store_report

RUN = "migrate_namespaces/manual__1"
HOSTILE = "acme/</script><script>alert(1)</script>"
PARTS = {"change_id": "1f", "cluster": "green", "before": {"ttl": 1.5}, "after": {"ttl": 2}}


@pytest.fixture
def run(records: Path) -> Run:
    """A finished run with a record of each kind, and a run below it."""
    run = Run.open(RUN)
    waiver = {"id": "transactions-in-use", "who": "carla", "why": "none are open"}
    run.ledger.start_run(RUN, "migrate_namespaces", {"namespaces": [HOSTILE], "waivers": [waiver]}, "bela")
    change = NewChange(**PARTS, resource=f"policy {HOSTILE} ttl", action="set", hazard="none", outcome="applied")
    run.ledger.record(
        RUN, new_intents=[Intent(**PARTS, kind="policy", name=HOSTILE, field="ttl")], new_changes=[change]
    )
    for phase in ("prepared", "cut_over"):
        run.ledger.enter_phase(RUN, HOSTILE, phase, {"pause": 1.25})
    run.ledger.record_verdict(RUN, HOSTILE, verdict="PASS", messages=4118202, summary="equal", artefact=None)
    store_approval(run, "wave 1 of 1", "Approve", by="anna", at="2026-11-25T16:00:00+00:00")
    store_report(
        run,
        Report(
            outcome=Outcome.ATTENTION,
            headline=f"Migrated {HOSTILE}",
            to_do=(f"restart {HOSTILE}.",),
            body=("| a | b |\n| --- | --- |\n| 1 | 2 |",),
            details=(Section(title=HOSTILE, text=HOSTILE),),
        ),
    )
    run.artefacts.write_json(RUN, "wave/plan.json", {"changes": []})
    run.ledger.start_run(f"{RUN}/contents", "apply", {})
    run.ledger.finish_run(f"{RUN}/contents", "succeeded")
    run.ledger.finish_run(RUN, "succeeded")
    return run


@pytest.fixture
def elsewhere(run: Run, tmp_path: Path) -> Run:
    """Another ledger, which has no runs."""
    return Run("", Ledger.open(f"sqlite:///{tmp_path / 'other.db'}"), run.artefacts)


def files(run: Run) -> dict[str, bytes]:
    evidence = collect(run)
    return {"json": evidence.to_bytes(), "html": evidence_page(evidence).encode()}


def test_evidence_has_everything_that_the_records_have(run: Run) -> None:
    evidence = collect(run)
    kinds = [record.kind for record in evidence.records]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "run": 4,
        "intent": 1,
        "change": 1,
        "phase": 2,
        "verdict": 1,
        "approval": 1,
        "digests": 1,
        "report": 1,
        "artefact": 4,
    }
    assert all(record.audit for record in evidence.records if record.kind not in ("report", "artefact"))
    assert Evidence.from_bytes(evidence.to_bytes()) == evidence


def test_the_page_says_the_outcome_first_and_what_it_shows_stays_text(run: Run) -> None:
    page = evidence_page(collect(run))
    body, _, document = page.partition('<script type="application/json"')
    assert "✓ migrate_namespaces: succeeded" in body
    assert "1 verdict, 4,118,202 messages compared" in body
    assert "<script" not in body
    assert document.count("</script>") == 1
    assert "http" not in body.replace("http-equiv", "")
    assert "<td>anna</td>" in body
    assert '<rect x="' in body


def test_the_report_in_it_begins_with_the_banner(run: Run) -> None:
    report = evidence_page(collect(run)).partition('<article class="report">')[2]
    order = ["⚠ Needs attention", "<h3", "To do: restart", "<td>1</td>", "<details>"]
    positions = [report.index(text) for text in order]
    assert positions == sorted(positions)


def test_a_report_of_an_earlier_release_is_shown_as_text(run: Run) -> None:
    evidence = collect(run)
    records = [
        replace(record, content={"run_id": RUN, "text": "## Moved <b>"}) if record.kind == "report" else record
        for record in evidence.records
        if record.kind != "digests"
    ]
    earlier = Evidence.chain(RUN, evidence.made_at, (evidence.audit_number, evidence.audit_head), records)
    assert "<h2>Moved &lt;b&gt;</h2>" in evidence_page(earlier)
    assert [*earlier.problems()] == []


@pytest.mark.parametrize("ending", ["json", "html"])
def test_an_unchanged_file_is_verified_and_a_change_of_any_line_is_found(run: Run, ending: str, elsewhere: Run) -> None:
    content = files(run)[ending]
    assert verify_file(content, run).problems == ()
    assert verify_file(content, run).compared
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        for changed in (line.replace(b"e", b"o", 1), line[:-2] + b" \n", b""):
            if changed != line:
                altered = b"".join([*lines[:number], changed, *lines[number + 1 :]])
                assert is_found(altered, elsewhere), (number, line, changed)


def is_found(content: bytes, run: Run) -> bool:
    try:
        return bool(verify_file(content, run).problems)
    except InvalidRequest:
        return True


def change(content: Json, key: str) -> Json:
    """A record's content with another value."""
    assert isinstance(content, dict)
    return {**content, key: 7}


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (lambda one: replace(one, content=change(one.content, "messages")), "(verdict) is not in the ledger"),
        (lambda one: replace(one, content=change(one.content, "messages"), audit=""), "(verdict) is not in the ledger"),
        (lambda _: None, f"The ledger has a record (verdict) of run {RUN} from before that the file lacks"),
    ],
    ids=["altered", "altered without its entry", "removed"],
)
def test_who_computes_the_digests_again_is_found_by_the_ledger(
    run: Run, forge: Callable[[Record], Record | None], problem: str
) -> None:
    evidence = collect(run)
    forged = (forge(one) if one.kind == "verdict" else one for one in evidence.records)
    again = chained_again(evidence, [one for one in forged if one])
    assert list(again.problems()) == []
    assert problem in "\n".join(verify_file(again.to_bytes(), run).problems)


@pytest.mark.parametrize("content", [{"report": {"headline": "Nothing was lost"}}, {"text": "Nothing was lost"}])
def test_a_report_in_it_that_is_not_the_one_of_the_run_is_found_everywhere(
    run: Run, elsewhere: Run, content: dict[str, Json]
) -> None:
    evidence = collect(run)
    records = [
        replace(one, content={"run_id": RUN, **content}) if one.kind == "report" else one for one in evidence.records
    ]
    again = chained_again(evidence, records).to_bytes()
    evidence_of = Evidence.from_bytes(again)
    for there in (run, elsewhere):
        if "report" in content:
            # The page of a report that is none cannot be made.
            assert [*evidence_of.problems()] == []
        assert f"The report of run {RUN} is not the one" in "\n".join(verify_file(again, there).problems)


def chained_again(evidence: Evidence, records: Sequence[Record]) -> Evidence:
    """What a forger writes, who knows how digests are computed."""
    audit = (evidence.audit_number, evidence.audit_head)
    return Evidence.chain(RUN, evidence.made_at, audit, records, ledger=evidence.ledger)


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (lambda kept: [*kept, replace(kept[0], audit="", content=change(kept[0].content, "requested_by"))], "(run)"),
        (lambda kept: [one for one in kept if one.kind != "report"], f"The file has no report of run {RUN}"),
        (
            lambda kept: [
                replace(one, content={**dict(one.content), "run_id": f"{RUN}/contents"})
                if one.kind == "report"
                else one
                for one in kept
            ],
            f"The report of run {RUN}/contents is not the one",
        ),
        (
            lambda kept: [one for one in kept if one.kind != "artefact" or one.content["name"] != "wave/plan.json"],
            f"The store has wave/plan.json of run {RUN}, which the file lacks",
        ),
        (lambda kept: [kept[1], kept[0], *kept[2:]], "in another order"),
    ],
    ids=["another request", "no report", "report of another run", "no document", "order"],
)
def test_a_file_that_was_chained_again_is_compared_record_by_record(
    run: Run, forge: Callable[[list[Any]], list[Record]], problem: str
) -> None:
    evidence = collect(run)
    again = chained_again(evidence, forge([*evidence.records]))
    assert problem in "\n".join(verify_file(again.to_bytes(), run).problems)


def test_a_file_that_names_another_ledger_is_compared_all_the_same(run: Run) -> None:
    again = chained_again(replace(collect(run), ledger="another"), collect(run).records)
    result = verify_file(again.to_bytes(), run)
    assert (result.compared, result.problems) == (
        True,
        ("The file names another ledger than the one whose entry it has.",),
    )


def test_a_verdict_that_a_later_attempt_replaces_leaves_the_file_valid(run: Run) -> None:
    content = files(run)["json"]
    run.ledger.record_verdict(RUN, HOSTILE, verdict="FAIL", messages=1, summary="differs", artefact=None)
    assert verify_file(content, run).problems == ()


def test_documents_of_a_run_that_is_not_over_are_not_compared(run: Run) -> None:
    run.ledger.resume_run(RUN)
    content = files(run)["html"]
    run.artefacts.write_json(RUN, "wave/plan.json", {"changes": [1]})
    result = verify_file(content, run)
    assert (result.problems, "as the run had not succeeded" in result.text()) == ((), True)


def test_documents_that_are_not_here_are_not_changed(run: Run, tmp_path: Path) -> None:
    content = files(run)["json"]
    other = replace(run, artefacts=Artefacts.open(str(tmp_path / "elsewhere")))
    result = verify_file(content, other)
    assert (result.problems, result.compared) == ((), True)
    assert "its documents are not in the artefact store here" in result.text()


def test_an_earlier_report_is_told_from_an_altered_one(run: Run) -> None:
    reference = run.artefacts.find(RUN, "report.json")
    assert reference is not None
    first = Path(reference.uri).read_bytes()
    store_report(run, Report(outcome=Outcome.SUCCEEDED, headline="Moved"))
    assert audit_ledger(run.ledger)[0].problems == ()
    Path(reference.uri).write_bytes(first)
    assert audit_ledger(run.ledger)[0].problems == (
        f"report.json of run {RUN} is an earlier one than the last that the run has stored.",
    )


def test_evidence_is_the_same_in_a_database_with_a_collation(records: Path) -> None:
    run = Run.open(RUN)

    @sa.event.listens_for(run.ledger.engine, "connect")
    def collate(connection: Any, _: object) -> None:
        # As PostgreSQL sorts in most languages: `a, b, B`.
        connection.create_collation("language", lambda a, b: (_order(a) > _order(b)) - (_order(a) < _order(b)))

    with run.ledger.engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        for column in ("scope VARCHAR(500)", "run_id VARCHAR(250)"):
            collated = f"replace(sql, '{column}', '{column} COLLATE language')"
            connection.exec_driver_sql(f"UPDATE sqlite_master SET sql = {collated} WHERE type = 'table'")
        connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    for run_id in (RUN, f"{RUN}/b", f"{RUN}/B", f"{RUN}/a"):
        run.ledger.start_run(run_id, "migrate_namespaces", {}, "bela")
        for scope in ("acme/b", "acme/B", "acme/a"):
            run.ledger.record_verdict(run_id, scope, verdict="PASS", messages=1, summary="equal", artefact=None)
        run.ledger.finish_run(run_id, "succeeded")
    result = verify_file(collect(run).to_bytes(), run)
    assert (result.problems, result.compared) == ((), True)


def _order(text: str) -> tuple[str, str]:
    return text.lower(), text.swapcase()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE fleet_changes SET outcome = 'failed'", "change 1 of run"),
        ("DELETE FROM fleet_phases WHERE id = 2", "phase 2 was removed"),
        (
            "UPDATE fleet_facts SET content = replace(content, 'anna', 'otto') WHERE kind = 'approval'",
            f"fact 1 of run {RUN} was altered",
        ),
        ("UPDATE fleet_runs SET conf = replace(conf, 'carla', 'otto')", f"Run {RUN} was altered"),
        ("UPDATE fleet_runs SET requested_by = 'otto' WHERE requested_by = 'bela'", f"Run {RUN} was altered"),
        ("UPDATE fleet_runs SET requested_by = NULL", f"Run {RUN} was altered"),
    ],
    ids=["outcome", "removed record", "approver", "waiver", "requester", "no requester"],
)
def test_a_ledger_that_was_altered_afterwards_is_found(run: Run, statement: str, problem: str) -> None:
    content = files(run)["html"]
    with run.ledger.engine.begin() as connection:
        connection.execute(sa.text(statement))
    assert problem in "\n".join(verify_file(content, run).problems)
    assert problem in "\n".join(check_chain(run.ledger.engine).problems)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("report.json", f"report.json of run {RUN} was altered."),
        ("wave/plan.json", f"wave/plan.json of run {RUN} was replaced or removed since this was made."),
    ],
)
def test_a_document_that_was_replaced_afterwards_is_found(run: Run, name: str, problem: str) -> None:
    content = files(run)["json"]
    reference = run.artefacts.find(RUN, name)
    assert reference is not None
    Path(reference.uri).write_bytes(b"{}")
    assert problem in "\n".join(verify_file(content, run).problems)
    # Without evidence from before, reports are found by the ledger.
    assert command("audit") == (3 if name == "report.json" else 0)
    Path(reference.uri).unlink()
    assert f"{name} of run {RUN} was " in "\n".join(verify_file(content, run).problems)


def test_a_ledger_that_was_restored_from_an_older_copy_is_found(run: Run, tmp_path: Path) -> None:
    url, copy = run.ledger.engine.url, tmp_path / "older.db"
    shutil.copy(str(url.database), copy)
    run.ledger.start_run("cli/later", "apply", {}, "bela")
    content = files(replace(run, id="cli/later"))["html"]
    older = Run("", Ledger.open(f"sqlite:///{copy}"), run.artefacts)
    result = verify_file(content, older)
    assert result.compared
    assert "the ledger was restored from an older copy, or entries were removed" in result.text()


def test_evidence_of_an_earlier_release_is_verified_too(run: Run) -> None:
    evidence = collect(run)
    earlier = Evidence.chain(RUN, evidence.made_at, (evidence.audit_number, evidence.audit_head), evidence.records)
    assert json.loads(earlier.to_bytes())["schema_version"] == 1
    assert verify_file(earlier.to_bytes(), run).problems == ()
    assert Evidence.from_bytes(earlier.to_bytes()) == earlier


def test_an_answer_to_an_earlier_plan_is_void_and_stays_in_the_evidence(run: Run) -> None:
    forget_approval(run)
    forget_approval(run)
    assert read_approval(run) is None
    store_approval(run, "wave 1 of 1", "Approve", by="dora")
    records = [record["content"] for record in collect(run).of("approval") if isinstance(record, dict)]
    answers = [(answer["answer"], answer["by"]) for answer in records]
    assert answers == [("Approve", "anna"), ("Void", "the run, which plans again"), ("Approve", "dora")]


def test_an_answer_that_an_earlier_release_has_stored_counts(records: Path) -> None:
    run = Run.open("cli/earlier")
    run.artefacts.write_json(run.id, "approval.json", {"about": "plan", "answer": "Approve", "by": "anna", "at": ""})
    assert read_approval(run) is None, "a file alone approves nothing"
    run.ledger.start_run(run.id, "apply", {})
    assert (read_approval(run) or {})["by"] == "anna"
    forget_approval(run)
    assert read_approval(run) is None
    assert [record["content"]["by"] for record in collect(run).of("approval") if isinstance(record, dict)] == [
        "anna",
        "the run, which plans again",
    ]


def test_an_answer_in_the_store_of_a_run_of_this_release_does_not_count(records: Path) -> None:
    run = Run.open("cli/now")
    run.ledger.start_run(run.id, "apply", {}, "bela")
    run.artefacts.write_json(run.id, "approval.json", {"about": "plan", "answer": "Approve", "by": "anna", "at": ""})
    assert read_approval(run) is None
    assert collect(run).of("approval") == []


def test_an_audit_chain_that_was_written_again_is_found(run: Run) -> None:
    run.ledger.enter_phase("other", HOSTILE, "prepared")
    content = files(run)["json"]
    with run.ledger.engine.begin() as connection:
        kept = connection.execute(sa.select(audit).where(audit.c.run_id != "other").order_by(audit.c.number)).all()
        connection.execute(phases.delete().where(phases.c.run_id == "other"))
        connection.execute(audit.delete())
        for entry in kept:
            append(connection, entry.run_id, [(entry.kind, entry.key, entry.content)])
    assert check_chain(run.ledger.engine).problems == ()
    (problem,) = verify_file(content, run).problems
    assert "The ledger's audit chain ends with entry" in problem
    run.ledger.enter_phase("other", HOSTILE, "prepared")
    assert "audit chain has another entry" in verify_file(content, run).problems[0]


def test_evidence_is_verified_without_its_ledger_and_says_so(run: Run, elsewhere: Run) -> None:
    content = files(run)["html"]
    result = verify_file(content, elsewhere)
    assert (result.problems, result.compared) == ((), False)
    assert "the ledger here is another one than it was made from" in result.text()


def test_a_run_goes_on_after_its_evidence_and_the_file_stays_valid(run: Run) -> None:
    content = files(run)["json"]
    run.ledger.enter_phase(RUN, HOSTILE, "retired")
    run.ledger.finish_run(RUN, "undone")
    assert verify_file(content, run).problems == ()


def test_a_run_that_is_not_recorded_is_refused(run: Run) -> None:
    with pytest.raises(NotFound, match="no run 'cli/none'"):
        collect(Run("cli/none", run.ledger, run.artefacts))


def test_the_command_writes_both_files_and_verifies_them(run: Run, tmp_path: Path) -> None:
    assert command(RUN, "--folder", str(tmp_path / "out")) == 0
    paths = sorted((tmp_path / "out").iterdir())
    assert [path.suffix for path in paths] == [".html", ".json"]
    for path in paths:
        assert command("verify", str(path)) == 0
        path.write_bytes(path.read_bytes().replace(b"4118202", b"4118203").replace(b"4,118,202", b"4,118,203"))
        assert command("verify", str(path)) == 3
    assert [command("audit"), command("verify", "missing.html"), command("none")] == [0, 1, 1]


def test_runs_are_listed_and_shown(run: Run) -> None:
    listed, shown, unknown = (
        subprocess.run([sys.executable, "-m", "pulsar_fleet.cli", "runs", *words], capture_output=True, text=True)
        for words in ((), (RUN, "--json"), ("cli/none",))
    )
    title, *lines = listed.stdout.splitlines()
    assert (title, [line.split()[3:6] for line in lines]) == (
        "Ended:",
        [
            ["succeeded", "apply", f"{RUN}/contents"],
            ["succeeded", "migrate_namespaces", RUN],
        ],
    )
    document = json.loads(shown.stdout)
    assert document["changes"] == ["green: 1 applied"]
    assert document["verdict"] == [f"{HOSTILE} PASS: equal"]
    assert document["approval"] == ["Approve by anna at 2026-11-25T16:00:00+00:00"]
    assert document["phase"][0].startswith(f"{HOSTILE} cut_over at ")
    assert (unknown.returncode, "name it as the Fleet page and pulsar-fleet runs do" in unknown.stderr) == (1, True)


def command(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pulsar_fleet.cli", "evidence", *arguments], check=False).returncode
