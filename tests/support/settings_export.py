"""Every setting of a namespace, of its tenant and of the brokers, by plain HTTP calls, without code of the product."""

from __future__ import annotations

import json
from typing import Any

import pulsar
from tests.support.exporter import Plain, Refused, listed_topics, once, topic_path

TOPIC_SETTINGS = ("publishRate", "inactiveTopicPolicies", "retention", "maxProducers", "maxConsumers")
RUNS = "persistent://pulsar/fleet/runs"


def settings(url: str, namespace: str) -> dict[str, Any]:
    """Resource → document; a resource that is not there is left out."""
    http = Plain(url)
    path = "/".join(map(once, namespace.split("/")))
    exported: dict[str, Any] = {"brokers": http.get("/brokers/configuration/values") or {}}
    tenant = http.get(f"/tenants/{once(namespace.split('/')[0])}")
    if tenant is not None:
        exported["tenant"] = {key: sorted(tenant.get(key) or ()) for key in ("adminRoles", "allowedClusters")}
    policies = http.get(f"/namespaces/{path}")
    if policies is None:
        return exported
    policies["replication_clusters"] = sorted(policies["replication_clusters"])
    exported["namespace"] = {key: value for key, value in policies.items() if key != "bundles"}
    for topic, count in listed_topics(http, namespace).items():
        exported[f"partitions of {topic}"] = count
        for name in TOPIC_SETTINGS:
            for scope in ("false", "true"):
                value = _value(http, f"{topic_path(topic)}/{name}?isGlobal={scope}")
                if value is not None:
                    exported[f"{name} of {topic}, global: {scope}"] = value
    return exported


def _value(http: Plain, path: str) -> Any:
    try:
        return http.get(path)
    except Refused as refused:
        # A partitioned topic whose partitions cannot be loaded any more: it is migrated.
        if refused.status == 409:
            return None
        raise


def records_of_runs(service_url: str) -> dict[str, Any]:
    """The last message of the topic in which runs record what they hold; nothing where there is none."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(RUNS, pulsar.MessageId.latest, start_message_id_inclusive=True)
        content = b"{}"
        while reader.has_message_available():
            content = reader.read_next(10_000).data()
        return dict(json.loads(content))
    finally:
        client.close()
