"""The change that removes a difference in a subscription, or the reason to leave it alone (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName, is_addressable
from pulsar_fleet.planning.diff_entry import Difference, Side, same
from pulsar_fleet.planning.plan import Change, LeftAlone

_EARLIEST = "earliest"
"""Before the first stored message: every message is delivered."""


def subscription_change(difference: Difference) -> Change | LeftAlone:
    """Create the subscription at the earliest position, or set the source's properties and replicated flag."""
    if not is_addressable(difference.field):
        return LeftAlone.of(difference, "its name cannot be addressed over HTTP")
    if difference.side is Side.MISSING:
        return _creation(difference)
    after = {**difference.source, "properties": {**difference.target["properties"], **difference.source["properties"]}}
    if same(after, difference.target):
        return LeftAlone.of(difference, "the target has more properties, and nothing is removed")
    calls = setting_calls(TopicName.parse(difference.name), difference.field, difference.target, after)
    return Change.of(difference, calls, after, "its properties or its replicated flag differ")


def setting_calls(topic: TopicName, name: str, before: JsonObject, after: JsonObject) -> tuple[Call, ...]:
    """Change an existing subscription from one comparable value to another."""
    path = topic.subscription_path(name)
    calls: tuple[Call, ...] = ()
    if not same(before["properties"], after["properties"]):
        calls += (with_body("PUT", f"{path}/properties", after["properties"]),)
    if before["replicated"] != after["replicated"]:
        # The broker stores the flag when the topic is next unloaded; no list shows it before.
        calls += (
            with_body("POST", f"{path}/replicatedSubscriptionStatus", after["replicated"]),
            bare("PUT", f"/{topic.path}/unload"),
        )
    return calls


def _creation(difference: Difference) -> Change:
    path = TopicName.parse(difference.name).subscription_path(difference.field)
    replicated = bool(difference.source["replicated"])
    body = _body(difference.source["properties"])
    calls: tuple[Call, ...] = (with_body("PUT", path, body, replicated=str(replicated).lower()),)
    if replicated:
        # The flag of the creating call is lost when the topic is next unloaded; the flag of this call is stored.
        calls += (with_body("POST", f"{path}/replicatedSubscriptionStatus", True),)
    after = {"position": _EARLIEST, **difference.source}
    return Change.of(difference, calls, after, "the target lacks this subscription")


def _body(properties: JsonObject) -> Json:
    """`earliest`; with properties the same position as a document, since only that form accepts them."""
    if not properties:
        return _EARLIEST
    return {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": properties}
