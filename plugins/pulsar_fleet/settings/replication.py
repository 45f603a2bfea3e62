"""The settings of `replicate_namespaces`, `verify_replication` and `watch_replication`."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import NAMESPACE_PATTERN, approval, clusters, read_limit, selection, waivers

_WATCH = {
    "clusters": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Clusters",
        description="Connection ids of at least two clusters. Without one the run is skipped.",
    ),
    "selection": selection(),
    "receive_only": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Receive-only clusters",
        description="Clusters, by their own names, that are meant only to receive: a list on the other side only is "
        "then no warning.",
    ),
    "remedies": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Remedies",
        option="remedy",
        description="Ids of diagnoses whose calls the run sends. Only calls that can lose nothing are allowed. Empty: "
        "nothing is changed.",
    ),
    "behind_seconds": setting(
        60,
        type="number",
        minimum=1,
        title="Behind, seconds",
        description="A replicator that needs longer for its backlog is behind.",
    ),
    "connect_seconds": setting(
        75,
        type="number",
        minimum=0,
        maximum=600,
        title="Time to connect, seconds",
        description="For how long a replicator that does not work without a known cause is read again: brokers try to "
        "connect at most once a minute.",
    ),
    "fail_on_fault": setting(
        True,
        type="boolean",
        title="Fail on a fault",
        only_in_form=True,
        description="Fail the run if a replicator does not work, or a cluster does not answer.",
    ),
}

WATCH_REPLICATION = Scheduled("PULSAR_FLEET_WATCH_REPLICATION", every="*/10 * * * *", declared=_WATCH)


_SETTINGS = {
    "clusters": setting(
        [],
        is_example=True,
        type="array",
        items={"type": "string", "minLength": 1},
        title="Clusters",
        description="Connections of the clusters between which namespaces are replicated. Empty: nothing is verified.",
    ),
    "selection": selection(),
    "max_proof_age_hours": setting(
        24,
        type="number",
        exclusiveMinimum=0,
        title="Age of a proof, hours",
        description="Fail the run if the newest proof of a replicated namespace is older.",
    ),
    "max_bytes_per_second": read_limit(),
    "namespaces_per_job": setting(
        100,
        type="integer",
        minimum=1,
        title="Namespaces per job",
        description="Number of namespaces per Spark job; a job compares one direction between two clusters.",
    ),
}

VERIFY = Scheduled("PULSAR_FLEET_VERIFY_REPLICATION", every="0 */6 * * *", declared=_SETTINGS)


_CONNECTIONS = {"type": "string", "minLength": 1}

SETTINGS = {
    "clusters": clusters(1, "Connections of the clusters that replicate to each other."),
    "receive_only": setting(
        [],
        type="array",
        items=_CONNECTIONS,
        title="Receive only",
        description="Connections of clusters that receive from all the others and send nothing. One cluster above and "
        "one here: replication in one direction.",
    ),
    "leaving": setting(
        [],
        type="array",
        items=_CONNECTIONS,
        title="Leaving",
        description="Connections of clusters that leave. What they stored stays on them.",
    ),
    "namespaces": setting(
        [],
        type="array",
        items={"type": "string", "pattern": rf"^(re:.+|[\w=:.-]+|{NAMESPACE_PATTERN[1:-1]})$"},
        title="Namespaces",
        description="Tenants (acme), namespaces (acme/orders) or patterns of these (re:acme/.*).",
    ),
    "topics": setting(
        [],
        type="array",
        items={"type": "string", "pattern": r"^persistent://.+/.+/.+$"},
        title="Topics",
        description="Instead of namespaces: single topics, by a cluster list of their own.",
    ),
    "history": setting(
        False,
        type="boolean",
        title="History",
        description="Also replicate what is stored already; without it new links begin with the next message.",
    ),
    "history_since": setting(
        None,
        type=["null", "string"],
        format="date-time",
        title="History since",
        description="Of the history, only what was published at this time or later, such as 2026-11-21T08:00:00+00:00.",
    ),
    "deduplication": setting(
        False,
        type="boolean",
        title="Deduplication",
        description="Turn deduplication on everywhere, so that a message that a replicator sends again is stored once.",
    ),
    "replicated_subscriptions": setting(
        False,
        type="boolean",
        title="Replicated subscriptions",
        description="Set the flag on all durable subscriptions, so that applications can move to another cluster. "
        "Their topics are unloaded once.",
    ),
    "messages_per_second": setting(
        0,
        type="integer",
        minimum=0,
        title="Messages per second",
        description="Rate limit of each replicator; 0 leaves the policy as it is.",
    ),
    "bytes_per_second": setting(
        0,
        type="integer",
        minimum=0,
        title="Bytes per second",
        description="Rate limit of each replicator; 0 leaves the policy as it is.",
    ),
    "delete_cluster_data": setting(
        False,
        type="boolean",
        title="Delete cluster data",
        description="When a cluster leaves, delete its data on the others where nothing else refers to it.",
    ),
    "drain_minutes": setting(
        60,
        type="integer",
        minimum=1,
        maximum=10_080,
        title="Time to send, minutes",
        description="How long ending links may take to send what they still have; after it the run fails and the "
        "links stay.",
    ),
    "waivers": waivers(),
    **approval("the plan"),
    "dry_run": setting(
        False, type="boolean", title="Dry run", description="Stop after the plan, which lists every call."
    ),
}
