"""The settings of `serve_read_only`, `watch_read_only` and `verify_read_only`."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import NAMESPACE_PATTERN, approval, connection, read_limit

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
        "",
        type="string",
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
