"""What keeps messages on blue after every subscription has read them: such messages do not drain (pure)."""

from __future__ import annotations

from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.policies.topic_policies import TOPIC_BY_FIELD
from pulsar_fleet.migration.stats.effective_policies import EffectivePolicies

_RETENTION = TOPIC_BY_FIELD["retentionPolicies"]


def retained_by(policies: EffectivePolicies) -> dict[str, str]:
    """Namespace → `topic …`, `the namespace` or `the brokers' default`: the first that retains messages; or nothing."""
    return {namespace: _first(policies, namespace) for namespace in policies.namespaces}


def _first(policies: EffectivePolicies, namespace: str) -> str:
    for topic in policies.topics[namespace]:
        if any(map(_retains, policies.values(_RETENTION, namespace, topic))):
            return f"topic {topic}"
    if any(map(_retains, policies.values(_RETENTION, namespace))):
        return (
            "the namespace" if _RETENTION.namespace_field in policies.namespaces[namespace] else "the brokers' default"
        )
    return ""


def _retains(retention: Json) -> bool:
    return bool(retention and (retention.get("retentionTimeInMinutes") or retention.get("retentionSizeInMB")))
