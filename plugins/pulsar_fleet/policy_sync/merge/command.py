"""The command line of a run, as a message prints it (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity


def shared_options(
    selection: Selection, granularity: Granularity, tie_break: TieBreak, *, topics: bool, partitioned_topics: bool
) -> list[str]:
    """The options of a command line that are not the default ones."""
    options = [part for text in selection.texts() for part in ("--select", text)]
    options += ["--granularity", granularity.value] if granularity is not Granularity.FIELD else []
    options += ["--tie-break", tie_break.value] if tie_break is not TieBreak.SMALLER else []
    options += [] if topics else ["--no-topics"]
    return [*options, *([] if partitioned_topics else ["--no-partitioned-topics"])]


def command_line(command: str, connections: Iterable[ClusterConnection], options: Sequence[str]) -> str:
    """A command on clusters; one that has no connection id is named by its admin URL."""
    clusters = [at.admin_url if {":", "."} & set(at.name) else at.name for at in connections]
    return f"pulsar-fleet {command} {shlex.join([*clusters, *options])}"
