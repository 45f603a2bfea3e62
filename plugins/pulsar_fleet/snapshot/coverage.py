"""What a Pulsar cluster holds, and what a plan does with each of it: the list beyond which no text may claim (pure).

A row names the read routes of the admin API that show the content; a test finds the routes of each measured version
in its classes, and fails for one that neither a row nor a policy of the catalogues has. What brokers store without a
route of its own has rows too. Sources: the resource classes of Pulsar 3.0.7, 4.0.7, 4.2.4 and 5.0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Treatment(StrEnum):
    """What a snapshot, a plan and a comparison of two clusters do with a kind of content."""

    COPIED = "copied and compared"
    COMPARED = "compared"
    NAMED = "named as not copied"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One kind of content of a cluster.

    :param name: a plural, as it stands in a sentence.
    :param how: what a reader has to know: which procedure moves it, or why it does not apply.
    :param findings: checks and gates that name it where it exists.
    :param routes: read routes below `/admin/v2` or `/admin/v3`; `*` is one part of a path, a final `**` any rest. Those
        of `non-persistent` are the same as those of `persistent`.
    """

    name: str
    treatment: Treatment
    how: str = ""
    findings: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()


_TOPIC = "persistent/*/*/*"
CONTENTS: tuple[Content, ...] = (
    Content(name="tenants", treatment=Treatment.COPIED, routes=("tenants", "tenants/*", "namespaces/*")),
    Content(
        name="cluster data of other clusters, their peers and failure domains",
        treatment=Treatment.COPIED,
        how="what the target already has is never changed",
        findings=("peer-address-missing", "peer-address-local"),
        routes=("clusters", "clusters/*", "clusters/*/peers", "clusters/*/failureDomains/**"),
    ),
    Content(
        name="namespace isolation policies",
        treatment=Treatment.COPIED,
        routes=("clusters/*/namespaceIsolationPolicies/**",),
    ),
    Content(name="resource groups", treatment=Treatment.COPIED, routes=("resourcegroups", "resourcegroups/*")),
    Content(
        name="namespaces with their policies, bundles, permissions, properties and affinities",
        treatment=Treatment.COPIED,
        how="policy by policy in the tables below; bundles at creation",
        routes=(
            "namespaces/*/*",
            "namespaces/*/*/bundles",
            "namespaces/*/antiAffinity/*",
            "namespaces/*/*/property/*",
            "namespaces/*/*/permissions/subscription",
            "namespaces/*/*/backlogQuotaMap",
            "namespaces/*/*/offloadThreshold",
            "namespaces/*/*/offloadThresholdInSeconds",
            "namespaces/*/*/offloadDeletionLagMs",
        ),
    ),
    Content(
        name="topics with their partitions and properties",
        treatment=Treatment.COPIED,
        how="partitioned non-persistent topics too; others of these exist only while clients are connected",
        routes=(
            "namespaces/*/*/topics",
            "persistent/*/*",
            "persistent/*/*/partitioned",
            _TOPIC,
            f"{_TOPIC}/partitions",
            f"{_TOPIC}/properties",
        ),
    ),
    Content(
        name="topic policies, local and global",
        treatment=Treatment.COPIED,
        how="policy by policy in the tables below",
        routes=(
            f"{_TOPIC}/permissions",
            f"{_TOPIC}/backlogQuotaMap",
            f"{_TOPIC}/*/dispatchRate",
        ),
    ),
    Content(
        name="schemas with all versions",
        treatment=Treatment.COPIED,
        how="a version that the target refuses is named; numbers of versions are the target's",
        findings=("schema-strategy-differs",),
        routes=(
            "schemas/*/*/*/schema",
            "schemas/*/*/*/schema/*",
            "schemas/*/*/*/schemas",
            "schemas/*/*/*/metadata",
        ),
    ),
    Content(
        name="durable subscriptions with their properties and the replicated flag, of each partition",
        treatment=Treatment.COPIED,
        routes=(
            f"{_TOPIC}/subscriptions",
            f"{_TOPIC}/subscription/*/properties",
            f"{_TOPIC}/subscription/*/replicatedSubscriptionStatus",
        ),
    ),
    Content(
        name="settings, versions and plugins of brokers",
        treatment=Treatment.COMPARED,
        how="those that change the effect of what is copied; dynamic settings",
        findings=("dynamic-settings-differ", "behaves-differently", "brokers-disagree", "entry-filter-missing"),
        routes=(
            "brokers",
            "brokers/*",
            "brokers/version",
            "brokers/configuration",
            "brokers/configuration/**",
        ),
    ),
    Content(
        name="bookies",
        treatment=Treatment.COMPARED,
        how="their number with the ensembles of policies, their groups with the bookie affinity of namespaces",
        findings=("bookies-missing", "bookies-unknown", "bookie-group-missing"),
        routes=("bookies/all", "bookies/racks-info"),
    ),
    Content(
        name="messages",
        treatment=Treatment.NAMED,
        how="also compacted, delayed and offloaded ones; `migrate_namespaces` moves them, `verify_clusters` compares",
        routes=(
            f"{_TOPIC}/examinemessage",
            f"{_TOPIC}/ledger/*/entry/*",
            f"{_TOPIC}/subscription/*/position/*",
            f"{_TOPIC}/messageid/*",
            f"{_TOPIC}/getMessageIdByIndex",
            f"{_TOPIC}/lastMessageId",
            f"{_TOPIC}/compaction",
            f"{_TOPIC}/offload",
            "namespaces/*/*/scanOffloadedLedgers",
        ),
    ),
    Content(
        name="positions of subscriptions",
        treatment=Treatment.NAMED,
        how="a copy begins at the earliest message; `migrate_namespaces` transfers cursors",
        routes=(f"{_TOPIC}/internal-info", f"{_TOPIC}/backlog"),
    ),
    Content(
        name="the state of producers that deduplication keeps",
        treatment=Treatment.NAMED,
        how="a producer that sends again to the target what it sent to the source is not recognized there",
    ),
    Content(
        name="terminations of topics",
        treatment=Treatment.NAMED,
        how="`migrate_namespaces` terminates the copy",
        findings=("topic-terminated", "topic-terminated-on-target"),
    ),
    Content(
        name="shadow topics",
        treatment=Treatment.NAMED,
        how="they share the ledgers of a topic of their own cluster",
        findings=("shadow-topic",),
    ),
    Content(
        name="system topics",
        treatment=Treatment.NAMED,
        how="by the exact names that brokers give them: `__change_events`, `__transaction_buffer_snapshot`, also with "
        "`_indexes` or `_segments`, and what ends with `__transaction_pending_ack`; each cluster has its own",
        findings=("system-topic-differs",),
    ),
    Content(
        name="scalable topics",
        treatment=Treatment.NAMED,
        how="since 5.0; `migrate_namespaces` refuses their namespaces, `verify_clusters` lists them as not compared",
        findings=("scalable-topics-not-copied", "scalable-topics-stay"),
        routes=("scalable/**", "segments/**"),
    ),
    Content(
        name="functions, sources and sinks with their state",
        treatment=Treatment.NAMED,
        findings=("functions-not-copied", "functions-worker-state"),
        routes=("functions/**", "sources/**", "sinks/**", "source/**", "sink/**"),
    ),
    Content(
        name="packages",
        treatment=Treatment.NAMED,
        findings=("packages-not-copied",),
        routes=("packages/**",),
    ),
    Content(
        name="transactions",
        treatment=Treatment.NAMED,
        how="of an open one nothing is readable; the messages of a committed one are messages",
        findings=("transactions-off",),
        routes=("transactions/**",),
    ),
    Content(
        name="the flag that a namespace or cluster is migrated",
        treatment=Treatment.NAMED,
        how="it redirects clients, so no copy sets it",
        findings=("namespace-migrated",),
        routes=("clusters/*/migrate",),
    ),
    Content(
        name="resource quotas of bundles",
        treatment=Treatment.NAMED,
        how="a load balancer derives them from its cluster's traffic; those that a person set are set again by hand",
        routes=("resource-quotas", "resource-quotas/*/*/*"),
    ),
    Content(
        name="racks of bookies",
        treatment=Treatment.NOT_APPLICABLE,
        how="they describe the machines of one cluster",
        routes=("bookies/racks-info/*",),
    ),
    Content(
        name="the state of running brokers, topics and workers",
        treatment=Treatment.NOT_APPLICABLE,
        how="load, ownership, statistics and health belong to processes",
        routes=(
            "broker-stats/**",
            "brokers/leaderBroker",
            "brokers/*/*/ownedNamespaces",
            "brokers/internal-configuration",
            "brokers/backlog-quota-check",
            "brokers/ready",
            "brokers/health",
            "metadata/migration/status",
            "namespaces/*/*/*/topicHashPositions",
            f"{_TOPIC}/stats",
            f"{_TOPIC}/internalStats",
            f"{_TOPIC}/partitioned-stats",
            f"{_TOPIC}/partitioned-internalStats",
            "worker/**",
            "worker-stats/**",
        ),
    ),
)
"""Every kind of content of a cluster."""


def not_copied() -> str:
    """`messages, positions of subscriptions, …`: what a plan and a comparison of metadata leave out."""
    return ", ".join(content.name for content in CONTENTS if content.treatment is Treatment.NAMED)
