"""What a run of reconciliation was asked for (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.policy_sync.merge.merge_field import TieBreak
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity


class Mode(StrEnum):
    """How far a run goes."""

    REPORT = "report"
    """Say what differs; what is seen is kept, no cluster is changed."""
    REPAIR = "repair"
    DRY_RUN = "dry_run"
    """Show what a repair would write; nothing is changed and nothing is kept."""


class Side(StrEnum):
    """Who says what the clusters should hold."""

    MERGE = "merge"
    CLUSTER = "cluster"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Authority:
    """`merge` (all clusters are equal), `cluster:<its own name>`, or `file:<folder>`."""

    side: Side
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it; anything else is `InvalidRequest`."""
        side, _, name = text.partition(":")
        if side not in list(Side) or bool(name) == (side == Side.MERGE):
            raise InvalidRequest(f"The authority {text!r} is none of: merge, cluster:<its own name>, file:<folder>.")
        return cls(Side(side), name)

    def __str__(self) -> str:
        return f"{self.side}:{self.name}" if self.name else self.side.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for.

    :param topics: keep the policies of topics equal too.
    :param skew_seconds: how far clocks may jump on top of what is measured; closer times count as equal.
    :param allow: ids of irreversible and destructive changes that may be made.
    :param choose: id of a conflict → the cluster whose value is to be taken after all.
    """

    selection: Selection = field(default_factory=Selection)
    mode: Mode = Mode.REPORT
    authority: Authority = field(default_factory=lambda: Authority(Side.MERGE))
    tie_break: TieBreak = TieBreak.SMALLER
    granularity: Granularity = Granularity.FIELD
    topics: bool = True
    propagate_deletes: bool = False
    skew_seconds: float = 2.0
    allow: frozenset[str] = frozenset()
    choose: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, params: Mapping[str, Json]) -> Self:
        """Read the settings of a run; a wrong one is `InvalidRequest`."""
        choose = dict(_choice(text) for text in params["choose"])
        if choose and params["mode"] == Mode.DRY_RUN:
            raise InvalidRequest("A dry run keeps nothing, so nothing can be chosen in it: leave 'choose' empty.")
        return cls(
            selection=Selection.parse(params["selection"]),
            mode=Mode(params["mode"]),
            authority=Authority.parse(params["authority"]),
            tie_break=TieBreak(params["tie_break"]),
            granularity=Granularity(params["granularity"]),
            topics=params["topics"],
            propagate_deletes=params["propagate_deletes"],
            skew_seconds=params["skew_seconds"],
            allow=frozenset(params["allow_changes"]),
            choose=choose,
        )


def _choice(text: str) -> tuple[str, str]:
    conflict_id, _, cluster = text.partition("=")
    if not conflict_id or not cluster:
        raise InvalidRequest(
            f"The choice {text!r} is not a conflict's id and a cluster's name: write it as 1f2e3d4c5b6a=green."
        )
    return conflict_id, cluster
