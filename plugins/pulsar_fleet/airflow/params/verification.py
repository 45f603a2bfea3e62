"""The settings of `verify_clusters`."""

from __future__ import annotations

from airflow.sdk import Param

from pulsar_fleet.airflow.params.common import connection_param, namespaces_param

PARAMS = {
    "source": connection_param("pulsar_blue", "Source", "Connection of the cluster that holds the originals."),
    "target": connection_param("pulsar_green", "Target", "Connection of the cluster that holds the copy."),
    "namespaces": namespaces_param("What to compare, one tenant/namespace per line."),
    "mapping": Param(
        "auto",
        type="string",
        enum=["auto", "replicated", "whole"],
        title="Mapping",
        description="replicated compares what geo-replication brought, by source position; whole compares everything.",
    ),
    "mode": Param(
        "full",
        type="string",
        enum=["full", "window", "sample", "incremental"],
        title="Mode",
        description="full compares all; window what was published between two times; sample pieces chosen by chance; "
        "incremental what came since the last proof in the ledger.",
    ),
    "window_from": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Window: from",
        description="For window: publish time of the first messages, as 2026-11-21T08:00:00+00:00.",
    ),
    "window_to": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Window: to",
        description="For window: publish time before which the last messages lie.",
    ),
    "sample_one_in": Param(
        10_000,
        type="integer",
        minimum=1,
        title="Sample: one in",
        description="For sample: a difference in one of so many messages of a topic is to be found …",
    ),
    "sample_probability": Param(
        0.99,
        type="number",
        exclusiveMinimum=0,
        exclusiveMaximum=1,
        title="Sample: probability",
        description="… with this probability.",
    ),
    "sample_seed": Param(
        1, type="integer", title="Sample: seed", description="Chooses the pieces; the same seed chooses the same ones."
    ),
    "compacted": Param(
        "auto",
        type="string",
        enum=["auto", "always", "never"],
        title="Compacted topics",
        description="When only the latest value of each key is compared; auto does so where either side has compacted "
        "the topic.",
    ),
    "engine": Param(
        "auto",
        type="string",
        enum=["auto", "client", "entry"],
        title="Engine",
        description="entry reads whole entries of replicated topics, client messages; auto takes what costs less. "
        "Windows and compacted topics are always read by client.",
    ),
    "read_from": Param(
        "serving",
        type="string",
        enum=["serving", "shadow"],
        title="Read from",
        description="serving reads the source's topics themselves; shadow reads a shadow topic of each, which spares "
        "the brokers that applications use.",
    ),
    "keyed_digests": Param(
        False,
        type="boolean",
        title="Keyed digests",
        description="Hash messages with BLAKE2b and the key in PULSAR_FLEET_DIGEST_SECRET of worker and executors: "
        "nobody can make two messages that look alike. Such a proof is never continued.",
    ),
    "max_bytes_per_second": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        title="Bytes per second",
        description="How fast any one broker is read at most, over all tasks; nothing means no limit.",
    ),
    "examples": Param(
        20,
        type="integer",
        minimum=1,
        maximum=1000,
        title="Messages to name",
        description="How many differing messages are named per topic.",
    ),
    "namespaces_per_job": Param(
        100,
        type="integer",
        minimum=1,
        title="Namespaces per job",
        description="How many one Spark job compares; of a larger run each batch is frozen when its turn comes.",
    ),
    "subscriptions": Param(
        True,
        type="boolean",
        title="Compare subscriptions",
        description="Compare what each subscription has not read yet. Their consumers must not run meanwhile.",
    ),
}
