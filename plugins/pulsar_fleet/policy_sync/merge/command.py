"""The options of a run as a command line has them (pure)."""

from __future__ import annotations

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
