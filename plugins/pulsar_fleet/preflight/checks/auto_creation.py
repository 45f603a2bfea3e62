"""What happens on the first use of a topic or subscription that does not exist yet (pure).

PIP-433: replication between two clusters that create topics differently never starts for those topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.lookup import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.preflight.context import Pair, blocker, call_text, dynamic_call, setting, settings, warning
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import Snapshot

TOPICS, SUBSCRIPTIONS = "autoTopicCreationOverride", "autoSubscriptionCreationOverride"
_BROKER_KEYS = {
    "allowAutoTopicCreation": TOPICS,
    "allowAutoTopicCreationType": TOPICS,
    "defaultNumPartitions": TOPICS,
    "allowAutoSubscriptionCreation": SUBSCRIPTIONS,
}
_IDS = {TOPICS: "auto-creation-differs", SUBSCRIPTIONS: "auto-subscription-differs"}
_CONSEQUENCES = {
    TOPICS: "Topics that clients create by using them come out different on the two clusters, "
    "and replication between such topics never starts.",
    SUBSCRIPTIONS: "A consumer of a new subscription is served by one cluster and refused by the other.",
}


def brokers_create_alike(pair: Pair) -> Iterator[Finding]:
    """The brokers' own settings count wherever a namespace says nothing."""
    for key, field in _BROKER_KEYS.items():
        ours, theirs = (set(settings(snapshot, key).values()) for snapshot in (pair.source, pair.target))
        if not ours or not theirs or ours == theirs:
            continue
        relying = [one.name for one in pair.wanted.namespaces if not one.policies.get(field)]
        stops = field == TOPICS and any(pair.replicated(name) for name in relying)
        wanted = sorted(ours)[0]
        yield (blocker if stops else warning)(
            _IDS[field],
            f"cluster {pair.target.cluster}",
            f"{key}: {pair.values(' and '.join(sorted(ours)), ' and '.join(sorted(theirs)))}; "
            f"{len(relying)} namespaces go by it",
            _CONSEQUENCES[field],
            f"set it alike on every broker of {pair.target.cluster}, or a policy on each of these namespaces.",
            call=dynamic_call(pair.target.cluster, key, wanted),
            values=(sorted(ours), sorted(theirs)),
        )


def namespaces_create_alike(pair: Pair) -> Iterator[Finding]:
    """The effective rule of a namespace: its own, else the brokers'."""
    rules: dict[str, Callable[[Snapshot, JsonObject], Json]] = {TOPICS: topic_rule, SUBSCRIPTIONS: subscription_rule}
    for name, wanted, held in pair.shared():
        for field, rule in rules.items():
            if not wanted.get(field) and not held.get(field):
                continue
            ours, theirs = rule(pair.source, wanted), rule(pair.target, held)
            if ours == theirs:
                continue
            stops = field == TOPICS and pair.replicated(name)
            calls = policy_calls(BY_FIELD[field], NamespaceName.parse(name), held.get(field), wanted.get(field))
            yield (blocker if stops else warning)(
                _IDS[field],
                name,
                pair.values(ours, theirs),
                _CONSEQUENCES[field],
                "the plan sets it; until then create them by hand.",
                call=call_text(pair.target.cluster, *calls),
                values=(ours, theirs),
            )


def topic_rule(snapshot: Snapshot, policies: JsonObject) -> str:
    """`off`, `non-partitioned` or `partitioned, 3`; `as the brokers do` where they did not tell."""
    rule = policies.get(TOPICS)
    if rule:
        allowed, kind, count = (
            rule.get("allowAutoTopicCreation"),
            rule.get("topicType"),
            rule.get("defaultNumPartitions"),
        )
    else:
        allowed, kind, count = (setting(snapshot, key) for key in list(_BROKER_KEYS)[:3])
        if allowed is None:
            return "as the brokers do"
    if str(allowed).lower() == "false":
        return "off"
    return f"partitioned, {count}" if kind == "partitioned" else "non-partitioned"


def subscription_rule(snapshot: Snapshot, policies: JsonObject) -> str:
    """`on` or `off`; `as the brokers do` where they did not tell."""
    rule = policies.get(SUBSCRIPTIONS)
    allowed = rule.get("allowAutoSubscriptionCreation") if rule else setting(snapshot, "allowAutoSubscriptionCreation")
    if allowed is None:
        return "as the brokers do"
    return "off" if str(allowed).lower() == "false" else "on"


def replicators_can_create(pair: Pair) -> Iterator[Finding]:
    """A replicator makes a missing topic on the other side, unless its broker is told not to, or is too old to."""
    for own, other, _ in pair.sides():
        off = [a for a, value in settings(own, "createTopicToRemoteClusterForReplication").items() if value == "false"]
        if off:
            yield warning(
                "remote-topic-creation-off",
                f"cluster {own.cluster}",
                f"createTopicToRemoteClusterForReplication = false on {', '.join(sorted(off))}",
                f"A topic that {other.cluster} lacks is not made there, and its replication does not start.",
                f"create topics on {other.cluster} first, or set it to true in broker.conf of "
                f"{own.cluster} and restart: it is not dynamic.",
                values=(setting(pair.source, _REMOTE), setting(pair.target, _REMOTE)),
            )


_REMOTE = "createTopicToRemoteClusterForReplication"
