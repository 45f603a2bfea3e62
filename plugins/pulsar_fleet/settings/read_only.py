"""The settings of the procedures of read-only topics, and of the forwarding of their acknowledgments."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import NAMESPACE_PATTERN, approval, connection, read_limit

_SETTINGS = {
    "cluster": connection("pulsar_blue", "Cluster", "Connection of the cluster that has both topics."),
    "namespaces": setting(
        [],
        type="array",
        items={"type": "string", "pattern": NAMESPACE_PATTERN},
        title="Read-only namespaces",
        description="The namespaces that `serve_read_only` has made. Without one the run is skipped.",
    ),
    "topics": setting(
        [],
        type="array",
        items={"type": "string", "pattern": r"^persistent://.+/.+/.+$"},
        title="Topics",
        description="Shadow topics or their sources. Empty: all of the namespaces.",
    ),
    "subscriptions": setting(
        [],
        type="array",
        items={"type": "string", "minLength": 1},
        title="Subscriptions",
        description="Names. Empty: all that the owner has too.",
    ),
    "accept_positions": setting(
        [],
        type="array",
        items={"type": "string", "minLength": 1},
        title="Accepted positions",
        description="Subscriptions whose present position on the shadow topics was reached by their consumers. It is "
        "asked once for a subscription that is ahead of its owner's.",
    ),
    "create_missing": setting(
        False,
        type="boolean",
        title="Create missing subscriptions",
        description="Create a subscription that the owner lacks, at the position of the shadow topic's.",
    ),
    "minutes": setting(
        0,
        type="number",
        minimum=0,
        maximum=1440,
        title="Duration, minutes",
        only_in_form=True,
        description="For how long a run continues, without a worker slot. 0: one pass.",
    ),
    "poll_seconds": setting(
        10.0,
        type="number",
        minimum=0.05,
        maximum=3600,
        title="Pause between passes, seconds",
        description="A pass costs four calls for each topic or partition.",
    ),
}

FORWARD_ACKNOWLEDGMENTS = Scheduled("PULSAR_FLEET_FORWARD_ACKNOWLEDGMENTS", every="*/5 * * * *", declared=_SETTINGS)


SERVE_READ_ONLY = {
    "cluster": connection("pulsar_blue", "Cluster", "Connection of the cluster that has the topics."),
    "topics": setting(
        [],
        type="array",
        items={"type": "string", "pattern": r"^persistent://.+/.+/.+$"},
        title="Topics",
        description="The topics that are served read-only.",
    ),
    "namespace": setting(
        "",
        type="string",
        pattern=rf"^$|{NAMESPACE_PATTERN}",
        title="Read-only namespace",
        description="Where readers find them, under the same names; the run creates it. Its tenant must exist.",
    ),
    "brokers": setting(
        [],
        type="array",
        items={"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?$"},
        title="Brokers of its own",
        description="Brokers, host or host:port, that serve this namespace and no other from then on. Empty: those of "
        "an earlier run, or any broker.",
    ),
    "other_cluster": setting(
        None,
        type=["null", "string"],
        title="Other cluster",
        description="Instead of shadow topics: connection of a cluster that gets a copy under the same names, by "
        "replication in one direction. Nobody may produce there. Empty: shadow topics on the same cluster.",
    ),
    "lag_minutes": setting(
        60,
        type="integer",
        minimum=1,
        title="Allowed lag, minutes",
        description="How far readers may be behind: the plan warns where the source retains less.",
    ),
    "remove": setting(
        False,
        type="boolean",
        title="Remove",
        description="Take the shadow topics of these topics away, and the namespace with the last of them.",
    ),
    **approval("the plan"),
    "dry_run": setting(
        False, type="boolean", title="Dry run", description="Stop after the plan, which lists every call."
    ),
}

VERIFY_READ_ONLY = {
    "cluster": connection("pulsar_blue", "Cluster", "Connection of the cluster that serves the topics."),
    "namespace": setting(
        "",
        type="string",
        pattern=rf"^$|{NAMESPACE_PATTERN}",
        title="Read-only namespace",
        description="A namespace that `serve_read_only` has made; all its topics are compared with their sources.",
    ),
    "max_bytes_per_second": read_limit(),
}

_WATCH = {
    "cluster": connection("pulsar_blue", "Cluster", "Connection of the cluster that serves the topics."),
    "namespaces": setting(
        [],
        type="array",
        items={"type": "string", "pattern": NAMESPACE_PATTERN},
        title="Read-only namespaces",
        description="The namespaces that `serve_read_only` has made. Without one the run is skipped.",
    ),
    "lag_minutes": setting(
        60,
        type="integer",
        minimum=1,
        title="Allowed lag, minutes",
        description="A reader that is further behind fails the run.",
    ),
    "follow": setting(
        True,
        type="boolean",
        title="Follow the sources",
        description="Add partitions, schemas, permissions and links that are missing, and restore a lost retention. "
        "Without it the run changes nothing.",
    ),
}

WATCH_READ_ONLY = Scheduled("PULSAR_FLEET_WATCH_READ_ONLY", every="* * * * *", declared=_WATCH)
