"""Read the secrets that a plan writes from the source cluster; they stay in memory."""

from __future__ import annotations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.redaction import Redactor, fingerprints
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


async def read_secrets(plan: Plan, source: AdminClient, redactor: Redactor) -> dict[str, str]:
    """Fingerprint → secret for every secret that the plan writes and the source still has."""
    namespaces = {
        (change.namespace, change.resource is Resource.TOPIC_POLICY)
        for change in plan.changes
        if change.namespace and any(fingerprints(call.body) for call in change.calls)
    }
    secrets: dict[str, str] = {}
    async with TopicPolicyReader(source, None) as reader:
        for namespace, in_topics in sorted(namespaces):
            secrets |= await _secrets(source, reader, namespace, redactor, in_topics=in_topics)
    return secrets


async def _secrets(
    source: AdminClient, reader: TopicPolicyReader, namespace: NamespaceName, redactor: Redactor, *, in_topics: bool
) -> dict[str, str]:
    if not in_topics:
        return redactor.secrets(await source.namespace(namespace) or {})
    states = await reader.read(namespace)
    return {key: text for state in states for key, text in redactor.secrets(state.policies).items()}
