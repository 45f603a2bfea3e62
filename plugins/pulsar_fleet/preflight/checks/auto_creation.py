"""Auto-creation of topics and subscriptions on their first use (pure).

PIP-433: for topics that the two clusters create differently, replication between them never starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.policies.namespace_catalogue import BY_FIELD
from pulsar_fleet.cluster.policies.setters import policy_calls
from pulsar_fleet.preflight.context import (
    TOPIC_CREATION,
    Pair,
    blocker,
    call_text,
    in_broker_conf,
    keeping_calls,
    setting,
    settings,
    warning,
)
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.model import Snapshot

TOPICS, SUBSCRIPTIONS = TOPIC_CREATION, "autoSubscriptionCreationOverride"
_BROKER_KEYS = {
    "allowAutoTopicCreation": TOPICS,
    "allowAutoTopicCreationType": TOPICS,
    "defaultNumPartitions": TOPICS,
    "allowAutoSubscriptionCreation": SUBSCRIPTIONS,
}
_IDS = {TOPICS: "auto-creation-differs", SUBSCRIPTIONS: "auto-subscription-differs"}
_CONSEQUENCES = {
    TOPICS: "Topics that clients create by using them differ on the two clusters, "
    "and replication between such topics never starts.",
    SUBSCRIPTIONS: "One cluster accepts a consumer of a new subscription and the other refuses it.",
}


def broker_auto_creation_matches(pair: Pair) -> Iterator[Finding]:
    """The brokers' settings are effective where a namespace has no policy."""
    for key, ours, theirs in pair.differing_settings(_BROKER_KEYS):
        field = _BROKER_KEYS[key]
        relying = [namespace.name for namespace in pair.translated.namespaces if not namespace.policies.get(field)]
        if not relying:
            continue
        stops = field == TOPICS and any(pair.replicated(name) for name in relying)
        yield (blocker if stops else warning)(
            _IDS[field],
            f"cluster {pair.target.cluster}",
            f"{key}: {pair.values(ours, theirs)}; {len(relying)} namespaces have no policy of their own",
            _CONSEQUENCES[field],
            f"set the policy on each of these namespaces on {pair.source.cluster} to what its brokers apply: nothing "
            "changes "
            "there, and the plan copies it.",
            call=keeping_calls(pair, field, relying),
            values=(ours, theirs),
        )


def namespace_auto_creation_matches(pair: Pair) -> Iterator[Finding]:
    """The effective rule of a namespace: its own policy, else the brokers' settings."""
    rules: dict[str, Callable[[Snapshot, JsonObject], Json]] = {TOPICS: topic_rule, SUBSCRIPTIONS: subscription_rule}
    for name, source, target in pair.common_namespaces():
        for field, rule in rules.items():
            if not source.get(field) and not target.get(field):
                continue
            ours, theirs = rule(pair.source, source), rule(pair.target, target)
            if ours == theirs:
                continue
            stops = field == TOPICS and pair.replicated(name)
            calls = policy_calls(BY_FIELD[field], NamespaceName.parse(name), target.get(field), source.get(field))
            yield (blocker if stops else warning)(
                _IDS[field],
                name,
                pair.values(ours, theirs),
                _CONSEQUENCES[field],
                "apply the plan, which sets it; until then create topics and subscriptions manually.",
                call=call_text(pair.target.cluster, *calls),
                values=(ours, theirs),
            )


def topic_rule(snapshot: Snapshot, policies: JsonObject) -> str:
    """`off`, `non-partitioned` or `partitioned, 3`; `broker default` where the brokers do not report theirs."""
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
            return "broker default"
    if str(allowed).lower() == "false":
        return "off"
    return f"partitioned, {count}" if kind == "partitioned" else "non-partitioned"


def subscription_rule(snapshot: Snapshot, policies: JsonObject) -> str:
    """`on` or `off`; `broker default` where the brokers do not report theirs."""
    rule = policies.get(SUBSCRIPTIONS)
    allowed = rule.get("allowAutoSubscriptionCreation") if rule else setting(snapshot, "allowAutoSubscriptionCreation")
    if allowed is None:
        return "broker default"
    return "off" if str(allowed).lower() == "false" else "on"


def replicators_can_create(pair: Pair) -> Iterator[Finding]:
    """A replicator creates a topic that the other cluster lacks, unless its broker's setting or version prevents it."""
    for own, other, _ in pair.sides():
        off = [a for a, value in settings(own, "createTopicToRemoteClusterForReplication").items() if value == "false"]
        if off:
            yield warning(
                "remote-topic-creation-off",
                f"cluster {own.cluster}",
                f"createTopicToRemoteClusterForReplication = false on {', '.join(sorted(off))}",
                f"A topic that {other.cluster} lacks is not created there, and its replication does not start.",
                f"create topics on {other.cluster} first, or {in_broker_conf(f'{_REMOTE}=true', own.cluster)}",
                values=(setting(pair.source, _REMOTE), setting(pair.target, _REMOTE)),
            )


_REMOTE = "createTopicToRemoteClusterForReplication"
