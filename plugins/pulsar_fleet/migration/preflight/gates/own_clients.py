"""Policies that refuse what a copy needs itself: a cursor, readers, a replicator's producer (pure).

Measured on 4.2.4. A limit of subscriptions counts the replicator's cursor, which the run creates, until the topic is
loaded again, and readers; a limit of consumers counts readers; both refuse at once. A limit of producers counts no
replicator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.effective import Layer
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD, Scope, topic_policy_calls
from pulsar_fleet.cluster.statistics import Role, TopicStats
from pulsar_fleet.migration.preflight.copied_policies import Side, copied_in, sides_of, until_ended
from pulsar_fleet.migration.preflight.gates.catalogue import Gate, Owner, blocks
from pulsar_fleet.migration.preflight.view import View
from pulsar_fleet.preflight.context import call_text
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.preflight.target_limits import ENCRYPTION, NO_ENCRYPTION, UNLINKED

_COPIES = "nothing with redirect, which copies nothing"
_SUBSCRIPTIONS = blocks(
    "no-subscription-left",
    Owner.TENANT,
    "The brokers refuse the cursor of the replicator, or the reader that compares the copy, and the run stops there.",
    milder=_COPIES,
)
_CONSUMERS = blocks(
    "no-consumer-left",
    Owner.TENANT,
    "The brokers refuse the reader that compares the copy, and the run stops there.",
    milder=_COPIES,
)
_TYPES = blocks(
    "exclusive-not-permitted",
    Owner.TENANT,
    "The brokers refuse the readers that compare the copy, and the consumer that sets cursors: all are Exclusive.",
    milder=_COPIES,
)
_ENCRYPTION = blocks(
    "replicator-not-encrypted",
    Owner.TENANT,
    UNLINKED.format(target="{green}"),
    milder=_COPIES,
)
_EXCLUSIVE = "Exclusive"
_MORE_READERS = 3
"""A proof reads the ranges of a partition by tasks at the same time, and brokers count a reader for a moment after it
was closed."""


@dataclass(frozen=True, slots=True)
class _Shortage:
    """A limit that is lower than what a run needs on a partition."""

    side: str
    layer: Layer
    partition: TopicName
    limit: int
    needed: int

    @property
    def owner(self) -> NamespaceName | TopicName:
        """What gets the higher limit."""
        return self.partition.parent if self.layer in (Layer.LOCAL, Layer.GLOBAL) else self.partition.namespace


def subscriptions_are_left(view: View) -> Iterator[Finding]:
    """The replicator's cursor on blue and a reader on each cluster count as subscriptions."""
    sides, green = sides_of(view), view.green.name

    def needed(side: str, part: TopicStats) -> int:
        existing = sides[side].subscriptions.get(str(part.topic), frozenset()) | set(part.subscriptions)
        cursor = side == "blue" and green not in part.replication_connected
        return len(existing) + cursor + 1

    for shortage in _shortages(view, sides, "maxSubscriptionsPerTopic", needed):
        yield _raised(view, _SUBSCRIPTIONS, shortage, "maxSubscriptionsPerTopic", "the replicator and a reader")


def consumers_are_left(view: View) -> Iterator[Finding]:
    """A reader counts as a consumer, on green after the cut-over too."""

    def needed(_: str, part: TopicStats) -> int:
        return sum(client.role is not Role.PRODUCER for client in part.clients) + 1

    for shortage in _shortages(view, sides_of(view), "maxConsumerPerTopic", needed):
        yield _raised(view, _CONSUMERS, shortage, "maxConsumerPerTopic", "a reader")


def _shortages(
    view: View, sides: Mapping[str, Side], field: str, needed: Callable[[str, TopicStats], int]
) -> Iterator[_Shortage]:
    """The largest shortage of each namespace or topic that sets the limit; of both clusters the first."""
    for facts in copied_in(view):
        largest: dict[NamespaceName | TopicName, _Shortage] = {}
        for name, side in sides.items():
            for part in facts.partitions:
                layer, limit = next(iter(side.layers(part.topic, field).items()), (Layer.BROKERS, 0))
                shortage = _Shortage(side.name, layer, part.topic, int(limit), needed(name, part))
                before = largest.get(shortage.owner)
                if 0 < shortage.limit < shortage.needed and (before is None or before.needed < shortage.needed):
                    largest[shortage.owner] = shortage
        yield from largest.values()


def _raised(view: View, gate: Gate, shortage: _Shortage, field: str, users: str) -> Finding:
    own, raised = TOPIC_BY_FIELD[field].path, shortage.needed + _MORE_READERS
    return gate.finding(
        str(shortage.owner),
        f"{own} = {shortage.limit} by {shortage.layer} on {shortage.side}; {shortage.partition} has "
        f"{shortage.needed} with {users} of the run",
        f"raise it to {raised} or more {until_ended(view)}.",
        call=_calls(view, shortage.owner, shortage.layer, field, raised),
    )


def exclusive_is_permitted(view: View) -> Iterator[Finding]:
    """Readers, and the consumer that acknowledges individually on green, are Exclusive."""
    field = "subscriptionTypesEnabled"
    for facts in copied_in(view):
        reported = set()
        for side in sides_of(view).values():
            for part in facts.partitions:
                layer, types = next(iter(side.layers(part.topic, field).items()), (Layer.BROKERS, None))
                owner = part.topic.parent if layer in (Layer.LOCAL, Layer.GLOBAL) else facts.namespace
                if types and _EXCLUSIVE not in types and owner not in reported:
                    reported.add(owner)
                    yield _TYPES.finding(
                        str(owner),
                        f"subscriptionTypesEnabled = {', '.join(types)} by {layer} on {side.name}; the run needs "
                        f"{_EXCLUSIVE}",
                        f"add {_EXCLUSIVE} {until_ended(view)}.",
                        call=_calls(view, owner, layer, field, sorted({*types, _EXCLUSIVE})),
                    )


def replicators_may_write(view: View) -> Iterator[Finding]:
    """A replicator sends encrypted messages as they are, and is refused as a producer that does not encrypt."""
    sides, remedy = sides_of(view), NO_ENCRYPTION.format(target=view.green.name)
    for facts in copied_in(view):
        blue, green = (side.effective(facts.namespace) for side in sides.values())
        if limit := ENCRYPTION.exceeded(blue, green):
            by_policy = bool(green.namespace.get("encryption_required"))
            how = f" Set encryptionRequired to false {until_ended(view)}." if by_policy else ""
            yield _ENCRYPTION.finding(
                str(facts.namespace),
                limit.evidence,
                f"{remedy} The strategy redirect replicates nothing.{how}",
                call=_calls(view, facts.namespace, Layer.NAMESPACE, "", False, "encryption_required")
                if by_policy
                else "",
            )


def _calls(
    view: View, owner: NamespaceName | TopicName, layer: Layer, field: str, value: Json, namespace_field: str = ""
) -> str:
    """The calls that set a value; none for global policies, which a broker of 3.0 mixes with the local ones."""
    if layer is Layer.GLOBAL:
        return ""
    if isinstance(owner, TopicName):
        calls = topic_policy_calls(TOPIC_BY_FIELD[field], owner, Scope.LOCAL, None, value)
    else:
        policy = BY_FIELD[namespace_field or TOPIC_BY_FIELD[field].namespace_field]
        calls = policy_calls(policy, owner, None, value)
    sides = (view.blue,) if view.expected.prepares_green else (view.blue, view.green)
    return "; ".join(call_text(side.name, *calls) for side in sides)
