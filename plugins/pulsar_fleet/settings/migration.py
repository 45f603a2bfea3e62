"""The settings of `migrate_namespaces`, `fail_back_namespaces`, `abort_migration` and `watch_overrides`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulsar_fleet.migration.request import DEFAULTS, LIMITS
from pulsar_fleet.settings.client_moves import OF_MIGRATION
from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import Setting, setting
from pulsar_fleet.settings.shared import approval, connection, namespaces, waivers

_SETTINGS = {
    "clusters": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Clusters",
        description="Connection ids of the clusters to watch. Without one the run is skipped.",
    ),
    "retired": setting(
        [],
        type="array",
        items={"type": "string"},
        title="Retired clusters",
        description="Connection ids of clusters whose namespaces have all been migrated. A namespace there that is not "
        "migrated, such as one that was created since, fails the run.",
    ),
    "restore": setting(
        True,
        type="boolean",
        title="Restore",
        description="Restore what a dead run left. Replication that it began goes on.",
    ),
}

WATCH = Scheduled("PULSAR_FLEET_WATCH", every="*/10 * * * *", declared=_SETTINGS)


STRINGS = {"type": "string"}
SCOPE_PATTERN = r"^(all|re:.+|[\w=:.-]+(/[\w=:.-]+)?)$"


def _own(name: str, kind: str | list[str], **schema: Any) -> Setting:
    """A setting of the procedure, with its default and its limits."""
    low, high = LIMITS.get(name, (None, None))
    limits: dict[str, Any] = {key: limit for key, limit in (("minimum", low), ("maximum", high)) if limit is not None}
    return setting(DEFAULTS[name], type=kind, **limits, **schema)


def _strategy(*others: str, copying: str) -> Setting:
    """How namespaces move, or `auto`, which else copies as `copying` says."""
    return _own(
        "strategy",
        "string",
        enum=["auto", "redirect", "replicate_then_switch", *others],
        title="Strategy",
        group="What",
        description="auto chooses for each namespace: redirect where every subscription drains and no messages are "
        f"retained, else {copying}.",
    )


THIRD_CLUSTERS = {
    "third_clusters": setting(
        [],
        type="array",
        items={"type": "string", "minLength": 1},
        title="Third clusters",
        group="What",
        description="Connections of further clusters that replicate into the namespaces: the cut-over holds that "
        "replication and leads it to the new cluster.",
    ),
}
QUIESCE = {
    "quiesce_seconds": _own(
        "quiesce_seconds",
        "number",
        title="Quiesce before the cut-over, seconds",
        group="How",
        description="Producers are throttled until none publishes, at least for this time, before "
        "topics are terminated. A longer time only adds to the publish pause.",
    ),
}
PROOF = {
    "proof_max_age_minutes": _own(
        "proof_max_age_minutes",
        "integer",
        title="Age of the proof, minutes",
        group="How",
        description="The cut-over is refused if its proof is older than this, or if anything has changed since.",
    ),
    "spark_above_entries": _own(
        "spark_above_entries",
        "integer",
        title="Entries for a Spark job",
        only_in_form=True,
        description="A proof of more entries, those of both clusters together, is read by a Spark job of the "
        "connection spark_default; a smaller one by the task itself.",
    ),
    "max_bytes_per_second": _own(
        "max_bytes_per_second",
        ["null", "integer"],
        title="Bytes per second",
        group="How",
        description="Read limit of a proof per broker, over all tasks. Empty: no limit.",
    ),
}
UNLOAD = {
    "unload_terminated_topics": _own(
        "unload_terminated_topics",
        "boolean",
        title="Unload terminated topics",
        group="At the end",
        description="At the end, unload on the old cluster the topics of which nothing is left to read: an application "
        "that restarts with the old address is then sent on at once, while from a loaded topic it gets all stored "
        "messages again if it starts at the earliest. Nothing can be read from them there any more. Not done where "
        "brokers are older than 4.0.12 or 4.2.3, which stand still when several clients are sent on at once.",
    ),
}
DRAIN = {
    "drain_timeout_minutes": _own(
        "drain_timeout_minutes",
        "integer",
        title="Time for copying and draining, minutes",
        group="How",
        description="After this time an unfinished run fails and says what is missing.",
    ),
}

SETTINGS = {
    "blue": connection("pulsar_blue", "Blue", "Connection of the cluster that the namespaces leave."),
    "green": connection("pulsar_green", "Green", "Connection of the cluster that they move to."),
    "namespaces": setting(
        ["acme/orders"],
        is_example=True,
        type="array",
        items={"type": "string", "pattern": SCOPE_PATTERN},
        minItems=1,
        unless="continues",
        title="Namespaces",
        group="What",
        description="What to move: tenant/namespace, a tenant, re: and a pattern of the whole "
        "tenant/namespace, or all. Namespaces that an earlier run has moved are left out.",
    ),
    "strategy": _strategy(
        "replicate_then_repoint",
        "replicate_then_redirect_cluster",
        "replicate_then_move_clients",
        "complete_move",
        "complete_move_and_redirect",
        copying="copy all stored messages, as docs/migration_strategies.md describes",
    ),
    "wave_namespaces": _own(
        "wave_namespaces", "integer", title="Namespaces in a wave", group="What", description="Upper limit."
    ),
    "wave_topics": _own(
        "wave_topics",
        "integer",
        title="Topics in a wave",
        group="What",
        description="Upper limit; a namespace with more topics is a wave of its own.",
    ),
    "next_waves": _own(
        "next_waves",
        "boolean",
        title="Continue with the next wave",
        group="What",
        description="After a successful run, start a run for the next wave, with its own approval.",
    ),
    "change_windows": _own(
        "change_windows",
        "array",
        items=STRINGS,
        title="Change windows",
        group="When",
        description="When the cut-over is allowed, such as Mon-Thu 09:00-16:00 Europe/Berlin, or two ISO times with a "
        "slash between; the run waits for a window. Empty: always.",
    ),
    "freeze_windows": _own(
        "freeze_windows",
        "array",
        items=STRINGS,
        title="Freeze windows",
        group="When",
        description="When the cut-over is not allowed; same format as change windows.",
    ),
    **THIRD_CLUSTERS,
    "waivers": waivers(),
    **approval("a wave"),
    **QUIESCE,
    "individually_acknowledged": _own(
        "individually_acknowledged",
        "string",
        enum=["carry", "redeliver"],
        title="Individually acknowledged messages",
        group="How",
        description="With replicate_then_switch, for messages acknowledged beyond the mark-delete position: carry "
        "acknowledges them on green too; redeliver accepts that they are redelivered. The approval says how many.",
    ),
    **PROOF,
    **DRAIN,
    "repoint_timeout_minutes": _own(
        "repoint_timeout_minutes",
        "integer",
        title="Time for connecting applications to green, minutes",
        group="How",
        description="With replicate_then_repoint and complete_move, how long the run waits until the applications have "
        "left blue; with complete_move_and_redirect, until every position can be carried. After it the run fails, "
        "names what it waited for, and has terminated nothing.",
    ),
    "group": _own(
        "group",
        ["null", "string"],
        title="Group",
        group="Clients",
        description="With replicate_then_move_clients: the applications that use these namespaces and follow the "
        "connection document of this name. The time for draining is that in which they have to come. With auto: that "
        "strategy is chosen where every connected client reads the document from Airflow's server.",
    ),
    **{name: replace(one, group="Clients") for name, one in OF_MIGRATION.items()},
    **UNLOAD,
    "delete_inactive_topics_on_blue": _own(
        "delete_inactive_topics_on_blue",
        "boolean",
        title="Restore deletion of inactive topics on blue",
        group="At the end",
        description="Leave off until consumers that subscribe by pattern have been restarted against green: "
        "they lose a topic on green when blue deletes it.",
    ),
    "remove_topics_on_blue": _own(
        "remove_topics_on_blue",
        "boolean",
        title="Remove topics on blue",
        group="At the end",
        description="At the end, remove the terminated topics on blue. Leave off until every application is "
        "configured with green: consumers by pattern lose a removed topic, and clients that connect to blue no longer "
        "reach a partitioned topic.",
    ),
    "dry_run": _own(
        "dry_run", "boolean", title="Dry run", description="Evaluate every gate and show the waves; change nothing."
    ),
    "continues": setting(
        None,
        type=["null", "string"],
        title="Continued run",
        description="The run whose plan of waves this run continues; that run sets it.",
    ),
    "wave": _own("wave", "integer", title="Wave", description="Number of the wave to move; only with continues."),
}

FAILBACK_SETTINGS = {
    "blue": connection("pulsar_blue", "Blue", "Connection of the cluster that the namespaces return to."),
    "green": connection("pulsar_green", "Green", "Connection of the cluster that they leave."),
    "namespaces": replace(namespaces("What to move back, tenant/namespace."), group="What"),
    "strategy": _strategy(copying="copy the messages that were written on green"),
    "allow_removal": _own(
        "allow_removal",
        "boolean",
        title="Allow removal of terminated topics",
        group="Safety",
        description="Remove the topics that the migration terminated on blue, with their stored messages. "
        "If off, the check fails with their list.",
    ),
    **THIRD_CLUSTERS,
    "waivers": waivers(),
    **QUIESCE,
    **PROOF,
    **DRAIN,
    **UNLOAD,
    **approval("the failback"),
    "dry_run": setting(False, type="boolean", title="Dry run", description="Evaluate every interlock; change nothing."),
}

ABORT_SETTINGS = {
    "run": setting(
        "migrate_namespaces/RUN",
        is_example=True,
        is_argument=True,
        type="string",
        pattern=r"^[^/]+/.+$",
        title="Run",
        description="The run to undo, as the Fleet page and the reports name it: DAG/run id. It must have ended.",
    ),
    "blue": setting(
        None,
        type=["null", "string"],
        title="Blue",
        description="Connection of the old cluster. Empty: the one of that run.",
    ),
    "green": setting(
        None,
        type=["null", "string"],
        title="Green",
        description="Connection of the new cluster. Empty: the one of that run.",
    ),
    "third_clusters": setting(
        [],
        type="array",
        items={"type": "string", "minLength": 1},
        title="Third clusters",
        description="Connections of the further clusters of that run. Empty: those of that run.",
    ),
}
