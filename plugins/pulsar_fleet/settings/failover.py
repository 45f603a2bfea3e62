"""The settings of `fail_over_applications`."""

from __future__ import annotations

from dataclasses import replace

from pulsar_fleet.settings.client_moves import FOLLOWED
from pulsar_fleet.settings.setting import setting
from pulsar_fleet.settings.shared import approval, connection, selection

SETTINGS = {
    "origin": connection("pulsar_blue", "From", "Connection of the cluster that applications leave."),
    "target": connection("pulsar_green", "To", "Connection of the cluster that they connect to."),
    "selection": selection(),
    "accept_lost": setting(
        False,
        type="boolean",
        title="Accept lost messages",
        description="Go on although messages would not be delivered on the target, or although that is unknown. With a "
        "group: although the cluster that they leave may be alive.",
    ),
    "arrival_minutes": setting(
        60,
        type="integer",
        minimum=1,
        maximum=10_080,
        title="Time to arrive, minutes",
        description="How long applications may take to connect to the target and to catch up; after it the run fails "
        "with what is missing.",
    ),
    "group": setting(
        None,
        type=["null", "string"],
        title="Group",
        group="Clients",
        description="Lead the applications that follow the connection document of this name, while the cluster that "
        "they leave does not answer. The selection names all namespaces that they use. While it answers, move_clients "
        "moves them with their positions.",
    ),
    **{name: replace(one, group="Clients") for name, one in FOLLOWED.items()},
    **approval("the failover"),
    "dry_run": setting(False, type="boolean", title="Dry run", description="Stop after the forecast."),
}
