"""Who reads a pair of topics: whole entries or messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import TopicBounds
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice, choose_engine, may_continue
from pulsar_fleet.verification.coverage import Mode
from pulsar_fleet.verification.request import Pair

TOPIC = "persistent://acme/orders/events"
FEW = TopicBounds(TOPIC, Ledgers(((4, 3),)), 0, 3)
COPIED = Pair(TOPIC, FEW, FEW, publish_time=True)
EARLIER = {"run": "verify/1", "publish_time": True, "engine": "entry"}
NOBODY = AdminClient(ClusterConnection(name="nobody", admin_url="http://localhost:1"))


@pytest.mark.parametrize(
    ("changed", "mode", "engine", "reason"),
    [
        ({}, Mode.FULL, "entry", "as requested"),
        ({}, Mode.SAMPLE, "entry", "as requested"),
        ({}, Mode.WINDOW, "message", "because a window is cut by the publish times of messages"),
        ({"compacted": True}, Mode.FULL, "message", "because the latest value of each key is compared"),
        ({"publish_time": False}, Mode.FULL, "message", "because only geo-replication keeps entries whole"),
        ({"earlier": EARLIER}, Mode.INCREMENTAL, "entry", "as in run verify/1, which it continues"),
        (
            {"earlier": {**EARLIER, "engine": "message"}},
            Mode.INCREMENTAL,
            "message",
            "as in run verify/1, which it continues",
        ),
    ],
)
def test_entries_are_read_where_they_show_what_is_asked(
    changed: dict[str, Any], mode: Mode, engine: str, reason: str
) -> None:
    choice = asyncio.run(choose_engine(NOBODY, replace(COPIED, **changed), EngineChoice.ENTRY, mode))
    assert (choice.engine.name, choice.engine.reason) == (engine, reason)


@pytest.mark.parametrize(
    ("choice", "engine", "publish_time", "continued"),
    [
        (EngineChoice.AUTO, "entry", True, True),
        (EngineChoice.MESSAGE, "entry", True, False),
        (EngineChoice.ENTRY, "message", True, False),
        (EngineChoice.ENTRY, "message", False, True),
    ],
)
def test_a_proof_is_only_continued_by_the_engine_that_made_it(
    choice: EngineChoice, engine: str, publish_time: bool, continued: bool
) -> None:
    assert may_continue({**EARLIER, "engine": engine, "publish_time": publish_time}, choice) is continued
