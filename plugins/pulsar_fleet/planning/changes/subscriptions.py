"""From a difference in a subscription to the change that removes it, or the reason not to (pure)."""

from __future__ import annotations

from enum import StrEnum

from pulsar_fleet.cluster.admin.call import Call, bare, with_body
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.planning.changes.namespaces import ONLY_ON_TARGET, left_alone
from pulsar_fleet.planning.diff_entry import Difference, Side, same
from pulsar_fleet.planning.hazards.model import Hazard
from pulsar_fleet.planning.plan import Action, Change, LeftAlone

_NEWEST = 2**63 - 1


class StartAt(StrEnum):
    """Where a subscription that is created stands."""

    EARLIEST = "earliest"
    """At the first message that is stored, so that none is skipped."""
    LATEST = "latest"
    """Behind the last message that is stored: only later ones are delivered."""


def subscription_change(found: Difference, start_at: StartAt) -> Change | LeftAlone:
    """Create the subscription, or give it the source's properties and replicated flag."""
    if found.side is Side.EXTRA:
        return left_alone(found, ONLY_ON_TARGET)
    if found.side is Side.MISSING:
        return _creation(found, start_at)
    after = {**found.source, "properties": {**found.target["properties"], **found.source["properties"]}}
    if same(after, found.target):
        return left_alone(found, "the target has more properties, and nothing is taken away")
    topic = TopicName.parse(found.name)
    return Change(
        resource=found.resource,
        name=found.name,
        field=found.field,
        action=Action.SET,
        calls=setting_calls(topic, found.field, found.target, after),
        before=found.target,
        after=after,
        hazard=Hazard.REVERSIBLE,
        reason="its properties or its replicated flag differ",
    )


def setting_calls(topic: TopicName, name: str, before: JsonObject, after: JsonObject) -> tuple[Call, ...]:
    """From one comparable value of an existing subscription to another."""
    path = topic.subscription_path(name)
    calls: tuple[Call, ...] = ()
    if not same(before["properties"], after["properties"]):
        calls += (with_body("PUT", f"{path}/properties", after["properties"]),)
    if before["replicated"] != after["replicated"]:
        # The broker writes the flag down when the topic is next unloaded, and no list shows it before that.
        calls += (
            with_body("POST", f"{path}/replicatedSubscriptionStatus", after["replicated"]),
            bare("PUT", f"/{topic.path}/unload"),
        )
    return calls


def _creation(found: Difference, start_at: StartAt) -> Change:
    path = TopicName.parse(found.name).subscription_path(found.field)
    replicated = bool(found.source["replicated"])
    body = _body(start_at, found.source["properties"])
    calls: tuple[Call, ...] = (with_body("PUT", path, body, replicated=str(replicated).lower()),)
    if replicated:
        # The flag of the creating call is lost when the topic is next unloaded; this one stays.
        calls += (with_body("POST", f"{path}/replicatedSubscriptionStatus", True),)
    return Change(
        resource=found.resource,
        name=found.name,
        field=found.field,
        action=Action.CREATE,
        calls=calls,
        before=None,
        after={"position": start_at.value, **found.source},
        hazard=Hazard.NONE,
        reason="the target lacks this subscription",
    )


def _body(start_at: StartAt, properties: JsonObject) -> Json:
    """A word, or, where there are properties, the same said by a position: only that form takes them."""
    if not properties:
        return start_at.value
    edge = -1 if start_at is StartAt.EARLIEST else _NEWEST
    return {"ledgerId": edge, "entryId": edge, "partitionIndex": -1, "properties": properties}
