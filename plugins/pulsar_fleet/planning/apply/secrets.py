"""Get the secrets that a plan writes from the cluster that holds them; they stay in memory."""

from __future__ import annotations

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.redaction import Redactor, fingerprints
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader


async def read_secrets(plan: Plan, source: AdminClient, seal: Redactor) -> dict[str, str]:
    """Fingerprint → secret for every secret that the plan writes and the source still has."""
    wanted = {
        (change.namespace, change.resource is Resource.TOPIC_POLICY)
        for change in plan.changes
        if change.namespace and any(fingerprints(call.body) for call in change.calls)
    }
    found: dict[str, str] = {}
    async with TopicPolicyReader(source, None) as reader:
        for namespace, in_topics in sorted(wanted):
            found |= await _secrets(source, reader, namespace, seal, in_topics=in_topics)
    return found


async def _secrets(
    source: AdminClient, reader: TopicPolicyReader, namespace: NamespaceName, seal: Redactor, *, in_topics: bool
) -> dict[str, str]:
    if not in_topics:
        return seal.secrets(await source.namespace(namespace) or {})
    return {key: text for one in await reader.read(namespace) for key, text in seal.secrets(one.policies).items()}
