"""The settings of `serve_read_only`."""

from __future__ import annotations

from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import NAMESPACE_PATTERN, approval, connection

SETTINGS = {
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
