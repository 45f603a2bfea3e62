"""Waivers: named one by one, with who and why; never for what loses data, never by mistake."""

from __future__ import annotations

import pytest
from tests.support.migration_view import TOPIC, partition, subscription, view, with_blue, with_facts

from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.migration.preflight.gates import check
from pulsar_fleet.migration.preflight.gates.catalogue import never_waived
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.waivers import Waiver, apply_waivers

CLUSTERS = {"blue": "east", "green": "west"}
INBOUND = {"replication": {"west": {"connected": True, "inboundConnection": "x"}}}
FOUND = check(
    with_facts(
        view(),
        partitions=(partition(committedTxnCount=1, **subscription("a", "Pulsar-CPP-v4.2.0"), **INBOUND),),
    )
)
SIGNED = {"who": "Ada", "why": "its clients are stopped"}


def waiver(id: str, resource: str | None = None) -> Waiver:
    return Waiver.parse({"id": id, **({"resource": resource} if resource else {}), **SIGNED})


def unwaived(*waivers: Waiver, findings: tuple[Finding, ...] = FOUND) -> set[str]:
    return {finding.id for finding in apply_waivers(findings, waivers, never=never_waived(CLUSTERS)).unwaived}


def test_without_waivers_every_blocker_stops() -> None:
    assert unwaived() == {"transactions-in-use", "replicates-into-blue"}


@pytest.mark.parametrize("resource", [None, str(TOPIC)])
def test_a_waived_blocker_no_longer_stops_and_stays_in_the_evidence(resource: str | None) -> None:
    judged = apply_waivers(FOUND, [waiver("transactions-in-use", resource)])
    assert {finding.id for finding in judged.unwaived} == {"replicates-into-blue"}
    assert judged.findings == FOUND
    (kept,) = judged.to_json()["waived"]
    assert (kept["finding"]["id"], kept["waiver"]["who"], kept["waiver"]["why"]) == (
        "transactions-in-use",
        "Ada",
        "its clients are stopped",
    )


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (waiver("transaction-in-use"), "did you mean 'transactions-in-use'?"),
        (waiver("transactions-in-use", f"{TOPIC}-2"), f"the finding is for '{TOPIC}': correct 'resource'"),
        (waiver("client-may-hang"), "a warning, which needs no waiver"),
        (waiver("abandoned-subscription"), "it was corrected, or never existed"),
    ],
)
def test_a_waiver_that_meets_no_blocker_is_refused(entry: Waiver, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        unwaived(entry)
    assert words in str(error.value)


def test_a_waiver_for_another_part_of_the_run_is_let_be() -> None:
    assert apply_waivers(FOUND, [waiver("abandoned-subscription")], whole_run=False).waived == ()


def test_what_loses_data_for_certain_is_never_waived() -> None:
    findings = check(with_blue(view(), redirect={"migrated": True}))
    with pytest.raises(PreconditionFailed) as error:
        unwaived(waiver("blue-is-migrated"), findings=findings)
    assert "is never waived: topics of namespaces that west does not have would be terminated." in str(error.value)
    with pytest.raises(PreconditionFailed):
        unwaived(waiver("partitions-differ"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("transactions-in-use", "is not an object"),
        ({"id": "x", "who": "Ada"}, "does not have 'why'"),
        ({"id": "x", "who": " ", "why": "y"}, "does not have 'who'"),
        ({"id": "x", "who": "Ada", "why": "y", "until": "z"}, "unknown key 'until'"),
    ],
)
def test_a_waiver_says_all_and_nothing_else(entry: Json, words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        Waiver.parse(entry)
    assert words in str(error.value)
