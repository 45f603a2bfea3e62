"""What the answers of a broker to a new producer say about a fence, at a socket that answers as a broker does."""

from __future__ import annotations

import pytest
from tests.support.protobuf_fields import frame, number, text
from tests.support.wire_broker import CLOSED, CONNECTED, wire_broker

from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.migration.drain import poll
from pulsar_fleet.migration.drain.poll import probe_producers
from pulsar_fleet.migration.drain.state import Entrance

TOPIC = TopicName(NamespaceName("acme", "orders"), "events").partitions(1)[0]
TAKEN = frame(api.PRODUCER_SUCCESS, number(1, 2))


def refusal(code: int, reason: str) -> bytes:
    return frame(api.ERROR, number(1, 2), number(2, code), text(3, reason))


FENCED = refusal(6, "BrokerServiceException$TopicFencedException: Topic is temporarily unavailable")


async def probed(*answers: bytes, connected: bytes = CONNECTED, seconds: float = 0) -> Entrance:
    remaining = iter(answers)
    async with wire_broker(lambda _: next(remaining), connected=connected) as blue:
        return (await probe_producers(blue, [TOPIC], seconds))[TOPIC]


@pytest.mark.parametrize(
    ("answer", "entrance"),
    [
        (TAKEN, Entrance.OPEN),
        (frame(api.TOPIC_MIGRATED, number(1, 1)), Entrance.OPEN),
        (refusal(15, "TopicTerminatedException: Topic was already terminated"), Entrance.OPEN),
        (FENCED, Entrance.FENCED),
        (refusal(6, "ServiceUnitNotReadyException: not served by this instance"), Entrance.UNKNOWN),
        (refusal(3, "AuthenticationException: the token has expired"), Entrance.UNKNOWN),
        (refusal(4, "Client is not authorized to Produce"), Entrance.UNKNOWN),
        (refusal(18, "IncompatibleSchemaException: Producers cannot connect"), Entrance.UNKNOWN),
        (CLOSED, Entrance.UNKNOWN),
    ],
    ids=["taken", "migrated", "terminated", "fenced", "unserved", "unknown role", "no right", "schema", "closed"],
)
async def test_only_what_a_broker_says_about_a_fence_counts(answer: bytes, entrance: Entrance) -> None:
    assert await probed(answer) is entrance


async def test_refused_credentials_say_nothing_about_a_fence() -> None:
    assert await probed(connected=refusal(3, "Failed to authenticate")) is Entrance.UNKNOWN


async def test_a_broker_that_nobody_reaches_says_nothing_about_a_fence() -> None:
    async with wire_broker(lambda _: CLOSED) as blue:
        pass
    assert await probe_producers(blue, [TOPIC], 0) == {TOPIC: Entrance.UNKNOWN}


async def test_a_topic_that_is_fenced_for_a_moment_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll, "_AGAIN_SECONDS", 0)
    assert await probed(FENCED, FENCED, TAKEN, seconds=60) is Entrance.OPEN
