"""The report of a verification has every namespace, also those that were not compared."""

from __future__ import annotations

from pathlib import Path

from pulsar_fleet.ledger.run import Run
from pulsar_fleet.report.verification import verification_report
from pulsar_fleet.verification.messages.verdict import NamespaceVerdict, TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.steps import VERDICT


def test_the_namespaces_of_a_batch_that_failed_are_not_reported_as_equal(records: Path) -> None:
    run = Run.open("verify/1")
    topic = TopicVerdict(topic="persistent://acme/orders/events", verdict=Verdict.EQUAL)
    equal = Verification("blue", "green", (NamespaceVerdict("acme/orders", (topic,)),))
    run.artefacts.write(run.id, f"verification/1/{VERDICT}", equal.to_bytes())
    batches = [
        {"namespaces": ["acme/orders"], "folder": "verification/1"},
        {"namespaces": ["acme/audit"], "folder": "verification/2"},
    ]
    report = verification_report(run, {"compare": "killed"}, batches).markdown()
    assert report.startswith("# Inconclusive")
    assert "| `acme/audit` | INCONCLUSIVE | 0 | 0 |" in report
