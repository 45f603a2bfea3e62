"""The settings of `migrate_namespaces` and `fail_back_namespaces`."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from pulsar_fleet.airflow.params.common import (
    approval_params,
    connection_param,
    namespaces_param,
    setting,
    waivers_param,
)
from pulsar_fleet.migration.request import DEFAULTS, LIMITS

STRINGS = {"type": "string"}
SCOPE_PATTERN = r"^(all|re:.+|[\w=:.-]+(/[\w=:.-]+)?)$"


def _param(name: str, kind: str | list[str], **schema: Any) -> Param:
    """A setting of the procedure, with its default and its limits."""
    low, high = LIMITS.get(name, (None, None))
    limits: dict[str, Any] = {key: limit for key, limit in (("minimum", low), ("maximum", high)) if limit is not None}
    return setting(DEFAULTS[name], type=kind, **limits, **schema)


def _strategy(*others: str, suffix: str) -> Param:
    """How namespaces move, or `auto`; `suffix` ends the description."""
    return _param(
        "strategy",
        "string",
        enum=["auto", "redirect", "replicate_then_switch", *others],
        title="Strategy",
        description="auto chooses redirect where every subscription drains and no messages are retained, "
        f"else replicate_then_switch{suffix}.",
    )


QUIESCE = {
    "quiesce_seconds": _param(
        "quiesce_seconds",
        "number",
        title="Quiesce before the cut-over, seconds",
        description="Producers are throttled until none publishes, at least for this time, before "
        "topics are terminated. A longer time only adds to the publish pause.",
    ),
}
PROOF = {
    "proof_max_age_minutes": _param(
        "proof_max_age_minutes",
        "integer",
        title="Age of the proof, minutes",
        description="The cut-over is refused if its proof is older than this, or if anything has changed since.",
    ),
    "spark_above_entries": _param(
        "spark_above_entries",
        "integer",
        title="Entries for a Spark job",
        description="A proof of more entries, those of both clusters together, is read by a Spark job of the "
        "connection spark_default; a smaller one by the task itself.",
    ),
    "max_bytes_per_second": _param(
        "max_bytes_per_second",
        ["null", "integer"],
        title="Bytes per second",
        description="Read limit of a proof per broker, over all tasks. Empty: no limit.",
    ),
}
DRAIN = {
    "drain_timeout_minutes": _param(
        "drain_timeout_minutes",
        "integer",
        title="Time for copying and draining, minutes",
        description="After this time an unfinished run fails and says what is missing.",
    ),
}

PARAMS = {
    "blue": connection_param("pulsar_blue", "Blue", "Connection of the cluster that the namespaces leave."),
    "green": connection_param("pulsar_green", "Green", "Connection of the cluster that they move to."),
    "namespaces": setting(
        ["acme/orders"],
        type="array",
        items={"type": "string", "pattern": SCOPE_PATTERN},
        minItems=1,
        title="Namespaces",
        description="What to move, one per line: tenant/namespace, a tenant, re: and a pattern of the whole "
        "tenant/namespace, or all. Namespaces that an earlier run has moved are left out.",
    ),
    "strategy": _strategy(
        "replicate_then_repoint",
        "replicate_then_redirect_cluster",
        suffix="; and replicate_then_repoint, where the owners of the applications change their service URL, if a "
        "broker of blue cannot redirect single namespaces (Pulsar 3.0). It never chooses "
        "replicate_then_redirect_cluster, which redirects every namespace of such a blue at once",
    ),
    "wave_namespaces": _param("wave_namespaces", "integer", title="Namespaces in a wave", description="Upper limit."),
    "wave_topics": _param(
        "wave_topics",
        "integer",
        title="Topics in a wave",
        description="Upper limit; a namespace with more topics is a wave of its own.",
    ),
    "next_waves": _param(
        "next_waves",
        "boolean",
        title="Continue with the next wave",
        description="After a successful run, start a run for the next wave, with its own approval.",
    ),
    "change_windows": _param(
        "change_windows",
        "array",
        items=STRINGS,
        title="Change windows",
        description="When the cut-over is allowed, such as Mon-Thu 09:00-16:00 Europe/Berlin, or two ISO times with a "
        "slash between; the run waits for a window. Empty: always.",
    ),
    "freeze_windows": _param(
        "freeze_windows",
        "array",
        items=STRINGS,
        title="Freeze windows",
        description="When the cut-over is not allowed; same format as change windows.",
    ),
    "waivers": waivers_param(),
    **approval_params("a wave"),
    **QUIESCE,
    "individually_acknowledged": _param(
        "individually_acknowledged",
        "string",
        enum=["carry", "redeliver"],
        title="Individually acknowledged messages",
        description="With replicate_then_switch, for messages acknowledged beyond the mark-delete position: carry "
        "acknowledges them on green too; redeliver accepts that they are redelivered. The approval says how many.",
    ),
    **PROOF,
    **DRAIN,
    "repoint_timeout_minutes": _param(
        "repoint_timeout_minutes",
        "integer",
        title="Time for connecting applications to green, minutes",
        description="With replicate_then_repoint, how long the run waits until the applications have left blue; after "
        "it the run fails, names those that have not, and has terminated nothing.",
    ),
    "delete_inactive_topics_on_blue": _param(
        "delete_inactive_topics_on_blue",
        "boolean",
        title="Restore deletion of inactive topics on blue",
        description="Leave off until consumers that subscribe by pattern have been restarted against green: "
        "they lose a topic on green when blue deletes it.",
    ),
    "remove_topics_on_blue": _param(
        "remove_topics_on_blue",
        "boolean",
        title="Remove topics on blue",
        description="At the end, remove the terminated topics on blue. Leave off until every application is "
        "configured with green: consumers by pattern lose a removed topic, and clients that connect to blue no longer "
        "reach a partitioned topic.",
    ),
    "dry_run": _param(
        "dry_run", "boolean", title="Dry run", description="Evaluate every gate and show the waves; change nothing."
    ),
    "continues": setting(
        None,
        type=["null", "string"],
        title="Continued run",
        description="The run whose plan of waves this run continues; that run sets it.",
    ),
    "wave": _param("wave", "integer", title="Wave", description="Number of the wave to move; only with continues."),
}

FAILBACK_PARAMS = {
    "blue": connection_param("pulsar_blue", "Blue", "Connection of the cluster that the namespaces return to."),
    "green": connection_param("pulsar_green", "Green", "Connection of the cluster that they leave."),
    "namespaces": namespaces_param("What to move back, one tenant/namespace per line."),
    "strategy": _strategy(suffix=", which copies the messages written on green"),
    "allow_removal": _param(
        "allow_removal",
        "boolean",
        title="Allow removal of terminated topics",
        description="Remove the topics that the migration terminated on blue, with their stored messages. "
        "If off, the check fails with their list.",
    ),
    "waivers": waivers_param(),
    **QUIESCE,
    **PROOF,
    **DRAIN,
    "dry_run": setting(False, type="boolean", title="Dry run", description="Evaluate every interlock; change nothing."),
}
