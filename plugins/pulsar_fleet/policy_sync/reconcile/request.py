"""The settings of a reconciliation run (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.policy_sync.merge.deletion_plan import PropagateDeletes
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity, TieBreak, shared_options
from pulsar_fleet.policy_sync.merge.view import Item, is_selected, tenant_and_namespace


class Mode(StrEnum):
    """How far a run goes."""

    REPORT = "report"
    """Report differences and save observations; no cluster is changed."""
    REPAIR = "repair"
    DRY_RUN = "dry_run"
    """Show the writes of a repair; no cluster is changed and nothing is saved."""


class AuthorityKind(StrEnum):
    """Where the desired values come from."""

    MERGE = "merge"
    CLUSTER = "cluster"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Authority:
    """`merge` (all clusters are equal), `cluster:<its own name>`, or `file:<folder>`."""

    kind: AuthorityKind
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an authority; any other text is `InvalidRequest`."""
        kind, _, name = text.partition(":")
        if kind not in list(AuthorityKind) or bool(name) == (kind == AuthorityKind.MERGE):
            raise InvalidRequest(f"The authority {text!r} is none of: merge, cluster:<its own name>, file:<folder>.")
        return cls(AuthorityKind(kind), name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The settings of a run.

    :param topics: also reconcile topic policies.
    :param partitioned_topics: also create and grow partitioned topics, with their properties and schemas.
    :param skew_seconds: allowed clock error in addition to the measured skew; closer times count as equal.
    :param propagate_deletes: what happens to resources that were deleted on another cluster.
    :param allow: ids of irreversible and destructive changes, or of batches of deletions, that may be applied.
    :param choose: id of a conflict → the cluster whose value the operator chooses.
    :param left_out: a namespace that is not compared; its tenant's own fields are not either.
    """

    selection: Selection = field(default_factory=Selection)
    mode: Mode = Mode.REPORT
    authority: Authority = field(default_factory=lambda: Authority(AuthorityKind.MERGE))
    tie_break: TieBreak = TieBreak.SMALLER
    granularity: Granularity = Granularity.FIELD
    topics: bool = True
    partitioned_topics: bool = True
    propagate_deletes: PropagateDeletes = PropagateDeletes.NEVER
    skew_seconds: float = 2.0
    allow: frozenset[str] = frozenset()
    choose: Mapping[str, str] = field(default_factory=dict)
    left_out: NamespaceName | None = None

    def includes(self, item: Item) -> bool:
        """Whether the selection includes a resource, and it does not belong to the namespace that is left out."""
        tenant, namespace = tenant_and_namespace(item)
        if self.left_out and (namespace == str(self.left_out) or (not namespace and tenant == self.left_out.tenant)):
            return False
        return is_selected(item, self.selection)

    @property
    def options(self) -> list[str]:
        """The options of a command line that repairs with these settings."""
        topics = {"topics": self.topics, "partitioned_topics": self.partitioned_topics}
        authority = ["--authority", str(self.authority)] if self.authority.kind is not AuthorityKind.MERGE else []
        return [
            *shared_options(self.selection, self.granularity, self.tie_break, **topics),
            *authority,
            *("--mode", Mode.REPAIR.value),
        ]

    @property
    def reads_partitioned_topics(self) -> bool:
        """Whether partitioned topics take part; files of the desired state do not describe them."""
        return self.partitioned_topics and self.authority.kind is not AuthorityKind.FILE

    @classmethod
    def of(cls, params: Mapping[str, Json]) -> Self:
        """Read the settings of a run; an invalid one is `InvalidRequest`."""
        choose = dict(_choice(text) for text in params["choose"])
        if choose and params["mode"] == Mode.DRY_RUN:
            raise InvalidRequest("A dry run saves nothing, so it cannot save a choice: leave 'choose' empty.")
        return cls(
            selection=Selection.parse(params["selection"]),
            mode=Mode(params["mode"]),
            authority=Authority.parse(params["authority"]),
            tie_break=TieBreak(params["tie_break"]),
            granularity=Granularity(params["granularity"]),
            topics=params["topics"],
            partitioned_topics=params["partitioned_topics"],
            propagate_deletes=PropagateDeletes(params["propagate_deletes"]),
            skew_seconds=params["skew_seconds"],
            allow=frozenset(params["allow_changes"]),
            choose=choose,
        )


def _choice(text: str) -> tuple[str, str]:
    conflict_id, _, cluster = text.partition("=")
    if not conflict_id or not cluster:
        raise InvalidRequest(
            f"The choice {text!r} is not the id of a conflict and a cluster name: write it as 1f2e3d4c5b6a=green."
        )
    return conflict_id, cluster
