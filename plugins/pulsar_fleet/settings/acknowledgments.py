"""The form and the schedule of `forward_acknowledgments`."""

from __future__ import annotations

from pulsar_fleet.settings.scheduled import Scheduled
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import NAMESPACE_PATTERN, connection

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
