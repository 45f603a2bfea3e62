"""Which changes of a policy lose data."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_fleet.cluster.policies.model import evicts_backlog

EVICTING = {"limitSize": 100, "limitTime": 600, "policy": "consumer_backlog_eviction"}


@pytest.mark.parametrize(
    ("changes", "loses"),
    [({}, False), ({"limitSize": 99}, True), ({"limitTime": 599}, True), ({"limitSize": 101, "limitTime": 601}, False)],
)
def test_a_quota_that_evicts_loses_data_with_a_lower_size_or_time(changes: dict[str, Any], loses: bool) -> None:
    assert evicts_backlog({"message_age": EVICTING}, {"message_age": {**EVICTING, **changes}}) is loses
