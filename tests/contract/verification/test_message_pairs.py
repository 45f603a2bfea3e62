"""Pairs of generated topics: a verdict is equal exactly when the bytes that the brokers stored mean the same."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from tests.support.raw_messages import LZ4, NONE, ZLIB, Entry, Message, RawConnection
from tests.support.replication import FOREVER

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import EntryMapping
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process

pytestmark = pytest.mark.versions

PAIRS = int(os.environ.get("PULSAR_FLEET_MESSAGE_PAIRS", "40"))
PAIRS_AT_ONCE = 20
log = logging.getLogger(__name__)

MakeNamespace = Callable[[AdminClient, NamespaceName], Awaitable[None]]
Topic = tuple[Entry, ...]

FLAGS = st.sampled_from([None, False, True])
NAMES = st.sampled_from(["", "a", "é"])
CHANGES: dict[str, st.SearchStrategy[object]] = {
    "payload": st.sampled_from([b"", b"a", b"\0", b"order " * 60]),
    "properties": st.lists(st.tuples(NAMES, NAMES), max_size=3).map(tuple),
    "key": st.sampled_from([None, "", "k", "é"]),
    "key_is_base64": FLAGS,
    "null_key": FLAGS,
    "ordering_key": st.sampled_from([None, b"", b"o", b"\xff"]),
    "event_time": st.sampled_from([None, 0, 5]),
    "deliver_at": st.sampled_from([None, 0, 1_795_252_442_118]),
    "null_value": FLAGS,
}
EMPTY: dict[str, object] = {"key": "", "ordering_key": b"", "event_time": 0, "deliver_at": 0}
"""Values that a client does not distinguish from a field that is not set."""

assert set(CHANGES) == {field.name for field in fields(Message)}
MESSAGES = st.builds(
    Message,
    **{name: st.just(None) | values for name, values in CHANGES.items()}
    | {"payload": CHANGES["payload"], "properties": CHANGES["properties"]},
)


@st.composite
def _entries(draw: st.DrawFn, messages: tuple[Message, ...]) -> Topic:
    """The messages in entries: batches and single messages, compressed or not."""
    entries: list[Entry] = []
    rest = messages
    while rest:
        size = draw(st.integers(1, len(rest)))
        # The time of delivery belongs to an entry.
        batch = all(message.deliver_at is None for message in rest[:size]) and draw(st.booleans())
        size = size if batch else 1
        compression = draw(st.sampled_from([NONE, NONE, ZLIB, LZ4]))
        entries.append(Entry(rest[:size], batch, compression, replicated=draw(st.booleans())))
        rest = rest[size:]
    return tuple(entries)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Topic, Topic]:
    """Two topics: the second with the messages of the first, with one field changed, or in another order."""
    messages = tuple(draw(st.lists(MESSAGES, min_size=1, max_size=3)))
    others = list(messages)
    at = draw(st.integers(0, len(others) - 1))
    match draw(st.sampled_from(["same", "same", "field", "field", "presence", "presence", "order", "defaults"])):
        case "field":
            name = draw(st.sampled_from(sorted(CHANGES)))
            others[at] = replace(others[at], **{name: draw(CHANGES[name])})
        case "presence":
            name, empty = draw(st.sampled_from(sorted(EMPTY.items())))
            others[at] = replace(others[at], **{name: empty})
            messages = (*messages[:at], replace(messages[at], **{name: None}), *messages[at + 1 :])
        case "order":
            others.insert(0, others.pop())
        case "defaults":
            flags = {
                name: False for name in ("key_is_base64", "null_key", "null_value") if not getattr(others[at], name)
            }
            others[at] = replace(others[at], properties=tuple(sorted(set(others[at].properties))), **flags)
    return draw(_entries(messages)), draw(_entries(tuple(others)))


@pytest.mark.long
@pytest.mark.full
def test_a_verdict_is_equal_exactly_when_what_is_stored_means_the_same(
    blue: ClusterConnection,
    green: ClusterConnection,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: MakeNamespace,
) -> None:
    counted: Counter[tuple[bool, str]] = Counter()

    @settings(
        max_examples=-(-PAIRS // PAIRS_AT_ONCE),
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,  # the assertion names the pair; all of an example are 30 kB
        suppress_health_check=list(HealthCheck),
        derandomize=PAIRS == 40,
    )
    @given(st.lists(pairs(), min_size=PAIRS_AT_ONCE, max_size=PAIRS_AT_ONCE))
    def judged(generated: list[tuple[Topic, Topic]]) -> None:
        namespace = new_namespace()
        verdicts, same = asyncio.run(_compare(blue, green, namespace, make_namespace, generated))
        for number, pair in enumerate(generated):
            name = str(TopicName(namespace, f"pair-{number}"))
            expected = Verdict.EQUAL if same[name] else Verdict.DIFFERENT
            assert verdicts[name] is expected, pair
            counted[same[name], verdicts[name]] += 1

    judged()
    assert {equal for equal, _ in counted} == {True, False}
    log.warning("pairs by (means the same, verdict): %s", dict(counted))


async def _compare(
    blue: ClusterConnection,
    green: ClusterConnection,
    namespace: NamespaceName,
    make_namespace: MakeNamespace,
    generated: list[tuple[Topic, Topic]],
) -> tuple[dict[str, Verdict], dict[str, bool]]:
    """The verdict of each topic, and whether the stored bytes mean the same."""
    same: dict[str, bool] = {}
    async with AdminClient(blue) as on_blue, AdminClient(green) as on_green:
        for admin in (on_blue, on_green):
            await make_namespace(admin, namespace)
            await admin.post(f"/namespaces/{namespace.path}/retention", FOREVER)
            names = [TopicName(namespace, f"pair-{number}") for number in range(len(generated))]
            await asyncio.gather(*(admin.create_topic(name) for name in names))
        with (
            RawConnection(blue.require_service_url()) as at_blue,
            RawConnection(green.require_service_url()) as at_green,
        ):
            for name, (source, target) in zip(map(str, names), generated, strict=True):
                at_blue.write(name, source)
                at_green.write(name, target)
                same[name] = at_blue.read(name, len(source)) == at_green.read(name, len(target))
        request = await freeze_bounds(on_blue, on_green, [namespace], mapping=EntryMapping.WHOLE)
        verification = await verify_in_process(on_blue, on_green, request)
    (compared,) = verification.namespaces
    return {topic.topic: topic.verdict for topic in compared.topics}, same
