"""The settings of `verify_clusters`."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import connection, namespaces, read_limit

SETTINGS = {
    "source": connection("pulsar_blue", "Source", "Connection of the cluster that holds the originals."),
    "target": connection("pulsar_green", "Target", "Connection of the cluster that holds the copy."),
    "namespaces": replace(namespaces("What to compare, tenant/namespace."), option="namespace"),
    "mapping": setting(
        "auto",
        type="string",
        enum=["auto", "replicated", "copies", "mesh", "whole"],
        title="Mapping",
        description="replicated compares the replicated messages by source position; copies does so while producers "
        "write to the target too, whose messages are left out; mesh compares what was published on the source, while "
        "all clusters publish and replicate; whole compares all messages.",
    ),
    "mode": setting(
        "full",
        type="string",
        enum=["full", "window", "sample", "incremental"],
        title="Mode",
        description="full compares all messages; window the messages published between two times; sample randomly "
        "chosen ranges; incremental the messages since the last proof in the ledger.",
    ),
    "window_from": setting(
        None,
        type=["null", "string"],
        format="date-time",
        title="Window: from",
        description="For window: publish time of the first messages, such as 2026-11-21T08:00:00+00:00.",
    ),
    "window_to": setting(
        None,
        type=["null", "string"],
        format="date-time",
        title="Window: to",
        description="For window: end of the publish times; messages published at this time or later are left out.",
    ),
    "sample_one_in": setting(
        10_000,
        type="integer",
        minimum=1,
        title="Sample: one in",
        description="For sample: a difference in one of this many messages of a topic is detected …",
    ),
    "sample_probability": setting(
        0.99,
        type="number",
        exclusiveMinimum=0,
        exclusiveMaximum=1,
        title="Sample: probability",
        description="… with this probability.",
    ),
    "sample_seed": setting(
        1, type="integer", title="Sample: seed", description="Chooses the ranges; equal seeds choose equal ranges."
    ),
    "compacted": setting(
        "auto",
        type="string",
        enum=["auto", "always", "never"],
        title="Compacted topics",
        description="When to compare the latest value of each key; auto: beside the log, if either cluster has "
        "compacted the topic; always: in place of the log.",
    ),
    "order": setting(
        "producer_and_key",
        type="string",
        enum=["producer_and_key", "total"],
        title="Order",
        description="The order that a copy has to keep. producer_and_key: that of each producer's and each key's "
        "messages, which is what Pulsar promises; other changes of places are a note. total: that of all messages.",
    ),
    "engine": setting(
        "auto",
        type="string",
        enum=["auto", "message", "entry"],
        title="Engine",
        description="entry reads whole entries of replicated topics, message reads messages one by one; auto chooses "
        "the cheaper one. Windows and compacted topics are always read by message.",
    ),
    "read_from": setting(
        "serving",
        type="string",
        enum=["serving", "shadow"],
        title="Read from",
        description="serving reads the topics of the source; shadow reads a shadow topic of each topic, which keeps "
        "the load off the brokers that applications use.",
    ),
    "keyed_digests": setting(
        False,
        type="boolean",
        title="Keyed digests",
        description="Hash messages with BLAKE2b and the key in PULSAR_FLEET_DIGEST_SECRET of worker and executors: "
        "without the key, different messages with equal digests cannot be constructed. An incremental run never "
        "continues such a proof.",
    ),
    "max_bytes_per_second": read_limit(),
    "examples": setting(
        20,
        type="integer",
        minimum=1,
        maximum=1000,
        title="Example messages",
        description="Number of different messages to list per topic.",
    ),
    "namespaces_per_job": setting(
        100,
        type="integer",
        minimum=1,
        title="Namespaces per job",
        description="Number of namespaces per Spark job. A larger run freezes each batch just before its job.",
    ),
    "subscriptions": setting(
        True,
        type="boolean",
        title="Compare subscriptions",
        description="Compare the backlog of each subscription. Their consumers must not run during the comparison.",
    ),
}
