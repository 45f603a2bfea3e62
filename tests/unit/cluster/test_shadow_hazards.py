"""Which calls the guard of shadow topics looks at, by their text, and what it decides by answers of a broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.http import BrokerHttp
from pulsar_fleet.cluster.admin.shadow_guard import INFINITE, RETIRED_FROM, Effect, ShadowGuard, endangered, ledgers_in
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import SHADOW_SOURCE

TOPIC = "/persistent/acme/readers/a%2Fb"
NAMESPACE = "/namespaces/acme/readers"
SHADOW = {SHADOW_SOURCE: "persistent://acme/orders/a"}


@pytest.mark.parametrize(
    ("call", "effect", "where"),
    [
        (
            with_body("POST", f"{NAMESPACE}/retention", {**INFINITE, "retentionSizeInMB": 9}),
            Effect.LOWERS,
            "acme/readers",
        ),
        (with_body("POST", f"{NAMESPACE}/retention", None), Effect.LOWERS, "acme/readers"),
        (bare("DELETE", f"{NAMESPACE}/retention"), Effect.LOWERS, "acme/readers"),
        (bare("DELETE", NAMESPACE, force="true"), Effect.DELETES, "acme/readers"),
        (with_body("POST", f"{TOPIC}/retention", {}), Effect.LOWERS, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/retention", isGlobal="true"), Effect.UNCOVERS, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/policies"), Effect.UNCOVERS, "persistent://acme/readers/a/b"),
        (bare("DELETE", TOPIC), Effect.REMOVES, "persistent://acme/readers/a/b"),
        (bare("DELETE", TOPIC, force="true"), Effect.DELETES, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/partitions", force="false"), Effect.REMOVES, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/partitions", force="true"), Effect.DELETES, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}-partition-3/truncate"), Effect.DELETES, "persistent://acme/readers/a/b"),
        (bare("DELETE", f"{TOPIC}/properties", key=RETIRED_FROM), Effect.FORGETS, "persistent://acme/readers/a/b"),
        (with_body("PUT", f"{TOPIC}/properties", SHADOW), Effect.FORGETS, "persistent://acme/readers/a/b"),
        (with_body("PUT", TOPIC, SHADOW), Effect.CREATES, "persistent://acme/readers/a/b"),
        (
            with_body("PUT", f"{TOPIC}/partitions", {"partitions": 2, "properties": SHADOW}),
            Effect.CREATES,
            "persistent://acme/readers/a/b",
        ),
    ],
)
def test_a_call_that_may_endanger_a_source_is_recognised(call: Call, effect: Effect, where: str) -> None:
    danger = endangered(call)
    assert danger is not None
    assert (danger.effect, str(danger.where)) == (effect, where)


@pytest.mark.parametrize(
    "call",
    [
        with_body("POST", f"{NAMESPACE}/retention", INFINITE),
        with_body("POST", f"{TOPIC}/retention", INFINITE, isGlobal="true"),
        bare("GET", f"{NAMESPACE}/retention"),
        bare("DELETE", NAMESPACE),
        bare("DELETE", f"{NAMESPACE}/0x00000000_0x40000000"),
        bare("DELETE", f"{TOPIC}/subscription/retention"),
        bare("DELETE", f"{TOPIC}/properties", key="team"),
        with_body("PUT", TOPIC, {"team": "billing"}),
        with_body("PUT", f"{TOPIC}/partitions", 3),
        bare("DELETE", "/non-persistent/acme/readers/a"),
        with_body("PUT", NAMESPACE, {"retention_policies": None}),
    ],
)
def test_any_other_call_costs_no_read(call: Call) -> None:
    assert endangered(call) is None


def test_ledgers_of_all_partitions_count() -> None:
    infos = {"p0": {"ledgers": [{"ledgerId": 1}]}, "p1": {"ledgers": [{"ledgerId": 2}, {"ledgerId": 3}]}}
    assert ledgers_in({"version": 1, "partitions": infos}) == {1, 2, 3}
    assert ledgers_in({"ledgers": [{"ledgerId": 4}]}) == {4}
    assert ledgers_in({}) == set()


SOURCE = "persistent://acme/orders/a"
SHORT = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
ORDINARY = "/persistent/acme/readers/ordinary"
READERS = "/namespaces/acme/readers"
MISSING = NotFound("there is no such resource.")


def info(*ledgers: int, **properties: str) -> dict[str, Any]:
    return {"ledgers": [{"ledgerId": ledger} for ledger in ledgers], "properties": properties}


def broker(**changed: Any) -> dict[str, Any]:
    """Answers by path: `a/b` shadows `orders/a` and has its ledger 7 and one of its own, `ordinary` shadows nothing."""
    answers = {
        "/namespaces/acme/readers/topics": ["persistent://acme/readers/a/b", "persistent://acme/readers/ordinary"],
        "/persistent/acme/readers/partitioned": [],
        f"{TOPIC}/partitions": {"partitions": 0},
        f"{TOPIC}/internal-info": info(7, 8, **SHADOW),
        f"{ORDINARY}/partitions": {"partitions": 0},
        f"{ORDINARY}/internal-info": info(7),
        "/persistent/acme/orders/a/partitions": {"partitions": 0},
        "/persistent/acme/orders/a/internal-info": info(6, 7),
        READERS: {"retention_policies": dict(INFINITE)},
        f"{TOPIC}/retention local": None,
        f"{TOPIC}/retention global": None,
    }
    places = {
        "partitions": f"{TOPIC}/partitions",
        "shadow": f"{TOPIC}/internal-info",
        "source": "/persistent/acme/orders/a/internal-info",
        "source_topic": "/persistent/acme/orders/a/partitions",
        "namespace": READERS,
        "topics": "/namespaces/acme/readers/topics",
        "partitioned": "/persistent/acme/readers/partitioned",
        "local": f"{TOPIC}/retention local",
        "shared": f"{TOPIC}/retention global",
    }
    return {**answers, **{places[name]: answer for name, answer in changed.items()}}


def refusal(call: Call, answers: dict[str, Any], *, alone: bool | FleetError | None = None) -> str:
    """What the guard says; empty if it lets the call pass. It reads nothing that has no answer here.

    :param alone: whether every broker deletes a shadow topic without its source's ledgers; None: nobody may ask.
    """

    async def answered(method: str, path: str, *, params: dict[str, Any], answered_retry_seconds: float | None) -> Any:
        assert method == "GET"
        path = path.removeprefix("/admin/v2")
        if path.endswith("/partitions"):
            assert params == {"checkAllowAutoCreation": False}, "a read must not create what it reads"
        if path.endswith("/retention"):
            path += " global" if params["isGlobal"] else " local"
        if isinstance(answers[path], FleetError):
            raise answers[path]
        return answers[path]

    async def deletes_shadows_alone() -> bool:
        assert alone is not None
        if isinstance(alone, FleetError):
            raise alone
        return alone

    http = SimpleNamespace(call=answered, document=lambda answer: answer, connection=SimpleNamespace(name="blue"))
    try:
        guard = ShadowGuard(cast(BrokerHttp, http), "/admin/v2", deletes_shadows_alone)
        asyncio.run(guard.check(call))
    except PreconditionFailed as error:
        return str(error)
    return ""


LOWER, DELETE = with_body("POST", f"{READERS}/retention", SHORT), bare("DELETE", TOPIC)
FORCED = bare("DELETE", TOPIC, force="true")
UNCOVER_LOCAL, UNCOVER_SHARED = (bare("DELETE", f"{TOPIC}/retention", isGlobal=text) for text in ("false", "true"))
UNCOVER = bare("DELETE", f"{TOPIC}/policies")
CREATE = with_body("PUT", TOPIC, SHADOW)
RETIRE = with_body("PUT", f"{TOPIC}/properties", {**SHADOW, RETIRED_FROM: SOURCE})
FORGET = bare("DELETE", f"{TOPIC}/properties", key=SHADOW_SOURCE)
RETIRED = {RETIRED_FROM: SOURCE}


@pytest.mark.parametrize(
    ("call", "answers"),
    [
        (LOWER, broker()),
        (LOWER, broker(shadow=info(7, **RETIRED))),
        (
            LOWER,
            broker(
                partitions={"partitions": 2, "properties": SHADOW},
                shadow=info(7),
                partitioned=["persistent://acme/readers/a/b"],
                topics=["persistent://acme/readers/ordinary"],
            ),
        ),
        (
            LOWER,
            broker(
                partitions={"partitions": 2, "properties": SHADOW},
                shadow=info(7),
                partitioned=["persistent://acme/readers/a/b"],
                topics=["persistent://acme/readers/a/b-partition-0", "persistent://acme/readers/a/b-partition-1"],
            ),
        ),
        (bare("DELETE", READERS, force="true"), broker()),
        (FORCED, broker()),
        (bare("DELETE", f"{TOPIC}/truncate"), broker()),
        (UNCOVER, broker(namespace={})),
        (UNCOVER, broker(namespace=MISSING)),
        (UNCOVER, broker(namespace={"retention_policies": SHORT})),
        (UNCOVER_LOCAL, broker(shared=SHORT)),
        (UNCOVER_SHARED, broker(local=SHORT)),
        (UNCOVER_SHARED, broker(namespace={"retention_policies": SHORT})),
        (CREATE, broker(namespace={"retention_policies": SHORT})),
        (CREATE, broker(namespace={})),
        (CREATE, broker(local=SHORT)),
        (CREATE, broker(shared=SHORT)),
        (CREATE, broker(namespace={"retention_policies": {**INFINITE, "retentionSizeInMB": 5}})),
        (FORGET, broker()),
        (with_body("PUT", f"{TOPIC}/properties", {SHADOW_SOURCE: "persistent://acme/orders/other"}), broker()),
        (with_body("PUT", f"{TOPIC}/properties", SHADOW), broker(local=SHORT)),
        (with_body("PUT", f"{TOPIC}/properties", SHADOW), broker(shared=SHORT)),
        (with_body("PUT", f"{TOPIC}/properties", SHADOW), broker(shadow=info(7), local=SHORT)),
    ],
)
def test_a_call_by_which_ledgers_of_a_source_end_is_refused(call: Call, answers: dict[str, Any]) -> None:
    said = refusal(call, answers)
    assert said.startswith(f"{call.text()} on blue: data of persistent://acme/orders/")
    assert "shadow topic persistent://acme/readers/a/b " in said
    assert said.endswith("; nothing was sent.")


@pytest.mark.parametrize(
    ("call", "answers"),
    [
        (LOWER, broker(shadow=info(7))),
        (LOWER, broker(topics=MISSING)),
        (LOWER, broker(partitions=MISSING)),
        (LOWER, broker(topics=["persistent://acme/readers/__change_events", "non-persistent://acme/readers/beats"])),
        (DELETE, broker(source=info(6))),
        (DELETE, broker(source_topic=MISSING)),
        (DELETE, broker(shadow=info(7))),
        (DELETE, broker(shadow=NotFound("no ledgers."), topics=[])),
        (DELETE, broker(shadow=Unavailable("500"), topics=["persistent://acme/readers/ordinary"])),
        (UNCOVER, broker(local=SHORT, shared=SHORT)),
        (UNCOVER_LOCAL, broker(local=SHORT)),
        (UNCOVER_SHARED, broker(shared=SHORT)),
        (UNCOVER_LOCAL, broker(shared=MISSING)),
        (CREATE, broker()),
        (CREATE, broker(local=dict(INFINITE), shared=dict(INFINITE))),
        (with_body("PUT", f"{TOPIC}/properties", SHADOW), broker()),
        (with_body("PUT", f"{TOPIC}/properties", SHADOW), broker(shadow=info(7))),
        (RETIRE, broker()),
    ],
)
def test_a_call_by_which_no_ledger_ends_is_sent(call: Call, answers: dict[str, Any]) -> None:
    assert refusal(call, answers) == ""


@pytest.mark.parametrize("shadow", [info(7, **SHADOW), info(7, **RETIRED)])
def test_where_brokers_keep_the_source_its_shadow_may_be_deleted(shadow: dict[str, Any]) -> None:
    assert "deletes the ledgers" in refusal(DELETE, broker(shadow=shadow), alone=False)
    assert refusal(DELETE, broker(shadow=shadow), alone=True) == ""
    with pytest.raises(Unavailable):
        refusal(DELETE, broker(shadow=shadow), alone=Unavailable("blue does not answer."))


@pytest.mark.parametrize(
    ("versions", "alone", "reads"), [("4.2.4 5.0.1", False, 1), ("5.0.1 4.2.4", False, 3), ("5.0.1 5.0.0", True, 3)]
)
async def test_every_broker_must_keep_the_source_of_a_shadow(
    monkeypatch: pytest.MonkeyPatch, versions: str, alone: bool, reads: int
) -> None:
    admin, asked = AdminClient(ClusterConnection(name="blue", admin_url="http://localhost:1")), list[str | None]()
    by_broker = dict(zip(("a:1", "b:1"), versions.split(), strict=True))

    async def version(broker: str | None = None) -> str:
        asked.append(broker)
        return by_broker[broker or "a:1"]

    async def brokers() -> tuple[str, ...]:
        return tuple(by_broker)

    monkeypatch.setattr(admin, "version", version)
    monkeypatch.setattr(admin, "brokers", brokers)
    assert (await admin.deletes_shadows_alone(), len(asked)) == (alone, reads)


@pytest.mark.parametrize("place", ["partitions", "shadow", "source", "topics"])
def test_what_could_not_be_read_is_not_safe(place: str) -> None:
    call = LOWER if place == "topics" else DELETE
    with pytest.raises(Unavailable):
        refusal(call, broker(**{place: Unavailable("blue does not answer.")}))
