"""What the plan of a wave says about the time of its proof, by the proofs that the ledger has."""

from __future__ import annotations

import pytest
from tests.support.migration_view import partition, view, with_facts

from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import PROOF_SPEED, WAVE_TEXT, WAVES
from pulsar_fleet.migration.model import Move, Moves, Strategy, plan_move
from pulsar_fleet.migration.waves.approval_text import (
    FASTEST,
    LEAST_BYTES,
    SLOWEST,
    ProofSpeed,
    largest_proof,
    proof_sentence,
    record_speed,
    wave_members,
)
from pulsar_fleet.migration.waves.planner import Member, plan_waves
from pulsar_fleet.migration.waves.steps import select_wave

ORDERS, AUDIT = (NamespaceName("acme", name) for name in ("orders", "audit"))
GIB = 1 << 30
MEASURED = ProofSpeed(blue="blue", green="green", stored_bytes=GIB, seconds=128.0)


def member(name: NamespaceName, stored: int | None, strategy: Strategy = Strategy.REPLICATE) -> Member:
    return Member(namespace=name, strategy=strategy, reason="", stored_bytes=stored)


@pytest.mark.parametrize(
    ("members", "known", "limit", "sentence"),
    [
        ([member(ORDERS, GIB, Strategy.REDIRECT)], None, None, None),
        ([member(ORDERS, 5 << 20)], None, None, "Expected proof: within a minute, for 5.0 MiB on each cluster."),
        (
            [member(ORDERS, GIB), member(AUDIT, None)],
            MEASURED,
            None,
            "Expected proof: not known, what 1 namespace stores was not read.",
        ),
        (
            [member(ORDERS, 2 * GIB), member(AUDIT, GIB)],
            MEASURED,
            None,
            "Expected proof: about 6 min 24 s for 3.0 GiB on each cluster, by run m/1, which compared 1.0 GiB in "
            "2 min 8 s.",
        ),
        (
            [member(ORDERS, GIB)],
            MEASURED,
            1 << 20,
            "Expected proof: about 17 min for 1.0 GiB on each cluster, by run m/1, which compared 1.0 GiB in "
            "2 min 8 s. At most 1.0 MiB per second is read from each broker.",
        ),
    ],
    ids=["nothing copied", "small", "not read", "as measured", "limited"],
)
def test_the_time_of_a_proof_follows_from_what_is_stored(
    members: list[Member], known: ProofSpeed | None, limit: int | None, sentence: str | None
) -> None:
    assert proof_sentence(members, ("m/1", known) if known else None, limit) == sentence


def test_without_an_earlier_proof_the_plan_names_a_range() -> None:
    sentence = proof_sentence([member(ORDERS, 100 * SLOWEST)], None)
    assert sentence
    assert sentence.startswith(f"Expected proof: about {100 * SLOWEST / FASTEST:.0f} s to 1 min 40 s for ")
    assert sentence.endswith("; no proof of these clusters is on record yet.")


@pytest.mark.usefixtures("records")
def test_the_largest_proof_between_the_clusters_is_used() -> None:
    def proved(number: int, stored: int, seconds: float, green: str = "green") -> None:
        run = Run.open(f"migrate_namespaces/{number}")
        run.ledger.start_run(run.id, "migrate_namespaces", {})
        record_speed(
            run, Moves("blue", green, (Move(ORDERS, Strategy.REPLICATE, "", {}, {}, (), (), stored),)), seconds
        )

    proved(1, 2 * LEAST_BYTES, 10.0)
    proved(2, 3 * LEAST_BYTES, 11.0)
    proved(3, LEAST_BYTES - 1, 12.0)
    proved(4, 9 * LEAST_BYTES, 13.0, "red")
    other_release = Run.open("migrate_namespaces/5")
    other_release.ledger.start_run(other_release.id, "migrate_namespaces", {})
    other_release.artefacts.write_json(other_release.id, PROOF_SPEED, {"schema_version": 99})
    run = Run.open("fail_back_namespaces/6")
    for blue, green in (("blue", "green"), ("green", "blue")):
        found = largest_proof(run, blue, green)
        assert found
        assert (found[0], found[1].seconds) == ("migrate_namespaces/2", 11.0)
    assert largest_proof(run, "blue", "yellow") is None


@pytest.mark.usefixtures("records")
def test_the_approval_text_says_how_long_the_proof_takes() -> None:
    run = Run.open("migrate_namespaces/1")
    survey = with_facts(view(), partitions=(partition(storageSize=3 * GIB),)).survey
    moves = Moves("blue", "green", tuple(plan_move(each, Strategy.REPLICATE, "green") for each in survey.namespaces))
    run.artefacts.write_json(run.id, WAVES, plan_waves(wave_members(survey.namespaces, moves.moves, [])).to_json())
    select_wave(run, moves, [], planned_by=run, number=1, bytes_per_second=GIB)
    reference = run.artefacts.find(run.id, WAVE_TEXT)
    assert reference
    text = run.artefacts.read(reference).decode()
    assert " for 3.0 GiB on each cluster; no proof of these clusters is on record yet." in text
    assert "At most 1.0 GiB per second is read from each broker." in text
